"""One band or block kept, all else hidden, against patch attacks; and which kept regions a patch meets. [Levine2023] chapter 6"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.bounds.clopper_pearson import Floats
from vauban.certificates.law import Law
from vauban.certificates.rounding import BITS
from vauban.certificates.uniform import lowered, raised
from vauban.errors import BadInput
from vauban.specs import Parameter, choose, flag
from vauban.threats import PATCH, Threat

AXES = ("column", "row")

_UP = 1 + 2.0**-50  # more than the rounding of a quotient can lose


def whole(text: str) -> int:
    """Read a whole number above zero."""
    value = int(text)
    if value < 1:
        raise BadInput(f"{text} is not a whole number above zero")
    return value


def meets(starts: ArrayLike, size: int, length: int, places: ArrayLike, extent: int) -> NDArray[np.bool_]:
    """Along one axis: which kept runs [n] a patch at each place [...] meets, [..., n].

    A run keeps `size` pixels from its start on and wraps around at `length`; a patch covers `extent` pixels from its place
    on and does not. The patch begins `offset` pixels after the start, going round: it meets the run there, or at its next turn.
    """
    offset = (np.asarray(places)[..., None] - np.asarray(starts)) % length
    return (extent > 0) & ((offset < size) | (offset + extent > length))


@dataclass(frozen=True)
class Regions:
    """All regions a view may keep: `rows` x `columns` pixels from (top, left) on, wrapping around both ways.

    Tops are the multiples of `row_stride` below `height`, lefts those of `column_stride` below `width`.
    """

    height: int
    width: int
    rows: int
    columns: int
    row_stride: int
    column_stride: int

    @property
    def tops(self) -> NDArray[np.int64]:
        return np.arange(0, self.height, self.row_stride)

    @property
    def lefts(self) -> NDArray[np.int64]:
        return np.arange(0, self.width, self.column_stride)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.tops) * len(self.lefts)

    @property
    def positions(self) -> NDArray[np.int64]:
        """(top, left) of every region [count, 2], row by row: number i is at (tops[i // len(lefts)], lefts[i % len(lefts)])."""
        return np.stack(np.meshgrid(self.tops, self.lefts, indexing="ij"), axis=-1).reshape(-1, 2)

    def touched(self, places: ArrayLike, patch: tuple[int, int]) -> NDArray[np.bool_]:
        """Which regions a patch of `patch` (height, width) at each of `places` [k, 2] (top, left) meets, [k, count]."""
        where = np.asarray(places)
        by_row = meets(self.tops, self.rows, self.height, where[:, 0], patch[0])
        by_column = meets(self.lefts, self.columns, self.width, where[:, 1], patch[1])
        return (by_row[:, :, None] & by_column[:, None, :]).reshape(len(where), -1)

    def touched_counts(self, patch: tuple[int, int]) -> NDArray[np.int64]:
        """How many regions a patch of this height and width meets, at every place inside the picture [tops, lefts]."""
        return np.multiply.outer(*self._counts(patch))

    def most_touched(self, patch: tuple[int, int]) -> int:
        """The most regions that a patch of this height and width can meet: the two axes are independent.

        >>> [Regions(224, 224, 224, 19, 224, stride).most_touched((32, 32)) for stride in (10, 5)]
        [6, 11]
        """
        by_row, by_column = self._counts(patch)
        return int(by_row.max()) * int(by_column.max())

    def _counts(self, patch: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        down, right = np.arange(self.height - patch[0] + 1), np.arange(self.width - patch[1] + 1)
        return (
            meets(self.tops, self.rows, self.height, down, patch[0]).sum(axis=1),
            meets(self.lefts, self.columns, self.width, right, patch[1]).sum(axis=1),
        )


@lru_cache(maxsize=64)
def touched_by_side(regions: Regions) -> NDArray[np.int64]:
    """The most regions that a change within an m x m square can meet, for m = 0 up to the picture's longer side.

    A square larger than the picture one way is cut off there, and covers it from edge to edge.
    """
    longest = max(regions.height, regions.width)
    squares = [(min(m, regions.height), min(m, regions.width)) for m in range(longest + 1)]
    return np.array([regions.most_touched(square) for square in squares])


@dataclass(frozen=True)
class KeptRegionLaw(Law):
    """Keeps one region at a random position: U = min(1, p + Delta(m)), L = max(0, p - Delta(m)). [Levine2023] section 6.2.2

    Delta(m) is the share of positions whose region an m x m patch can meet, counted one by one: the view of any other position
    is the same before and after the attack. (Equations 6.1 and 6.2 are its values at stride 1, where they are at most 1.)
    """

    size: int
    sampled: bool = False
    stride: int = 1
    height: int | None = None
    width: int | None = None
    parameters: ClassVar[dict[str, Parameter]] = {
        "size": Parameter(whole, required=True, example="4"),
        "sampled": Parameter(flag, default=False, example="true"),
        "stride": Parameter(whole, default=1),
        "height": Parameter(whole),
        "width": Parameter(whole),
    }

    @abstractmethod
    def _regions(self, height: int, width: int) -> Regions:
        """The regions of a picture of this size."""

    def __post_init__(self) -> None:
        numbers = {"size": self.size, "stride": self.stride, "height": self.height, "width": self.width}
        for key, value in numbers.items():
            if value is not None and not (isinstance(value, int) and value > 0):
                raise BadInput(f"{key}={value}: a whole number of pixels above zero is needed")
        if not self.sampled:
            raise BadInput(
                f"{self.name} without sampled=true is the exact form, which is not here yet: "
                f"write {self.name}:size={self.size},sampled=true"
            )
        if self.height is not None and self.width is not None:
            kept = self._regions(self.height, self.width)
            if kept.rows > kept.height or kept.columns > kept.width:
                raise BadInput(
                    f"size={self.size} in pictures of {self.height} x {self.width}: a {self.name} must fit into the picture"
                )

    @property
    def threat(self) -> Threat:
        return PATCH

    @property
    def regions(self) -> Regions:
        """Where the kept region may lie."""
        if self.height is None or self.width is None:
            raise BadInput(f"{self.spec} depends on the size of pictures: give it, for example height=32,width=32")
        return self._regions(self.height, self.width)

    def for_shape(self, shape: Sequence[int]) -> Self:
        if len(shape) != 3:
            raise BadInput(f"inputs of shape {list(shape)}: {self.name} needs pictures [channels, height, width]")
        for key, given, there in (("height", self.height, shape[1]), ("width", self.width, shape[2])):
            if given not in (None, there):
                raise BadInput(f"{key}={given} for pictures of {shape[1]} x {shape[2]}: leave it out")
        return replace(self, height=int(shape[1]), width=int(shape[2]))

    def most(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return raised(p, self._share(r))

    def least(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return lowered(p, self._share(r))

    def _share(self, r: ArrayLike) -> Floats:
        """Delta(r), never too small."""
        side = np.ceil(np.clip(r, 0, self.farthest)).astype(np.int64)
        return touched_by_side(self.regions)[side] * (_UP / self.regions.count)

    @property
    def scale(self) -> float:
        return 1.0

    @property
    def farthest(self) -> float:
        return float(max(self.regions.height, self.regions.width))

    def deviation(self, shape: Sequence[int], levels: int | None) -> float:
        """A position is a word modulo their number n: with 2^63 = q n + e, e positions have one word more than the others,
        which is e (n - e) / (n 2^63) in total variation."""
        count = self.for_shape(shape).regions.count
        extra = 2**BITS % count
        exact = Fraction(extra * (count - extra), count * 2**BITS)
        return math.nextafter(float(exact), math.inf) if extra else 0.0


@dataclass(frozen=True)
class BandLaw(KeptRegionLaw):
    """Keeps `size` columns next to each other (or rows: `axis`). [Levine2023] Theorem 6.2, sampled as in section E.5

    >>> BandLaw(4, sampled=True).for_shape((3, 32, 32)).most(0.0, [1, 5])
    array([0.125, 0.25 ])
    """

    axis: str = "column"
    name: ClassVar[str] = "band"
    parameters: ClassVar[dict[str, Parameter]] = {
        **KeptRegionLaw.parameters,
        "axis": Parameter(str, default="column"),
    }

    def __post_init__(self) -> None:
        choose("axis of bands", self.axis, AXES)
        super().__post_init__()

    def _regions(self, height: int, width: int) -> Regions:
        if self.axis == "column":
            return Regions(height, width, height, self.size, height, self.stride)
        return Regions(height, width, self.size, width, self.stride, width)


@dataclass(frozen=True)
class BlockLaw(KeptRegionLaw):
    """Keeps a square of `size` x `size` pixels. [Levine2023] Theorem 6.1, sampled as in section E.5

    >>> BlockLaw(10, sampled=True).for_shape((3, 32, 32)).regions.count
    1024
    """

    name: ClassVar[str] = "block"

    def _regions(self, height: int, width: int) -> Regions:
        return Regions(height, width, self.size, self.size, self.stride, self.stride)
