"""Training losses: functions for a loop of one's own, and classes by name for `vauban train`.

Other packages bring theirs by the entry point group vauban.losses.
"""

from vauban.training.losses.base import LOSSES, Batch, Loss, Sum, build
from vauban.training.losses.noise import noise

__all__ = ["LOSSES", "Batch", "Loss", "Sum", "build", "noise"]
