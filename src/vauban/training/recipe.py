"""Training settings: everything that the trained weights depend on, besides data, network and smoothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from vauban.errors import BadInput
from vauban.specs import Spec, choose
from vauban.training.augment import AUGMENTATIONS
from vauban.validation import is_whole

OPTIMIZERS = ("adamw", "sgd")
SCHEDULES = ("cosine", "constant", "onecycle", "step")
PRECISIONS = ("fp32", "tf32", "bf16")
MASKS = ("picture", "batch")

_LEAST_RATE = 1e-4  # of the cosine's highest rate, at its end
_ONECYCLE_RISE = 0.3  # the fraction of all steps in which the one-cycle rate rises
_ONECYCLE_START, _ONECYCLE_END = 25.0, 1e4  # how far below the highest rate it starts and ends [Smith2018]


@dataclass(frozen=True)
class Recipe:
    """Training settings.

    `epochs`: how often every picture is seen. `batch`: pictures per update, over all processes and all `accumulate` parts.
    `lr`: the highest learning rate. `optimizer`: adamw, or sgd with `momentum` (Nesterov's unless `nesterov` is false).
    `schedule`: cosine, constant, onecycle, or step:at=30/60,factor=0.1 with `at` in epochs. `warmup`: epochs in which the
    rate rises from zero; None is a twentieth of all for cosine and none for the others; onecycle has a rise of its own.
    `label_smoothing`, `mixup`, `cutmix` (parameters of Beta laws): 0 is off. `augment`: see `vauban.training.augment`.
    `masks`: whether each picture gets noise of its own or a whole batch the same. `loss`: losses joined by +, see
    `vauban.training.losses`. `ema`: the weights are an average over the steps with this decay. `clip`: the largest norm of a
    gradient. `precision`: fp32, tf32 or bf16.

    >>> Recipe(epochs=90, loss="stability:weight=6").epochs
    90
    """

    epochs: float = 10
    batch: int = 128
    lr: float = 1e-3
    weight_decay: float = 5e-4
    augment: str = "none"
    seed: int = 0
    loss: str = "noise"
    optimizer: str = "adamw"
    momentum: float = 0.9
    nesterov: bool = True
    schedule: str = "cosine"
    warmup: float | None = None
    label_smoothing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    ema: float = 0.0
    accumulate: int = 1
    precision: str = "fp32"
    clip: float = 0.0
    masks: str = "picture"

    def __post_init__(self) -> None:
        from vauban.training.losses import build

        choose("augmentation", self.augment, AUGMENTATIONS)
        choose("optimizer", self.optimizer, OPTIMIZERS)
        choose("precision", self.precision, PRECISIONS)
        choose("masks", self.masks, MASKS)
        build(self.loss)
        self._schedule()
        self._check_kinds()
        for key, low, above in (("epochs", 0, True), ("batch", 1, False), ("lr", 0, True), ("accumulate", 1, False)):
            self._check(key, getattr(self, key), low, math.inf, above)
        for key in ("weight_decay", "mixup", "cutmix", "clip", "warmup"):
            self._check(key, getattr(self, key) or 0.0, 0, math.inf)
        for key in ("momentum", "label_smoothing", "ema"):
            value = getattr(self, key)
            if not 0 <= value < 1:
                raise BadInput(f"{key}={value}: a number from 0 to below 1 is needed")
        if self.batch % self.accumulate:
            raise BadInput(f"accumulate={self.accumulate} does not divide batch={self.batch}: give one that does")

    def _check_kinds(self) -> None:
        """Refuse values that are no numbers where numbers are needed."""
        for field in fields(self):
            value, default = getattr(self, field.name), field.default
            if isinstance(default, str) or (value is None and default is None):
                continue
            if isinstance(default, bool):
                fits, needed = isinstance(value, bool | np.bool_), "True or False"
            elif field.type == "int":
                fits, needed = is_whole(value), "a whole number"
            else:
                fits, needed = is_whole(value) or isinstance(value, float | np.floating), "a number"
            if not fits:
                raise BadInput(f"{field.name}={value!r}: {needed} is needed")

    def _check(self, key: str, value: float, low: float, high: float, above: bool = False) -> None:
        if not (value > low if above else value >= low) or not value < high:
            raise BadInput(f"{key}={value}: a finite number {'above' if above else 'of at least'} {low} is needed")

    @classmethod
    def from_options(cls, base: Recipe, options: dict[str, Any]) -> Recipe:
        """`base` with the options that are not None in place of its own."""
        for key in options:
            choose("setting", key, [field.name for field in fields(cls)])
        return cls(
            **{f.name: getattr(base, f.name) for f in fields(cls)} | {k: v for k, v in options.items() if v is not None}
        )

    def steps(self, size: int) -> int:
        """How many updates training on `size` pictures takes."""
        return max(1, math.ceil(round(self.epochs * size) / self.batch))

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step."""
        done = step / steps
        kind, at, factor = self._schedule()
        rise = self._warmup_share()
        start = min(1.0, done / rise) if rise else 1.0
        if kind == "cosine":
            return self.lr * (start * (0.5 + 0.5 * math.cos(math.pi * done)) + _LEAST_RATE)
        if kind == "onecycle":
            return self.lr * _one_cycle(done)
        passed = sum(done * self.epochs >= epoch for epoch in at)
        return self.lr * start * factor**passed

    def _warmup_share(self) -> float:
        """The fraction of all steps in which the rate rises."""
        if self.warmup is None:
            return 0.05 if self.schedule == "cosine" else 0.0
        return self.warmup / self.epochs

    def _schedule(self) -> tuple[str, tuple[float, ...], float]:
        """The schedule's name, and the epochs and factor of its steps."""
        spec = Spec.parse(self.schedule)
        choose("schedule", spec.name, SCHEDULES)
        unknown = set(spec.params) - ({"at", "factor"} if spec.name == "step" else set())
        try:
            at = tuple(float(text) for text in spec.params.get("at", "").split("/") if text)
            factor = float(spec.params.get("factor", "0.1"))
        except ValueError:
            unknown, at, factor = {"at"}, (), 0.1
        if unknown or (spec.name == "step" and not at):
            raise BadInput(
                f"schedule {self.schedule}: a name out of {', '.join(SCHEDULES)} is needed, and for step the epochs at "
                "which the rate falls, joined by /, such as step:at=30/60,factor=0.1"
            )
        return spec.name, at, factor

    def optimizer_for(self, parameters: Iterable[torch.nn.Parameter], device: torch.device) -> torch.optim.Optimizer:
        """The optimizer of these parameters. On a GPU its update is one kernel, and its rate is a tensor there, so that an update
        can be recorded once and replayed."""
        settings: dict[str, Any] = {"lr": self.lr, "weight_decay": self.weight_decay}
        if device.type == "cuda":
            settings |= {"lr": torch.tensor(self.lr, device=device), "fused": True}
        if self.optimizer == "adamw":
            return torch.optim.AdamW(parameters, capturable=device.type == "cuda", **settings)
        nesterov = self.nesterov and self.momentum > 0
        return torch.optim.SGD(parameters, momentum=self.momentum, nesterov=nesterov, **settings)


def _one_cycle(done: float) -> float:
    """The factor of the one-cycle schedule when this fraction of all steps is done: a cosine up, then one down."""
    low, end = 1 / _ONECYCLE_START, 1 / (_ONECYCLE_START * _ONECYCLE_END)
    if done < _ONECYCLE_RISE:
        return low + (1 - low) * (0.5 - 0.5 * math.cos(math.pi * done / _ONECYCLE_RISE))
    return end + (1 - end) * (0.5 + 0.5 * math.cos(math.pi * (done - _ONECYCLE_RISE) / (1 - _ONECYCLE_RISE)))
