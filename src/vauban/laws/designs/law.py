"""Base class of exact laws over a design: the list of outcomes, the coupling of coordinates, and the radius."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws.designs.design import Design, design
from vauban.laws.designs.metrics import Metric
from vauban.laws.exact import ExactLaw, Ints, check_view_list, digest, offsets_of
from vauban.specs import Parameter, choose, natural

REPRESENTATIONS = ("upper_lower", "center", "center_center", "center_error")
COUPLINGS = ("cyclic", "global", "arbitrary")
_MAX_LEVELS = 1023  # the integer program has one unknown per level; 8-bit pictures have 255
_MAX_DIGITS = 60  # characters of a number, and its largest exponent
_MAX_ENTRIES = 2**27  # entries of a table of permutations


@dataclass(frozen=True)
class Outcomes:
    """The outcome of one coordinate in each view: `period` and `divider` [views], in steps, are arguments of `grid_bins`.

    Ablated outcomes have period 1 and divider 1: no divider at all.
    """

    period: Ints
    divider: Ints


class DesignLaw(ExactLaw):
    """A list of V = ceil(B * scale) outcomes: those of a design for `budget` B, then ablated ones. Every coordinate has each
    outcome in exactly one view, so values k steps apart are separated in n(k) <= R g(k / levels) of the V views, R = B.

    An attack of size d (its sum of g) therefore changes at most R d views, and T tolerated views allow every attack with
    R d < T + 1. [Levine2023] Theorem 4.3, C.3 and C.4. Below scale 1 the design is one for min(g / scale, 1), with R = B / scale
    and V = B. [Levine2023] C.1.3.1

    `coupling` says which outcome coordinate i has in view v. "cyclic": (v + offset_i) mod V. "global": v, its divider moved by
    offset_i within the width, which all coordinates share ([Levine2023] C.2). "arbitrary": the one to which the coordinate's
    own permutation maps v ([Levine2023] C.7). Offsets and permutations come from the seed `offsets`; cyclic ones may have a
    `layout` (`offsets_of`).
    """

    scale: Fraction
    offsets: int
    representation: str
    coupling: str
    budget: int
    layout: str

    @property
    @abstractmethod
    def metric(self) -> Metric:
        """The metric that measures attacks."""

    def __post_init__(self) -> None:
        if not (isinstance(self.scale, Fraction) and self.scale > 0):
            raise BadInput(f"scale={self.scale}: a number above zero is needed, for example 18 or 2.5")
        choose("representation of a bin", self.representation, REPRESENTATIONS)
        choose("coupling of coordinates", self.coupling, COUPLINGS)
        if not 1 <= self.levels <= _MAX_LEVELS:
            raise BadInput(
                f"levels={self.levels}: a grid of 1 to {_MAX_LEVELS} steps is needed, and 8-bit pictures have 255"
            )
        if isinstance(self.budget, bool) or not isinstance(self.budget, int) or self.budget < 1:
            raise BadInput(f"budget={self.budget}: the list of outcomes needs one or more, for example 1000")
        check_view_list(self.views, self.offsets, self.layout, "make budget or scale smaller")
        if self.layout != "random" and self.coupling != "cyclic":
            raise BadInput(f"layout={self.layout}: it lays out the offsets of coupling=cyclic, not of {self.coupling}")

    @property
    def rate(self) -> Fraction:
        """R: the number of views that an attack of size 1 may change."""
        return self.budget / min(self.scale, Fraction(1))

    @property
    def views(self) -> int:
        return math.ceil(self.budget * max(self.scale, Fraction(1)))

    @property
    def design(self) -> Design:
        """How often each width is used; checked against the metric in exact integers."""
        return design(self.metric, self.levels, self.budget, self.rate)

    @property
    def error(self) -> float:
        """How far the design falls short of the metric, at worst, as a fraction of its budget."""
        return self.design.error(self.metric, self.rate)

    def outcomes(self) -> Outcomes:
        """The list: each width as often as the design has it, narrow ones first, its divider positions in order."""
        widths = np.repeat(self.design.widths, self.design.times)
        period = np.ones(self.views, dtype=np.int64)
        divider = np.ones(self.views, dtype=np.int64)
        used = self._shown
        period[:used] = np.repeat(widths, widths)
        divider[:used] = np.arange(used) - np.repeat(np.cumsum(widths) - widths, widths)
        return Outcomes(period, divider)

    def starts(self, shape: Sequence[int]) -> Ints:
        """The offset of each coordinate [...shape]: along the list ("cyclic"), or within a width ("global")."""
        if self.coupling != "cyclic":
            return offsets_of("random", self.offsets, shape, 2**30, 0)
        return offsets_of(self.layout, self.offsets, shape, self.views, self._shown)

    @property
    def _shown(self) -> int:
        """The number of outcomes that are not ablated: they come first."""
        return int((self.design.widths * self.design.times).sum())

    def permutations(self, shape: Sequence[int]) -> Ints:
        """For "arbitrary": the outcome of each coordinate in each view [views, coordinates]; always the same."""
        size = math.prod(shape)
        if self.views * size > _MAX_ENTRIES:
            raise BadInput(
                f"coupling=arbitrary needs a permutation of {self.views:,} views for each of {size:,} numbers, and "
                f"{_MAX_ENTRIES:,} entries is the most: make the scale smaller or take coupling=cyclic"
            )
        source = np.random.Philox(key=self.offsets)
        table = np.empty((size, self.views), dtype=np.int32)
        for row in table:
            row[:] = np.argsort(source.random_raw(self.views), kind="stable")
        return table.T  # type: ignore[return-value]

    def views_hash(self, shape: Sequence[int]) -> str:
        of_design = digest(self.design.widths, self.design.times)
        if self.coupling != "arbitrary":
            return hashlib.sha256((of_design + digest(self.starts(shape))).encode()).hexdigest()
        table = np.ascontiguousarray(self.permutations(shape).T, dtype="<i4")
        return hashlib.sha256(of_design.encode() + hashlib.sha256(table.data).digest()).hexdigest()

    def manifest_fields(self) -> dict[str, Any]:
        return {"design": {str(width): times for width, times in self.design.weights}}

    def radius_tolerating(self, changed: ArrayLike) -> Floats:
        counts, inverse = np.unique(np.asarray(changed, dtype=np.int64), return_inverse=True)
        radii = np.array([_radius_tolerating(self.metric, int(count), self.rate) for count in counts])
        return radii[inverse].reshape(np.shape(changed))


@lru_cache(maxsize=2**16)
def _radius_tolerating(metric: Metric, changed: int, rate: Fraction) -> float:
    return metric.radius_tolerating(changed, rate)


def fraction(value: Any) -> Fraction:
    """The exact decimal number that is written: 2.5 is 5/2 as text and as float."""
    if isinstance(value, Fraction):
        return value
    text = str(value)
    try:
        if len(text) > _MAX_DIGITS or abs(int([*text.lower().split("e"), "0"][1])) > _MAX_DIGITS:
            raise ValueError
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise BadInput(f"{text[:40]} is not a number such as 18, 2.5 or 1/2") from None


LIST_PARAMETERS: dict[str, Parameter] = {
    "offsets": Parameter(natural, default=0),
    "representation": Parameter(str, default="upper_lower"),
    "coupling": Parameter(str, default="cyclic"),
    "budget": Parameter(natural, default=1000),
    "levels": Parameter(natural, default=255),
    "layout": Parameter(str, default="random", example="lattice"),
}
