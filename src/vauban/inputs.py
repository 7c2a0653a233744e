"""Reads and checks inputs, and puts them on the 8-bit grid where all their values lie on it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import torch

from vauban.certificates import UNIT_RANGE
from vauban.errors import BadInput
from vauban.files import arrays_sha256
from vauban.runs.sections import AS_GIVEN, DIVIDED, DataSection, InputSection, Selection
from vauban.standardise import Standardisation
from vauban.streamed import Streamed
from vauban.validation import check_index, check_labels

LEVELS = 255
ARITHMETICS = ("auto", "grid", "float")
ON_GRID = 1e-4


@dataclass(frozen=True)
class Inputs:
    """`values` [m, ...]: uint8 on the grid, float32 off it. `levels`: 255 on the grid, None off it. `divided`: whether floats are
    8-bit numbers divided by 255."""

    values: torch.Tensor
    levels: int | None
    divided: bool = False

    def section(
        self, input_range: tuple[float, float] | None, law: Any, deviation: float, by: Standardisation | None
    ) -> InputSection:
        """What a manifest says of how these inputs are read; `input_range`: what floats may be."""
        of_bytes = self.levels is not None or self.divided
        return InputSection(
            levels=self.levels,
            arithmetic="grid" if self.levels is not None and law.on_grid else "float",
            range=UNIT_RANGE if of_bytes else input_range,
            deviation_per_view=deviation,
            preprocessing=DIVIDED if of_bytes else AS_GIVEN,
            standardised=None if by is None else by.to_json(),
        )

    def check_with(self, check: Callable[[torch.Tensor], None]) -> None:
        """Call `check` with the inputs [m, ...], one after the other where they are streamed."""
        if isinstance(self.values, torch.Tensor):
            check(self.values)
            return
        for position in range(len(self.values)):
            try:
                check(self.values[position][None])
            except BadInput as problem:
                raise BadInput(f"{self.values.name(position)}: {problem}") from None

    @property
    def arithmetic(self) -> str:
        """Either "grid" or "float"."""
        return "float" if self.levels is None else "grid"


class StreamedTensor:
    """Inputs [m, ...] that are decoded when they are read, as the tensors that `convert` makes of them.

    One position gives a tensor; a slice or a tensor of positions gives inputs that are still streamed. `to`, `float` and `clone`
    read them all.
    """

    def __init__(
        self, values: Streamed, convert: Callable[[Any], torch.Tensor], positions: Sequence[int] | None = None
    ):
        self._values, self._convert = values, convert
        self._positions: Sequence[int] = range(len(values)) if positions is None else positions
        self.dtype = convert(values[self._positions[0]]).dtype
        self.shape = torch.Size((len(self._positions), *values.shape[1:]))

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int):
            return self._convert(self._values[self._positions[key]])
        places = range(len(self))[key] if isinstance(key, slice) else key.tolist()
        return StreamedTensor(self._values, self._convert, [self._positions[place] for place in places])

    def to(self, device: torch.device) -> torch.Tensor:
        """All inputs as a tensor on a device."""
        return self.clone().to(device)

    def float(self) -> torch.Tensor:
        """All inputs as a tensor of float32."""
        return self.clone().float()

    def clone(self) -> torch.Tensor:
        """All inputs as a tensor."""
        return torch.stack([self[position] for position in range(len(self))])

    def name(self, position: int) -> str:
        """Which input is at a position, in words."""
        return self._values.source.name(int(self._values.numbers[self._positions[position]]))


def prepare(
    x: Any,
    arithmetic: str = "auto",
    input_range: tuple[float, float] | None = (0.0, 1.0),
    first: int = 0,
    by: Standardisation | None = None,
) -> Inputs:
    """Check a batch [m, ...] of 8-bit integers or floats, and choose the arithmetic in which its views are made.

    Floats that are multiples of 1/255, up to the rounding of float32, are pictures on the grid. "auto" uses the grid if
    every number is on it; "grid" refuses a batch that is not; "float" never uses it. Inputs that are streamed stay so.
    `first`: the number of the first input, for messages. `by`: standardises a table of floats, which has no grid and no range.
    """
    if by is not None:
        return _standardised(x, arithmetic, input_range, by)
    if arithmetic not in ARITHMETICS:
        raise BadInput(f"arithmetic={arithmetic!r}: one of {', '.join(ARITHMETICS)} is needed")
    if isinstance(x, Streamed):
        return _streamed(x, arithmetic, input_range)
    values = x.detach().cpu() if isinstance(x, torch.Tensor) else _from_array(x)
    if values.dim() < 2 or values.numel() == 0:
        raise BadInput(f"inputs of shape {tuple(values.shape)}: a batch [inputs, ...] that is not empty is needed")
    if values.dtype == torch.uint8:
        return Inputs(values, LEVELS) if arithmetic != "float" else Inputs(values.float() / LEVELS, None, True)
    if not values.is_floating_point():
        raise BadInput(_of_other_type(values.dtype, values.dim(), x))
    _refuse(values.isnan(), "contains NaN", first)
    if input_range is not None:
        low, high = input_range
        outside = (values < low) | (values > high)
        advice = "divide 8-bit values by 255, and normalise inside the model"
        if values.dim() == 2:
            advice = "for a table of any numbers give input_range=None (--input-range none); divide 8-bit values by 255"
        _refuse(outside, f"has values outside [{low:g}, {high:g}]: {advice}", first)
    _refuse(values.float().isinf(), "contains numbers that are infinite in float32", first)
    steps = (values.double() * LEVELS).round()
    off = (values.double() * LEVELS - steps).abs() > ON_GRID
    off |= (steps < 0) | (steps > LEVELS)
    if arithmetic == "grid":
        advice = "round it first, or, where views are sampled, use arithmetic='float'"
        _refuse(off, f"is not on the 8-bit grid of multiples of 1/255: {advice}", first)
    if arithmetic == "float" or bool(off.any()):
        return Inputs(values.float(), None)
    return Inputs(steps.to(torch.uint8), LEVELS)


def _standardised(x: Any, arithmetic: str, input_range: Any, by: Standardisation) -> Inputs:
    """Floats [m, features] in the units of their standardisation."""
    if arithmetic == "grid" or input_range is not None:
        raise BadInput(
            f"standardised features have neither a grid nor a range, and arithmetic={arithmetic!r}, input_range={input_range} "
            "are given: use a sampled smoothing with input_range=None (--input-range none)"
        )
    read = prepare(x, "float", None)
    if read.divided:
        raise BadInput(
            f"inputs of 8 bits, and the statistics of {by.source} are those of floats: give the table as floats, or do not "
            "standardise it (--standardise none)"
        )
    values = read.values
    raw = x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)
    by.refuse_own(None, arrays_sha256(raw, None), "this table")
    scaled = torch.from_numpy(by.applied(values.numpy()))
    _refuse(scaled.isinf(), "is standardised to numbers that are infinite in float32")
    return Inputs(scaled, None)


def _streamed(x: Streamed, arithmetic: str, input_range: tuple[float, float] | None) -> Inputs:
    """As `prepare`: those of 8 bits are on the grid without being read, others are read once to see whether all of them are."""
    how = "grid" if arithmetic == "auto" and x.dtype == np.uint8 else arithmetic
    if x.dtype != np.uint8:
        levels = [prepare(one[None], arithmetic, input_range, number).levels for number, one in enumerate(x)]
        how = "float" if None in levels else "grid"

    def convert(one: np.ndarray) -> torch.Tensor:
        return prepare(one[None], how, input_range).values[0]

    divided = how == "float" and x.dtype == np.uint8
    return Inputs(StreamedTensor(x, convert), LEVELS if how == "grid" else None, divided)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Batch:
    """The inputs of one call and where they came from.

    `labels` [m]: true labels, or None. `index` [m]: the number of each input in its data set, which addresses its noise.
    `spec`: the data set's text form, or what kind of object was given; `sha256`: of inputs and labels as they were given.
    `selection`: how they were taken from the whole data set; `features`: the names of the columns of a table.
    """

    inputs: Inputs
    labels: np.ndarray | None
    index: np.ndarray
    spec: str
    sha256: str
    names: list[str] | None = None
    selection: Selection | None = None
    features: tuple[str, ...] | None = None

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
        features = None if self.features is None else list(self.features)
        return DataSection(
            self.spec, self.sha256, tuple(self.shape), num_classes, index, labels, self.names, self.selection, features
        )


def collect(
    x: Any, y: Any, index: Any, prepare_inputs: Callable[[Any], Inputs], num_classes: int | None = None
) -> Batch:
    """Read inputs from an array, a tensor, a data set object of torch, torchvision or Hugging Face, a torch loader of (x, y), or
    a data set of `vauban.data`.

    `y`: labels [m] that replace those of `x`; `index` likewise. `prepare_inputs` checks the values.
    """
    if isinstance(x, str | PathLike):
        raise BadInput(f"inputs {str(x)!r}: text is not read here; give vauban.data.load({str(x)!r}), or an array")
    spec, names, taken, features = type(x).__name__, None, None, None
    if hasattr(x, "images") and hasattr(x, "fingerprint"):
        spec, names, taken, features = x.name, *(getattr(x, key, None) for key in ("names", "taken", "features"))
        if not (y is None or np.array_equal(y, x.labels)) or not (index is None or np.array_equal(index, x.index)):
            taken = Selection(*(None, None) if taken is None else (taken.size, taken.sha256))
        y, index = x.labels if y is None else y, x.index if index is None else index
        x = x.images
    elif not isinstance(x, np.ndarray | torch.Tensor):
        x, found = of_object(x)
        y = found if y is None else y
    inputs = prepare_inputs(x)
    raw = x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else x if isinstance(x, Streamed) else np.asarray(x)
    count, given = len(inputs.values), y.detach().cpu().numpy() if isinstance(y, torch.Tensor) else y
    classes = num_classes if num_classes is not None else np.iinfo(np.int64).max
    labels = None if given is None else check_labels(given, count, classes, name="y")
    kept = None if names is None else [str(name) for name in names]
    numbers, sha256 = check_index(index, count), arrays_sha256(raw, labels)
    if taken is None:
        every_input = np.array_equal(numbers, np.arange(count))
        taken = Selection(count, sha256, every=1) if every_input else Selection()
    return Batch(inputs, labels, numbers, spec, sha256, kept, taken, features)


def of_object(x: Any) -> tuple[Any, Any]:
    """Inputs and labels of a data set object of another library; anything else as it is, without labels."""
    from vauban.objects import is_data_set, read_object

    return read_object(x) if is_data_set(x) else (x, None)


def _from_array(x: Any) -> torch.Tensor:
    array = np.asarray(x)
    if array.dtype.kind not in "uif":
        raise BadInput(_of_other_type(array.dtype, array.ndim, x))
    return torch.from_numpy(np.ascontiguousarray(array).copy())


def _of_other_type(kind: Any, axes: int, x: Any) -> str:
    """Why inputs x [m, ...] of this type are refused, in words; of a data frame the columns that hold no numbers are named."""
    if hasattr(x, "columns") and hasattr(x, "dtypes"):
        wrong = [
            f"{name!r} ({of})"
            for name, of in zip(x.columns, x.dtypes, strict=True)
            if getattr(of, "kind", "f") not in "uif"
        ]
        if wrong:
            return f"columns without numbers: {', '.join(wrong)}; leave them out, or write them as numbers"
        return "columns of types that NumPy does not have: give the table as floats, x.astype(float)"
    needed = (
        "uint8 numbers, or floats, are needed"
        if axes == 2
        else "uint8 pictures, or floats (pictures in [0,1]), are needed"
    )
    return f"inputs of type {kind}: {needed}"


def _refuse(bad: torch.Tensor, why: str, first: int = 0) -> None:
    rows = bad.flatten(1).any(dim=1)
    if bool(rows.any()):
        raise BadInput(f"input {first + int(rows.nonzero()[0])} {why}")


def kept_for(inputs: Any, time: int, kept: dict[Any, Any]) -> dict[Any, Any]:
    """The entries of a cache `kept` for these inputs (the same object) at the same `time`, empty for any others, which take their
    place. The cache holds no reference that keeps the inputs in memory."""
    if kept.get("time") != time or kept["of"]() is not inputs:
        kept |= {"time": time, "of": weakref.ref(inputs), "found": {}}
    found: dict[Any, Any] = kept["found"]
    return found
