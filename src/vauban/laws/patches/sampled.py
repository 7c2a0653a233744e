"""Views that keep one band or block at a random position, against patch attacks. [Levine2023] chapter 6"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws.law import AnyLaw, Law, register
from vauban.laws.patches.regions import Regions, bands, blocks, touched_by_side
from vauban.laws.rounded_noise import BITS
from vauban.laws.uniform import shifted_down, shifted_up
from vauban.numerics import UP
from vauban.specs import Parameter, choose, flag
from vauban.threats import PATCH, Threat

AXES = ("column", "row")


def positive_integer(text: str) -> int:
    """Read a whole number above zero."""
    value = int(text)
    if value < 1:
        raise BadInput(f"{text} is not a whole number above zero")
    return value


class PatchLaw(AnyLaw):
    """Base of laws whose views keep regions of a picture; a subclass is a dataclass with these fields."""

    size: int
    stride: int
    height: int | None
    width: int | None

    @abstractmethod
    def _regions(self, height: int, width: int) -> Regions:
        """The regions of a picture of this size."""

    def _check(self, **more: int) -> None:
        """Refuse numbers that are not whole and above zero, and regions that do not fit into the picture."""
        numbers = {"size": self.size, "stride": self.stride, "height": self.height, "width": self.width, **more}
        for key, value in numbers.items():
            if value is not None and not (isinstance(value, int) and value > 0):
                raise BadInput(f"{key}={value}: a whole number above zero is needed")
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
        """All regions that a view may keep."""
        if self.height is None or self.width is None:
            raise BadInput(f"{self.spec} depends on the size of pictures: give it, for example height=32,width=32")
        return self._regions(self.height, self.width)

    def for_shape(self, shape: Sequence[int]) -> Self:
        if len(shape) != 3:
            raise BadInput(f"inputs of shape {list(shape)}: {self.name} needs pictures [channels, height, width]")
        for key, given, actual in (("height", self.height, shape[1]), ("width", self.width, shape[2])):
            if given not in (None, actual):
                raise BadInput(f"{key}={given} for pictures of {shape[1]} x {shape[2]}: leave it out")
        return replace(self, height=int(shape[1]), width=int(shape[2]))  # type: ignore[type-var]


@dataclass(frozen=True)
class KeptRegionLaw(PatchLaw, Law):
    """Keeps one region at a random position: U = min(1, p + Delta(m)), L = max(0, p - Delta(m)). [Levine2023] section 6.2.2

    Delta(m) is the largest fraction of positions whose region one m x m patch can touch, counted by enumeration: the view of any
    other position is the same before and after the attack. (Equations 6.1 and 6.2 give its values at stride 1, as
    long as these are at most 1.)
    """

    size: int
    sampled: bool = True
    stride: int = 1
    height: int | None = None
    width: int | None = None
    parameters: ClassVar[dict[str, Parameter]] = {
        "size": Parameter(positive_integer, required=True, example="4"),
        "sampled": Parameter(flag, default=False, example="true"),
        "stride": Parameter(positive_integer, default=1),
        "height": Parameter(positive_integer),
        "width": Parameter(positive_integer),
    }

    def __post_init__(self) -> None:
        self._check()
        if not self.sampled:
            raise BadInput("this is the sampled form; vauban.laws.patches.exact has the exact one")

    def most(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return shifted_up(p, self._delta(r))

    def least(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return shifted_down(p, self._delta(r))

    def _delta(self, r: ArrayLike) -> Floats:
        """Delta(r), rounded up."""
        side = np.ceil(np.clip(r, 0, self.max_distance)).astype(np.int64)
        return touched_by_side(self.regions)[side] * (UP / self.regions.count)

    @property
    def scale(self) -> float:
        return 1.0

    @property
    def max_distance(self) -> float:
        return float(max(self.regions.height, self.regions.width))

    def deviation(self, shape: Sequence[int], levels: int | None) -> float:
        """A position is a word modulo their number n: with 2^63 = q n + e, e positions have one word more than the others,
        which is e (n - e) / (n 2^63) in total variation."""
        count = self.for_shape(shape).regions.count
        extra = 2**BITS % count
        exact = Fraction(extra * (count - extra), count * 2**BITS)
        return math.nextafter(float(exact), math.inf) if extra else 0.0


@register
@dataclass(frozen=True)
class BandLaw(KeptRegionLaw):
    """Keeps `size` neighbouring columns (or rows: `axis`). [Levine2023] Theorem 6.2, sampled as in section E.5

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
        return bands(height, width, self.size, self.axis, self.stride)


@register
@dataclass(frozen=True)
class BlockLaw(KeptRegionLaw):
    """Keeps a square of `size` x `size` pixels. [Levine2023] Theorem 6.1, sampled as in section E.5

    >>> BlockLaw(10, sampled=True).for_shape((3, 32, 32)).regions.count
    1024
    """

    name: ClassVar[str] = "block"

    def _regions(self, height: int, width: int) -> Regions:
        return blocks(height, width, self.size, self.stride)
