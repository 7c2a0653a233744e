"""Exact certificates: every view votes, and what an attack can do is counted in views. [Levine2023] chapters 3, 4 and 6"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.bounds.clopper_pearson import Floats
from vauban.certificates.law import AnyLaw
from vauban.errors import BadInput
from vauban.specs import Parameter, Spec, flag, read_params

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Ballots:
    """The vote of every view of m inputs, in order.

    `votes`: classes [m, views] where each view casts one vote; bool [m, views, classes] where it votes for a set of them.
    """

    votes: NDArray[np.integer] | NDArray[np.bool_]
    num_classes: int

    @property
    def sets(self) -> bool:
        """Whether a view may vote for several classes, or none."""
        return self.votes.ndim == 3

    @property
    def counts(self) -> Ints:
        """Votes per class [m, classes]."""
        if self.sets:
            return self.votes.sum(axis=1, dtype=np.int64)
        rows = np.arange(len(self.votes))[:, None] * self.num_classes
        flat = np.bincount((rows + self.votes).ravel(), minlength=len(self.votes) * self.num_classes)
        return flat.reshape(-1, self.num_classes).astype(np.int64)

    @property
    def winners(self) -> Ints:
        """The class with the most votes [m], the smallest of equals: what the smoothed classifier answers."""
        return self.counts.argmax(axis=1)

    def __len__(self) -> int:
        return len(self.votes)


class ExactLaw(AnyLaw):
    """A finite list of views, every one of them voted on: what they prove is exact, and holds for grid points only.

    Number j of the list is the view that `Smoothing.views` makes of the word j; `levels` is the grid's number of steps.
    """

    exact: ClassVar[bool] = True
    levels: int

    @property
    def counts_suffice(self) -> bool:
        """Whether claims can be made from counts, without the order of votes."""
        return True

    @property
    @abstractmethod
    def views(self) -> int:
        """How many views an input has; a law that depends on the input's shape must have been given it (`for_shape`)."""

    @classmethod
    def from_spec(cls, spec: Spec) -> Self:
        """Build the law from its text form; sampled=false says what is so anyway."""
        values = read_params(spec, {**cls.parameters, "sampled": Parameter(flag, default=False)})
        if values.pop("sampled"):
            raise BadInput(f"{cls.name} has no sampled form: leave sampled=true out")
        return cls(**values)

    def listed(self, shape: Sequence[int]) -> str:
        """A hash of whatever the list of views of such inputs is made from, beyond the spec: offsets, a design."""
        return ""

    @abstractmethod
    def within(self, changed: ArrayLike) -> Floats:
        """The largest radius, rounded down, within which no attack changes more than `changed` [m] of the views, 0 or more."""

    def radius(self, ballots: Ballots, labels: ArrayLike, k: int = 1) -> Floats:
        """How far [m] each label stays among the top k, whatever attacked views vote; NaN where it is not there to begin with."""
        return self.radius_of_counts(ballots.counts, labels, k)

    def radius_of_counts(self, counts: ArrayLike, labels: ArrayLike, k: int = 1) -> Floats:
        """As `radius`, from the counts [m, classes] of one vote per view."""
        table = np.asarray(counts)
        totals = table.sum(axis=1)
        if (totals != self.views).any():
            row = int(np.argmax(totals != self.views))
            raise BadInput(
                f"row {row} holds {totals[row]} votes: {self.spec} has {self.views} views, and exact claims need a vote of each"
            )
        changed = tolerated(table, labels, k)
        return np.where(changed >= 0, self.within(np.maximum(changed, 0)), np.nan)

    def largest_radius(self, k: int, num_classes: int) -> float:
        """The radius of an input on which all views agree on the class that ties favour: no input has a larger one."""
        unanimous = Ballots(np.zeros((1, self.views), dtype=np.int64), num_classes)
        return float(self.radius(unanimous, np.array([0]), k)[0])


def needed(counts: Ints, labels: Ints, lost: Ints | int = 0) -> Ints:
    """Votes [m, classes] each rival needs to get ahead of the label once that has lost `lost` [m]; ties to the smaller index.

    The label's own column is larger than any count, so that it is never among the least.
    """
    rows, classes = np.arange(len(counts)), counts.shape[1]
    kept = np.maximum(counts[rows, labels] - lost, 0)
    behind = kept[:, None] + (np.arange(classes)[None, :] > labels[:, None]) - counts
    short = np.maximum(behind, 0)
    short[rows, labels] = np.iinfo(np.int64).max // (classes + 1)
    return short


def tolerated(counts: ArrayLike, labels: ArrayLike, k: int = 1) -> Ints:
    """The largest T [m] such that the label stays in the top k whichever T views vote anew; -1 where it is not in the top k.

    One vote per view. T changed votes take at most T from the label and give T to rivals: the label stays if the k rivals
    that need least (`needed`) need more than T together. For k = 1: floor((n_l - max(n_j + [j < l])) / 2). Exact as long as
    the label has T votes to lose. [Levine2023] Theorem 3.2 with its tie rule
    """
    table, which = np.asarray(counts, dtype=np.int64), np.asarray(labels, dtype=np.int64)
    if k >= table.shape[1]:
        raise BadInput(f"k={k} of {table.shape[1]} classes: k must be at least 1 and below the number of classes")

    def stays(changed: Ints) -> NDArray[np.bool_]:
        least = np.partition(needed(table, which, changed), k - 1, axis=1)[:, :k]
        return least.sum(axis=1) > changed

    low, high = np.full(len(table), -1, dtype=np.int64), table.sum(axis=1) + 1
    while (high - low > 1).any():
        middle = np.where(high - low > 1, (low + high) // 2, low)
        inside = stays(np.maximum(middle, 0)) | (middle < 0)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return low


def offsets(seed: int, shape: Sequence[int], count: int) -> Ints:
    """A number below `count` for every coordinate [...shape], always the same for the same seed: counter-based Philox."""
    words = np.random.Philox(key=seed).random_raw(math.prod(shape))
    return (words % np.uint64(count)).astype(np.int64).reshape(tuple(shape))


def digest(*arrays: NDArray[np.int64]) -> str:
    """A hash of integer arrays, for manifests."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(a, dtype="<i8").tobytes() for a in arrays)).hexdigest()
