"""What a training tells while it runs, and what it returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from vauban.training.validation import Validated


@dataclass(frozen=True)
class TrainingProgress:
    """The state of training after a step: mean loss and accuracy on views since the last report, and a validation if one was due.

    `rate` is the learning rate of the step; `accuracy` is NaN for a network that returns no scores of classes; `first` is the
    step from which a checkpoint was resumed.
    """

    step: int
    steps: int
    epoch: float
    rate: float
    loss: float
    accuracy: float
    validated: Validated | None = None
    first: int = field(default=0, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the log."""
        record = {k: v for k, v in asdict(self).items() if k not in ("validated", "first")}
        record = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in record.items()}
        return record | ({"validated": asdict(self.validated)} if self.validated else {})

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> TrainingProgress:
        """The progress that a line of the log tells of."""
        values: dict[str, Any] = {key: math.nan if value is None else value for key, value in record.items()}
        found = values.pop("validated", None)
        return cls(**values, validated=Validated(**found) if found else None)


Callback = Callable[[TrainingProgress], Any]


@dataclass(frozen=True)
class Trained:
    """A trained network in evaluation mode; `history`: one entry for each report; `step`: the step whose weights it has;
    `finished`: whether training came to its end, or a callback ended it."""

    network: torch.nn.Module
    history: list[TrainingProgress] = field(repr=False)
    step: int
    finished: bool

    @property
    def accuracy(self) -> float:
        """Accuracy on training views in the last steps."""
        return self.history[-1].accuracy if self.history else math.nan

    @property
    def validated(self) -> Validated | None:
        """What the validation of these weights found, if pictures were held out."""
        return next((entry.validated for entry in self.history if entry.step == self.step), None)
