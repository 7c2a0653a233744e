"""Reads and checks inputs, and puts them on the 8-bit grid where all their values lie on it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vauban.errors import BadInput
from vauban.files import arrays_sha256
from vauban.runs.sections import DataSection, Selection
from vauban.validation import check_index, check_labels

LEVELS = 255
ARITHMETICS = ("auto", "grid", "float")
ON_GRID = 1e-4


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
    """Check a batch [m, ...] of 8-bit integers or floats, and choose the arithmetic in which its views are made.

    Floats that are multiples of 1/255, up to the rounding of float32, are pictures on the grid. "auto" uses the grid if
    every number is on it; "grid" refuses a batch that is not; "float" never uses it.
    """
    if arithmetic not in ARITHMETICS:
        raise BadInput(f"arithmetic={arithmetic!r}: one of {', '.join(ARITHMETICS)} is needed")
    values = x.detach().cpu() if isinstance(x, torch.Tensor) else _from_array(np.asarray(x))
    if values.dim() < 2 or values.numel() == 0:
        raise BadInput(f"inputs of shape {tuple(values.shape)}: a batch [inputs, ...] that is not empty is needed")
    if values.dtype == torch.uint8:
        return Inputs(values, LEVELS) if arithmetic != "float" else Inputs(values.float() / LEVELS, None)
    if not values.is_floating_point():
        raise BadInput(f"inputs of type {values.dtype}: uint8 pictures, or floats (pictures in [0,1]), are needed")
    _refuse(values.isnan(), "contains NaN")
    if input_range is None:
        _refuse(values.isinf(), "contains infinite numbers")
    if input_range is not None:
        low, high = input_range
        outside = (values < low) | (values > high)
        advice = "divide 8-bit values by 255, and normalise inside the model"
        _refuse(outside, f"has values outside [{low:g}, {high:g}]: {advice}")
    steps = (values.double() * LEVELS).round()
    off = (values.double() * LEVELS - steps).abs() > ON_GRID
    off |= (steps < 0) | (steps > LEVELS)
    if arithmetic == "grid":
        advice = "round it first, or, where views are sampled, use arithmetic='float'"
        _refuse(off, f"is not on the 8-bit grid of multiples of 1/255: {advice}")
    if arithmetic == "float" or bool(off.any()):
        return Inputs(values.float(), None)
    return Inputs(steps.to(torch.uint8), LEVELS)


@dataclass(frozen=True)
class Batch:
    """The inputs of one call and where they came from.

    `labels` [m]: true labels, or None. `index` [m]: the number of each input in its data set, which addresses its noise.
    `spec`: the data set's text form, or what kind of object was given; `sha256`: of inputs and labels as they were given.
    `selection`: how they were taken from the whole data set.
    """

    inputs: Inputs
    labels: np.ndarray | None
    index: np.ndarray
    spec: str
    sha256: str
    names: list[str] | None = None
    selection: Selection | None = None

    @property
    def shape(self) -> torch.Size:
        """The shape of one input."""
        return self.inputs.values.shape[1:]

    def __len__(self) -> int:
        return len(self.inputs.values)

    def section(self, num_classes: int) -> DataSection:
        """What a manifest says of these inputs."""
        labels = None if self.labels is None else self.labels.tolist()
        index = self.index.tolist()
        return DataSection(
            self.spec, self.sha256, tuple(self.shape), num_classes, index, labels, self.names, self.selection
        )


def collect(
    x: Any, y: Any, index: Any, prepare_inputs: Callable[[Any], Inputs], num_classes: int | None = None
) -> Batch:
    """Read inputs from an array, a tensor, a torch data set or loader of (x, y), or a data set of `vauban.data`; read once.

    `y`: labels [m] that replace those of `x`; `index` likewise. `prepare_inputs` checks the values.
    """
    spec, names, taken = type(x).__name__, None, None
    if hasattr(x, "images") and hasattr(x, "fingerprint"):
        spec, names, taken = x.name, getattr(x, "names", None), getattr(x, "taken", None)
        if not (y is None or np.array_equal(y, x.labels)) or not (index is None or np.array_equal(index, x.index)):
            taken = Selection(*(None, None) if taken is None else (taken.size, taken.sha256))
        y, index = x.labels if y is None else y, x.index if index is None else index
        x = x.images
    elif isinstance(x, torch.utils.data.DataLoader | torch.utils.data.Dataset):
        x, found = _read_all(x)
        y = found if y is None else y
    inputs = prepare_inputs(x)
    raw = x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)
    count, given = len(inputs.values), y.detach().cpu().numpy() if isinstance(y, torch.Tensor) else y
    classes = num_classes if num_classes is not None else np.iinfo(np.int64).max
    labels = None if given is None else check_labels(given, count, classes, name="y")
    kept = None if names is None else [str(name) for name in names]
    numbers, sha256 = check_index(index, count), arrays_sha256(raw, labels)
    if taken is None:
        every_input = np.array_equal(numbers, np.arange(count))
        taken = Selection(count, sha256, every=1) if every_input else Selection()
    return Batch(inputs, labels, numbers, spec, sha256, kept, taken)


def _read_all(source: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Inputs [m, ...] and labels [m] or None of a torch data set or loader, read once and in order."""
    loads = isinstance(source, torch.utils.data.DataLoader)
    read = source.dataset if loads else source
    streams = isinstance(read, torch.utils.data.IterableDataset)
    if streams:
        warnings.warn(
            f"a {type(read).__name__} has no order that can be checked: inputs are numbered as it yields them now. A run that is "
            "resumed needs the same order, and is refused with another",
            stacklevel=5,
        )
    elif loads:
        _refuse_other_order(source)
    counted = not loads and not streams and hasattr(source, "__len__")
    items = [source[i] for i in range(len(source))] if counted else list(source)
    if not items:
        raise BadInput("the data set is empty: at least one input is needed")
    pairs = [item if isinstance(item, tuple | list) else (item, None) for item in items]
    if any(len(pair) != 2 for pair in pairs):
        raise BadInput(f"items of {len(pairs[0])} elements: inputs, or pairs (input, label), are needed")
    xs, ys = ([_array(pair[i]) for pair in pairs] for i in range(2))
    join = np.concatenate if isinstance(source, torch.utils.data.DataLoader) else np.stack
    try:
        return join(xs), None if any(y is None for y in ys) else join(ys)  # type: ignore[arg-type]
    except ValueError as problem:
        raise BadInput(f"inputs of different shapes cannot be certified together: {problem}") from None


def _refuse_other_order(loader: Any) -> None:
    """Refuse a loader unless torch's own samplers make it read in order: those of others may shuffle."""
    batches = loader.batch_sampler
    own = batches is None or type(batches) is torch.utils.data.BatchSampler
    sampler = loader.sampler if batches is None else batches.sampler if own else batches
    if type(sampler) is not torch.utils.data.SequentialSampler:
        raise BadInput(
            f"this loader reads in the order of a {type(sampler).__name__}: inputs are numbered by position, so a loader "
            "that reads in order is needed (shuffle=False, no sampler or batch_sampler of your own), or the inputs as an array"
        )


def _array(value: Any) -> np.ndarray | None:
    if value is None:
        return None
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def _from_array(array: np.ndarray) -> torch.Tensor:
    if array.dtype.kind not in "uif":
        raise BadInput(f"inputs of type {array.dtype}: uint8 pictures, or floats (pictures in [0,1]), are needed")
    return torch.from_numpy(np.ascontiguousarray(array).copy())


def _refuse(bad: torch.Tensor, why: str) -> None:
    rows = bad.flatten(1).any(dim=1)
    if bool(rows.any()):
        raise BadInput(f"input {int(rows.nonzero()[0])} {why}")
