"""A callback that writes the progress of training for TensorBoard."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from vauban.errors import BadInput


class TensorBoard:
    """Writes loss, accuracy, rate and validation to a folder that `tensorboard --logdir` shows."""

    def __init__(self, folder: str | Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise BadInput(
                "TensorBoard is not installed: pip install tensorboard, or leave --tensorboard out"
            ) from None
        self._writer = SummaryWriter(str(folder))

    def __call__(self, progress: Any) -> None:
        values = {"loss": progress.loss, "accuracy": progress.accuracy, "rate": progress.rate}
        if progress.validated is not None:
            found = progress.validated
            values |= {"held out/base accuracy": found.base_accuracy, "held out/accuracy": found.accuracy}
            values |= {"held out/certified": found.certified}
        for name, value in values.items():
            if not math.isnan(value):
                self._writer.add_scalar(name, value, progress.step)
        self._writer.flush()
