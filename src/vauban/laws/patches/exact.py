"""Exact certificates against patches: every view that keeps bands or blocks votes. [Levine2023] chapter 6 and section E.4"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws.exact import Ballots, ExactLaw, Ints, format_views, leads, tolerated
from vauban.laws.law import register
from vauban.laws.patches import positions
from vauban.laws.patches.regions import Regions, bands, blocks, touched_by_side
from vauban.laws.patches.sampled import AXES, PatchLaw, positive_integer
from vauban.specs import Parameter, choose, natural
from vauban.validation import check_k, check_labels

BOUNDS = ("position", "margin")


def positive_fraction(text: str) -> float:
    """Read a number above 0 and at most 1."""
    value = float(text)
    if not 0 < value <= 1:
        raise BadInput(f"{text} is not above 0 and at most 1")
    return value


@dataclass(frozen=True)
class ExactPatchLaw(PatchLaw, ExactLaw):
    """Every view keeps one region, at the multiples of `stride`, wrapping around; or `count` > 1 of those aligned to a grid of
    step `size` from the upper left corner, cut off at the picture's edge so that none overlap. [Levine2023] section E.4

    With a `threshold` a view votes for every class whose probability reaches it: several, or none. There are two bounds.
    `margin`: the label must lead by twice Delta, the most views that a patch can touch ([Levine2023] Theorems 6.1 and 6.2,
    Delta counted by enumeration). `position`: for each position of the patch, untouched votes stay and touched ones may become
    anything (`positions.stays`). It is exact and never weaker: at any position the label keeps at least n_l - Delta votes, no
    rival has more untouched votes than votes, and at most Delta are touched.
    """

    size: int
    stride: int = 1
    count: int = 1
    threshold: float | None = None
    bound: str = "position"
    height: int | None = None
    width: int | None = None
    levels: int = 255
    parameters: ClassVar[dict[str, Parameter]] = {
        "size": Parameter(positive_integer, required=True, example="4"),
        "stride": Parameter(positive_integer, default=1),
        "count": Parameter(positive_integer, default=1),
        "threshold": Parameter(positive_fraction),
        "bound": Parameter(str, default="position"),
        "height": Parameter(positive_integer),
        "width": Parameter(positive_integer),
        "levels": Parameter(natural, default=255),
    }

    def __post_init__(self) -> None:
        choose(f"bound of {self.name}", self.bound, BOUNDS)
        self._check(count=self.count, levels=self.levels)
        if self.threshold is not None and not 0 < self.threshold <= 1:
            raise BadInput(f"threshold={self.threshold}: a number above 0 and at most 1 is needed, for example 0.3")
        if self.count > 1 and self.stride != 1:
            raise BadInput(
                f"stride={self.stride} with count={self.count}: several {self.name}s are aligned to a grid of step "
                f"size={self.size}; leave the stride out"
            )
        if self.height is not None and self.width is not None:
            if self.count > self.regions.count:
                raise BadInput(
                    f"count={self.count}: the picture has only {self.regions.count} {self.name}s to choose from"
                )
            if self.views > positions.MAX_VIEWS:
                raise BadInput(
                    f"{self.spec} has {format_views(self.views)} views and at most {positions.MAX_VIEWS:,} are supported: "
                    "choose a larger " + ("stride" if self.count == 1 else "size or a smaller count")
                )

    @property
    def sets(self) -> bool:
        """Whether a view votes for a set of classes, which may be empty."""
        return self.threshold is not None

    @property
    def counts_suffice(self) -> bool:
        """Whether counts suffice: the margin bound needs only counts, the position bound every vote."""
        return self.bound == "margin"

    @property
    def views(self) -> int:
        """The number of regions, or of ways to choose `count` of them."""
        return math.comb(self.regions.count, self.count)

    def touched(self, patch: tuple[int, int], corners: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Which views [n, views] a patch of this height and width touches with its upper left corner (top, left) at each of
        `corners` [n, 2]; by default at every position inside the picture, row by row."""
        height, width = self._inside(patch)
        if corners is None:
            grid = np.indices((self.regions.height - height + 1, self.regions.width - width + 1))
            corners = grid.reshape(2, -1).T
        return positions.touched_views(self.regions.touched(corners, (height, width)), self.count)

    def most_touched(self, patch: tuple[int, int]) -> int:
        """Delta: the most views that a patch of this height and width can touch.

        >>> ExactBandLaw(19, stride=10).for_shape((3, 224, 224)).most_touched((32, 32))
        6
        """
        return self._views_keeping(self.regions.most_touched(self._inside(patch)))

    def radius_tolerating(self, changed: ArrayLike) -> Floats:
        """The largest side of a square that touches no more than `changed` views."""
        deltas = [self._views_keeping(int(touched)) for touched in touched_by_side(self.regions)]
        return (np.searchsorted(deltas, np.asarray(changed), side="right") - 1).astype(float)

    def stands(self, ballots: Ballots, labels: ArrayLike, k: int = 1, *, patch: tuple[int, int]) -> NDArray[np.bool_]:
        """Whether each label [m] stays in the top k whatever happens within any rectangle of this height and width.

        A rectangle larger than the picture is cut off at its edges; for one without pixels, whether the label is there now.
        """
        label = self._check_votes(ballots, labels, k)
        if self.bound == "margin":
            return self._tolerated(ballots.counts, label, k) >= self.most_touched(patch)
        return positions.stands(ballots, label, k, self.regions, self.count, self._inside(patch))

    def radius(self, ballots: Ballots, labels: ArrayLike, k: int = 1) -> Floats:
        """Side [m] of the largest square that cannot push the label out of the top k, 0 where one pixel can; NaN where the
        label is not there now. Found by bisection: a certified square certifies every smaller one inside it."""
        label = self._check_votes(ballots, labels, k)
        if self.bound == "margin":
            return self._by_margin(ballots.counts, label, k)
        return self._by_position(ballots, label, k)

    def radii(self, ballots: Ballots, labels: ArrayLike, k: int = 1) -> dict[str, Floats]:
        """The radii [m] of both bounds, by the name of the bound; those of `position` are nowhere smaller."""
        return {bound: replace(self, bound=bound).radius(ballots, labels, k) for bound in BOUNDS}

    def radius_of_counts(self, counts: ArrayLike, labels: ArrayLike, k: int = 1) -> Floats:
        """As `radius`, from counts [m, classes], by the margin bound; with a threshold a row may have any number of votes."""
        if not self.counts_suffice:
            raise BadInput(
                f"{self.spec} is certified position by position, which needs every view's vote: give the ballots instead of "
                "counts, or write bound=margin"
            )
        table, label = np.asarray(counts), np.asarray(labels)
        if self.sets and ((table < 0) | (table > self.views)).any():
            row = int(np.argmax(((table < 0) | (table > self.views)).any(axis=1)))
            raise BadInput(
                f"row {row} gives a class more votes than the {self.views} views of {self.spec}, or fewer than none"
            )
        return self._by_margin(table, label, k) if self.sets else super().radius_of_counts(table, label, k)

    def largest_radius(self, k: int, num_classes: int) -> float:
        if not self.sets:
            return super().largest_radius(k, num_classes)
        votes = np.zeros((1, self.views, num_classes), dtype=bool)
        votes[:, :, 0] = True
        return float(self.radius(Ballots(votes, num_classes), np.array([0]), k)[0])

    def _inside(self, patch: tuple[int, int]) -> tuple[int, int]:
        """The patch, cut off at the picture's edges."""
        if not all(isinstance(side, int | np.integer) and side >= 0 for side in patch):
            raise BadInput(
                f"a patch of {patch[0]} x {patch[1]}: its height and width are whole numbers of pixels, 0 or more"
            )
        return min(int(patch[0]), self.regions.height), min(int(patch[1]), self.regions.width)

    def _views_keeping(self, touched: int) -> int:
        """How many views keep at least one of `touched` regions."""
        return self.views - math.comb(self.regions.count - touched, self.count)

    def _tolerated(self, counts: Ints, labels: Ints, k: int) -> Ints:
        """The most touched views [m] that the margin bound allows, -1 where the label is not in the top k.

        With sets: the label loses T and every rival may gain T, so the k-th smallest of `leads` must exceed 2 T.
        """
        if not self.sets:
            return tolerated(counts, labels, k)
        nearest = np.partition(leads(counts, labels), k - 1, axis=1)[:, k - 1]
        return np.maximum((nearest - 1) // 2, -1)

    def _by_margin(self, counts: Ints, labels: Ints, k: int) -> Floats:
        changed = self._tolerated(counts, labels, k)
        return np.where(changed >= 0, self.radius_tolerating(np.maximum(changed, 0)), np.nan)

    def _by_position(self, ballots: Ballots, labels: Ints, k: int) -> Floats:
        low = np.full(len(ballots), -1)
        high = np.full(len(ballots), max(self.regions.height, self.regions.width) + 1)
        while (open_ := high - low > 1).any():
            middle = (low + high) // 2
            for side in np.unique(middle[open_]):
                rows = np.flatnonzero(open_ & (middle == side))
                same_side = Ballots(ballots.votes[rows], ballots.num_classes)
                patch = self.regions.square(int(side))
                stand = positions.stands(same_side, labels[rows], k, self.regions, self.count, patch)
                low[rows], high[rows] = np.where(stand, side, low[rows]), np.where(stand, high[rows], side)
        return np.where(low >= 0, low, np.nan)

    def _check_votes(self, ballots: Ballots, labels: ArrayLike, k: int) -> Ints:
        """The labels as integers; refuses ballots, labels or k that do not fit this law."""
        votes, classes = ballots.votes, ballots.num_classes
        if ballots.sets != self.sets:
            given, needed = (
                ("sets of classes", "one vote per view") if ballots.sets else ("one vote per view", "sets of classes")
            )
            raise BadInput(
                f"ballots hold {given} and {self.spec} needs {needed}: give the threshold they were cast with"
            )
        if votes.shape[1] != self.views:
            raise BadInput(
                f"ballots of {votes.shape[1]} views: {self.spec} has {self.views}, and exact claims need a vote of each"
            )
        check_k(k, classes)
        if not ballots.sets and votes.size and not 0 <= votes.min() <= votes.max() < classes:
            raise BadInput(f"a vote is outside the classes 0..{classes - 1}")
        return check_labels(np.asarray(labels, dtype=np.int64), len(ballots), classes)


@register
@dataclass(frozen=True)
class ExactBandLaw(ExactPatchLaw):
    """Views keep `size` neighbouring columns (or rows: `axis`). [Levine2023] Theorem 6.2

    >>> law = ExactBandLaw(4).for_shape((3, 32, 32))
    >>> law.views, law.radius_tolerating([8])
    (32, array([5.]))
    """

    axis: str = "column"
    name: ClassVar[str] = "band"
    parameters: ClassVar[dict[str, Parameter]] = {
        **ExactPatchLaw.parameters,
        "axis": Parameter(str, default="column"),
    }

    def __post_init__(self) -> None:
        choose("axis of bands", self.axis, AXES)
        super().__post_init__()

    def _regions(self, height: int, width: int) -> Regions:
        step = self.size if self.count > 1 else self.stride
        return bands(height, width, self.size, self.axis, step, wraps=self.count == 1)


@register
@dataclass(frozen=True)
class ExactBlockLaw(ExactPatchLaw):
    """Views keep squares of `size` x `size` pixels. [Levine2023] Theorem 6.1

    >>> ExactBlockLaw(4, count=2).for_shape((1, 28, 28)).views
    1176
    """

    name: ClassVar[str] = "block"

    def _regions(self, height: int, width: int) -> Regions:
        step = self.size if self.count > 1 else self.stride
        return blocks(height, width, self.size, step, wraps=self.count == 1)
