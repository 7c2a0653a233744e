"""A callback that writes the progress of training for TensorBoard."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from vauban.errors import BadInput, CannotWrite


class TensorBoard:
    """Writes loss, accuracy, rate and validation to a folder that `tensorboard --logdir` shows."""

    def __init__(self, folder: str | Path):
        path = Path(folder).expanduser()
        if path.exists() and not path.is_dir():
            raise BadInput(f"{folder} is a file, and TensorBoard's files need a folder: give another name")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise BadInput(
                "TensorBoard is not installed: pip install tensorboard, or train without it (leave --tensorboard out)"
            ) from None
        try:
            self._writer = SummaryWriter(str(path))
        except OSError as problem:
            raise CannotWrite(f"{folder} cannot be written: {problem.strerror or problem}") from problem

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
