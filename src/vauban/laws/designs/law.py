"""What exact laws over a designed list of outcomes share: the list, how coordinates go through it, and the radius."""

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
from vauban.laws.exact import ExactLaw, Ints, check_list, digest, offsets
from vauban.specs import Parameter, choose, natural

REPRESENTATIONS = ("upper_lower", "center", "center_center", "center_error")
COUPLINGS = ("cyclic", "global", "arbitrary")
_FINEST = 1023  # largest number of levels: the program has an unknown for each, and 8-bit pictures have 255
_LONGEST = 60  # characters of a number, and its largest exponent
_LARGEST = 2**27  # entries of a table of permutations


@dataclass(frozen=True)
class Outcomes:
    """The list of a law's views, as one coordinate sees it: `period` and `place` [views] as `grid_bins` takes them, in steps.

    Ablated outcomes have the period 1 and the place 1: no divider at all.
    """

    period: Ints
    place: Ints


class DesignLaw(ExactLaw):
    """A list of V = ceil(B * scale) outcomes: those of a design for `budget` B, then ablated ones. Every coordinate goes
    through all of it, so that values k steps apart are told apart in n(k) <= R g(k / levels) of the V views, R = B.

    An attack of size d, its sum of g, therefore changes at most R d views, and T tolerated ones allow every attack with
    R d < T + 1. [Levine2023] Theorem 4.3, C.3 and C.4. Below scale 1 the design is one for min(g / scale, 1), with R = B / scale
    and V = B. [Levine2023] C.1.3.1

    `coupling` says where view v finds coordinate i in the list. "cyclic": at (v + offset_i) mod V. "global": at v, its place
    moved by offset_i within the width, which all coordinates share ([Levine2023] C.2). "arbitrary": where a permutation of
    the coordinate's own puts v ([Levine2023] C.7). Offsets and permutations come from the seed `offsets`.
    """

    scale: Fraction
    offsets: int
    representation: str
    coupling: str
    budget: int

    @property
    @abstractmethod
    def metric(self) -> Metric:
        """What attacks are measured by."""

    def __post_init__(self) -> None:
        if not (isinstance(self.scale, Fraction) and self.scale > 0):
            raise BadInput(f"scale={self.scale}: a number above zero is needed, for example 18 or 2.5")
        choose("representation of a bin", self.representation, REPRESENTATIONS)
        choose("coupling of coordinates", self.coupling, COUPLINGS)
        if not 1 <= self.levels <= _FINEST:
            raise BadInput(
                f"levels={self.levels}: a grid of 1 to {_FINEST} steps is needed, and 8-bit pictures have 255"
            )
        if isinstance(self.budget, bool) or not isinstance(self.budget, int) or self.budget < 1:
            raise BadInput(f"budget={self.budget}: the list of outcomes needs one or more, for example 1000")
        check_list(self.views, self.offsets, "make budget or scale smaller")

    @property
    def rate(self) -> Fraction:
        """R: how many views an attack of size 1 may change."""
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
        """How much too seldom the design tells values apart, at worst, as a share of its budget."""
        return self.design.error(self.metric, self.rate)

    def outcomes(self) -> Outcomes:
        """The list: the places of a width in order, a width as often as the design has it, narrow ones first."""
        made = self.design
        widths = np.repeat(made.widths, made.times)
        period = np.ones(self.views, dtype=np.int64)
        place = np.ones(self.views, dtype=np.int64)
        used = int(widths.sum())
        period[:used] = np.repeat(widths, widths)
        place[:used] = np.arange(used) - np.repeat(np.cumsum(widths) - widths, widths)
        return Outcomes(period, place)

    def starts(self, shape: Sequence[int]) -> Ints:
        """The offset of each coordinate [...shape]: along the list ("cyclic"), or within a width ("global")."""
        return offsets(self.offsets, shape, self.views if self.coupling == "cyclic" else 2**30)

    def permutations(self, shape: Sequence[int]) -> Ints:
        """Where each view finds each coordinate in the list [views, coordinates], for "arbitrary"; always the same."""
        size = math.prod(shape)
        if self.views * size > _LARGEST:
            raise BadInput(
                f"coupling=arbitrary keeps a permutation of {self.views:,} views for each of {size:,} numbers, and "
                f"{_LARGEST:,} entries is the most: make the scale smaller or take coupling=cyclic"
            )
        source = np.random.Philox(key=self.offsets)
        table = np.empty((size, self.views), dtype=np.int32)
        for row in table:
            row[:] = np.argsort(source.random_raw(self.views), kind="stable")
        return table.T  # type: ignore[return-value]

    def listed(self, shape: Sequence[int]) -> str:
        own = digest(self.design.widths, self.design.times)
        if self.coupling != "arbitrary":
            return hashlib.sha256((own + digest(self.starts(shape))).encode()).hexdigest()
        table = np.ascontiguousarray(self.permutations(shape).T, dtype="<i4")
        return hashlib.sha256(own.encode() + hashlib.sha256(table.data).digest()).hexdigest()

    def kept(self) -> dict[str, Any]:
        return {"design": {str(width): times for width, times in self.design.weights}}

    def within(self, changed: ArrayLike) -> Floats:
        counts, where = np.unique(np.asarray(changed, dtype=np.int64), return_inverse=True)
        reach = np.array([_reach(self.metric, int(count), self.rate) for count in counts])
        return reach[where].reshape(np.shape(changed))


@lru_cache(maxsize=2**16)
def _reach(metric: Metric, changed: int, rate: Fraction) -> float:
    return metric.reach(changed, rate)


def fraction(value: Any) -> Fraction:
    """A number as it is written, exactly: 2.5 is 5/2 whether text or float."""
    if isinstance(value, Fraction):
        return value
    text = str(value)
    try:
        if len(text) > _LONGEST or abs(int([*text.lower().split("e"), "0"][1])) > _LONGEST:
            raise ValueError
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise BadInput(f"{text[:40]} is not a number such as 18, 2.5 or 1/2") from None


LISTED: dict[str, Parameter] = {
    "offsets": Parameter(natural, default=0),
    "representation": Parameter(str, default="upper_lower"),
    "coupling": Parameter(str, default="cyclic"),
    "budget": Parameter(natural, default=1000),
    "levels": Parameter(natural, default=255),
}
