"""Exact certificates: every view votes, and what an attack can do is counted in views. [Levine2023] chapters 3, 4 and 6"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws.law import AnyLaw
from vauban.specs import Parameter, Spec, flag, read_params
from vauban.validation import check_k

Ints = NDArray[np.int64]

MOST_VIEWS = 10**7


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

    def kept(self) -> dict[str, Any]:
        """What a manifest keeps of the list beyond its hash, in plain values."""
        return {}

    @abstractmethod
    def within(self, changed: ArrayLike) -> Floats:
        """The largest radius, rounded down, within which no attack changes more than `changed` [m] of the views, 0 or more."""

    def radius(self, ballots: Ballots, labels: ArrayLike, k: int = 1) -> Floats:
        """How far [m] each label stays among the top k, whatever attacked views vote; NaN where it is not there to begin with."""
        return self.radius_of_counts(ballots.counts, labels, k)

    def radius_of_counts(self, counts: ArrayLike, labels: ArrayLike, k: int = 1) -> Floats:
        """As `radius`, from the counts [m, classes] of one vote per view."""
        table = np.asarray(counts)
        if (table < 0).any():
            raise BadInput(f"row {int(np.argmax((table < 0).any(axis=1)))} holds a negative count")
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


def leads(counts: Ints, labels: Ints) -> Ints:
    """How much [m, classes] of the label's lead each rival must win to be ahead of it, ties going to the smaller index: at most
    0 where it is ahead already. The label's own column is larger than any lead, so that it is never among the least."""
    rows, classes = np.arange(len(counts)), np.arange(counts.shape[1])
    behind = counts[rows, labels][:, None] - counts + (classes > labels[:, None])
    behind[rows, labels] = np.iinfo(np.int64).max // (counts.shape[1] + 2)
    return behind


def tolerated(counts: ArrayLike, labels: ArrayLike, k: int = 1) -> Ints:
    """The largest T [m] such that the label stays in the top k whichever T views vote anew; -1 where it is not in the top k.

    One vote per view. T changed votes take at most T from the label and give each rival j at most a_j more, the a_j adding up
    to T. If k rivals are ahead, a_j >= d_j - T for each of them (d_j: `leads`); so the label stays if the positive parts of the
    k smallest d_j - T add up to more than T. For k = 1: floor((n_l - max(n_j + [j < l])) / 2). Exact as long as the label has T
    votes to lose: the attacker takes those and deals them out so. With none left it stays while the k rivals that need least
    against no vote at all need more than T. [Levine2023] Theorem 3.2 with its tie rule
    """
    table, which = np.asarray(counts, dtype=np.int64), np.asarray(labels, dtype=np.int64)
    check_k(k, table.shape[1])
    nearest = np.sort(leads(table, which), axis=1)[:, k - 1 :: -1]
    own = table[np.arange(len(table)), which]
    without = np.maximum(nearest - own[:, None], 0).sum(axis=1) - 1
    return np.minimum(np.where(without >= own, without, spent(nearest)), table.sum(axis=1))


def spent(gaps: Ints) -> Ints:
    """The largest T [...] for which the positive parts of gaps - T add up to more than T, or -1; `gaps` [..., n] must descend.

    A sum of positive parts is the largest sum over subsets: the t largest gaps must add up to more than (t + 1) T for some t.
    """
    sums = np.cumsum(gaps, axis=-1)
    return np.maximum(((sums - 1) // np.arange(2, gaps.shape[-1] + 2)).max(axis=-1), -1)


def several(views: int) -> str:
    """A number of views as an error says it."""
    return f"{views:,}" if views < 10**15 else "more than 10^15"


def check_list(views: int, seed: int, advice: str) -> None:
    """Refuse a list of views that nobody could vote on, and a seed that is none."""
    if views > MOST_VIEWS:
        raise BadInput(f"that makes {several(views)} views of every input, and {MOST_VIEWS:,} is the most: {advice}")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise BadInput(f"offsets={seed}: the seed of the offsets is a whole number, zero or more, below 2^63")


def offsets(seed: int, shape: Sequence[int], count: int) -> Ints:
    """A number below `count` for every coordinate [...shape], always the same for the same seed: counter-based Philox."""
    words = np.random.Philox(key=seed).random_raw(math.prod(shape))
    return (words % np.uint64(count)).astype(np.int64).reshape(tuple(shape))


def digest(*arrays: NDArray[np.int64]) -> str:
    """A hash of integer arrays, for manifests."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(a, dtype="<i8").tobytes() for a in arrays)).hexdigest()
