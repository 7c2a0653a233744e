"""Inputs as they arrive, checked, and put on the 8-bit grid where they belong there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vauban.errors import BadInput

LEVELS = 255
ARITHMETICS = ("auto", "grid", "float")
_ON_GRID = 1e-4


@dataclass(frozen=True)
class Inputs:
    """`values` [m, ...]: uint8 on the grid, float32 off it. `levels`: 255 on the grid, None off it."""

    values: torch.Tensor
    levels: int | None

    @property
    def arithmetic(self) -> str:
        """Either "grid" or "float"."""
        return "float" if self.levels is None else "grid"


def prepare(x: Any, arithmetic: str = "auto", input_range: tuple[float, float] | None = (0.0, 1.0)) -> Inputs:
    """Check a batch [m, ...] of 8-bit integers or floats, and say in which arithmetic its views are made.

    Floats that are multiples of 1/255, up to the rounding of float32, are pictures on the grid. "auto" takes the grid if
    every number is on it; "grid" refuses a batch that is not; "float" never uses it.
    """
    if arithmetic not in ARITHMETICS:
        raise BadInput(f"arithmetic={arithmetic!r}: one of {', '.join(ARITHMETICS)} is needed")
    values = x.detach().cpu() if isinstance(x, torch.Tensor) else _from_array(np.asarray(x))
    if values.dim() < 2 or values.numel() == 0:
        raise BadInput(f"inputs of shape {tuple(values.shape)}: a batch is needed, [inputs, ...], with something in it")
    if values.dtype == torch.uint8:
        return Inputs(values, LEVELS) if arithmetic != "float" else Inputs(values.float() / LEVELS, None)
    if not values.is_floating_point():
        raise BadInput(f"inputs of type {values.dtype}: uint8 pictures, or floats (pictures in [0,1]), are needed")
    _refuse(values.isnan(), "has NaN in it")
    if input_range is None:
        _refuse(values.isinf(), "has infinite numbers in it")
    if input_range is not None:
        low, high = input_range
        outside = (values < low) | (values > high)
        _refuse(outside, f"leaves [{low:g}, {high:g}]: divide 8-bit values by 255, and normalise inside the model")
    steps = (values.double() * LEVELS).round()
    off = (values.double() * LEVELS - steps).abs() > _ON_GRID
    off |= (steps < 0) | (steps > LEVELS)
    if arithmetic == "grid":
        advice = "round it first, or, where views are sampled, ask for arithmetic='float'"
        _refuse(off, f"is not on the 8-bit grid of multiples of 1/255: {advice}")
    if arithmetic == "float" or bool(off.any()):
        return Inputs(values.float(), None)
    return Inputs(steps.to(torch.uint8), LEVELS)


def check_labels(y: Any, inputs: int, num_classes: int) -> np.ndarray:
    """Labels [m] as int64, each one of the classes."""
    labels = y.detach().cpu().numpy() if isinstance(y, torch.Tensor) else np.asarray(y)
    if labels.shape != (inputs,) or labels.dtype.kind not in "iu":
        raise BadInput(
            f"y of shape {labels.shape} and type {labels.dtype} for {inputs} inputs: one whole number each is needed"
        )
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(wrong):
        raise BadInput(f"label {labels[wrong[0]]} of input {wrong[0]} is outside the classes 0..{num_classes - 1}")
    return labels.astype(np.int64)


def _from_array(array: np.ndarray) -> torch.Tensor:
    if array.dtype.kind not in "uif":
        raise BadInput(f"inputs of type {array.dtype}: uint8 pictures, or floats (pictures in [0,1]), are needed")
    return torch.from_numpy(np.ascontiguousarray(array).copy())


def _refuse(bad: torch.Tensor, why: str) -> None:
    rows = bad.flatten(1).any(dim=1)
    if bool(rows.any()):
        raise BadInput(f"input {int(rows.nonzero()[0])} {why}")
