"""Training losses: functions for a loop of one's own, and classes by name for `vauban train`.

Other packages bring theirs by the entry point group vauban.losses.
"""

from vauban.training.losses.adversarial import adversarial
from vauban.training.losses.base import LOSSES, Batch, Loss, Sum, build
from vauban.training.losses.consistency import consistency
from vauban.training.losses.denoising import denoised_stability, mse
from vauban.training.losses.macer import macer
from vauban.training.losses.noise import noise
from vauban.training.losses.patches import patch_deficit, patch_lead
from vauban.training.losses.self_supervised import coding_rate, simclr, simsiam
from vauban.training.losses.stability import stability
from vauban.training.losses.type2 import type2

__all__ = [
    "LOSSES",
    "Batch",
    "Loss",
    "Sum",
    "adversarial",
    "build",
    "coding_rate",
    "consistency",
    "denoised_stability",
    "macer",
    "mse",
    "noise",
    "patch_deficit",
    "patch_lead",
    "simclr",
    "simsiam",
    "stability",
    "type2",
]
