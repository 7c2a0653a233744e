"""Exact laws: every view votes, and an attack is measured by the views it changes. [Levine2023] chapters 3, 4 and 6"""

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
from vauban.specs import Parameter, Spec, choose, flag, read_params
from vauban.validation import check_k

Ints = NDArray[np.int64]

MAX_VIEWS = 10**7
LAYOUTS = ("random", "lattice")
_GOLDEN = 11400714819323198485
"""2^64 over the golden ratio: multiples of it, modulo 2^64, are spread evenly."""
_PLASTIC = (13925035116211876495, 10511698010929265436)
"""2^64 over the plastic ratio 1.3247… and over its square: the same for two dimensions."""


@dataclass(frozen=True)
class Ballots:
    """The vote of every view of m inputs, in order.

    `votes`: classes [m, views] if each view casts one vote; bool [m, views, classes] if it votes for a set of classes.
    """

    votes: NDArray[np.integer] | NDArray[np.bool_]
    num_classes: int

    @property
    def sets(self) -> bool:
        """Whether a view votes for a set of classes, which may be empty."""
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
        """The class with the most votes [m], ties to the smaller index: the smoothed classifier's prediction."""
        return self.counts.argmax(axis=1)

    def __len__(self) -> int:
        return len(self.votes)


class ExactLaw(AnyLaw):
    """A finite list of views that all vote: certificates are exact, and hold for inputs on the grid only.

    View j of the list is the one that `Smoothing.views` makes from the word j; `levels` is the grid's number of steps.
    """

    exact: ClassVar[bool] = True
    levels: int

    @property
    def counts_suffice(self) -> bool:
        """Whether certificates can be derived from counts, without the order of votes."""
        return True

    @property
    @abstractmethod
    def views(self) -> int:
        """The number of views of an input; a law that depends on the input's shape needs `for_shape` first."""

    @classmethod
    def from_spec(cls, spec: Spec) -> Self:
        """Build the law from its text form; sampled=false is accepted and has no effect."""
        values = read_params(spec, {**cls.parameters, "sampled": Parameter(flag, default=False)})
        if values.pop("sampled"):
            raise BadInput(f"{cls.name} has no sampled form: leave sampled=true out")
        return cls(**values)

    def views_hash(self, shape: Sequence[int]) -> str:
        """A hash of what determines the list of views of such inputs beyond the spec (offsets, a design), or ""."""
        return ""

    def manifest_fields(self) -> dict[str, Any]:
        """What a manifest stores about the list besides its hash, in plain values."""
        return {}

    @abstractmethod
    def radius_tolerating(self, changed: ArrayLike) -> Floats:
        """The largest radius [m], rounded down, within which no attack changes more than `changed` [m] >= 0 views."""

    def radius(self, ballots: Ballots, labels: ArrayLike, k: int = 1) -> Floats:
        """Radius [m] within which each label stays in the top k, whatever changed views vote; NaN if it is not there now."""
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
        return np.where(changed >= 0, self.radius_tolerating(np.maximum(changed, 0)), np.nan)

    def largest_radius(self, k: int, num_classes: int) -> float:
        """The radius of an input for which all views vote for class 0, which ties favour: no input has a larger one."""
        unanimous = Ballots(np.zeros((1, self.views), dtype=np.int64), num_classes)
        return float(self.radius(unanimous, np.array([0]), k)[0])


def leads(counts: Ints, labels: Ints) -> Ints:
    """How much [m, classes] each rival must gain on the label to be ahead of it, ties going to the smaller index: at most
    0 where it is ahead already. The label's own column is larger than any lead, so that it is never among the least."""
    rows, classes = np.arange(len(counts)), np.arange(counts.shape[1])
    lead = counts[rows, labels][:, None] - counts + (classes > labels[:, None])
    lead[rows, labels] = np.iinfo(np.int64).max // (counts.shape[1] + 2)
    return lead


def tolerated(counts: ArrayLike, labels: ArrayLike, k: int = 1) -> Ints:
    """The largest T [m] such that the label stays in the top k whichever T views change their vote; -1 where it is not there.

    One vote per view. T changed votes take at most T from the label and give each rival j at most a_j more, the a_j adding up
    to T. If k rivals are ahead, a_j >= d_j - T for each of them (d_j: `leads`); so the label stays if the positive parts of the
    k smallest d_j - T add up to more than T. For k = 1: floor((n_l - max(n_j + [j < l])) / 2). Exact as long as the label has T
    votes to lose: the attacker takes those and gives them to the rivals. Once the label has none left, it stays while the k
    rivals that need least against zero votes need more than T together. [Levine2023] Theorem 3.2 with its tie rule
    """
    table, label = np.asarray(counts, dtype=np.int64), np.asarray(labels, dtype=np.int64)
    check_k(k, table.shape[1])
    nearest = np.sort(leads(table, label), axis=1)[:, k - 1 :: -1]
    own = table[np.arange(len(table)), label]
    with_none_left = np.maximum(nearest - own[:, None], 0).sum(axis=1) - 1
    return np.minimum(np.where(with_none_left >= own, with_none_left, tolerated_by_gaps(nearest)), table.sum(axis=1))


def tolerated_by_gaps(gaps: Ints) -> Ints:
    """The largest T [...] for which the positive parts of gaps - T add up to more than T, or -1; `gaps` [..., n] must descend.

    A sum of positive parts is the largest sum over subsets: the t largest gaps must add up to more than (t + 1) T for some t.
    """
    sums = np.cumsum(gaps, axis=-1)
    return np.maximum(((sums - 1) // np.arange(2, gaps.shape[-1] + 2)).max(axis=-1), -1)


def format_views(views: int) -> str:
    """A number of views for an error message."""
    return f"{views:,}" if views < 10**15 else "more than 10^15"


def check_view_list(views: int, seed: int, layout: str, advice: str) -> None:
    """Refuse a list of more than MAX_VIEWS views, a seed out of range, and a layout that is unknown or takes no seed."""
    if views > MAX_VIEWS:
        raise BadInput(
            f"that makes {format_views(views)} views of every input, and {MAX_VIEWS:,} is the most: {advice}"
        )
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise BadInput(f"offsets={seed}: the seed of the offsets is a whole number, zero or more, below 2^63")
    if choose("layout of offsets", layout, LAYOUTS) == "lattice" and seed:
        raise BadInput(f"offsets={seed}: a lattice is always the same; leave the seed out, or write layout=random")


def offsets_of(layout: str, seed: int, shape: Sequence[int], count: int, window: int) -> Ints:
    """A number below `count` for every coordinate [...shape], always the same.

    "random": by the seed. "lattice": pixels whose numbers are close lie evenly spread over the picture, so that a view in which
    `window` numbers in a row show something shows a little of every part of it. The channels of a pixel share its number but
    for a part of the window, so that they are cut at different heights.
    """
    if layout == "random":
        words = np.random.Philox(key=seed).random_raw(math.prod(shape))
        return (words % np.uint64(count)).astype(np.int64).reshape(tuple(shape))
    channels, pixels = math.prod(shape[:-2]), points_of(shape[-2:]) >> np.uint64(32)
    own = (pixels * np.uint64(count) >> np.uint64(32)).astype(np.int64)
    return (own + (np.arange(channels) * window // channels).reshape(-1, 1, 1)).reshape(tuple(shape)) % count


def points_of(shape: Sequence[int]) -> NDArray[np.uint64]:
    """A point of [0, 2^64) for each coordinate [...shape]: pixels with points in one interval are spread evenly over a picture
    [..., height, width], features over a table [n]. Channels are a part of the whole range apart.
    """
    across = np.arange(shape[-1], dtype=np.uint64)
    if len(shape) == 1:
        return across * np.uint64(_GOLDEN)
    down, channels = np.arange(shape[-2], dtype=np.uint64)[:, None], math.prod(shape[:-2])
    apart = np.arange(channels, dtype=np.uint64).reshape(-1, 1, 1) * np.uint64(2**64 // max(channels, 2))
    return (down * np.uint64(_PLASTIC[0]) + across * np.uint64(_PLASTIC[1]) + apart).reshape(tuple(shape))


def digest(*arrays: NDArray[np.int64]) -> str:
    """A hash of integer arrays, for manifests."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(a, dtype="<i8").tobytes() for a in arrays)).hexdigest()


def as_kept(keep: str | None, law: AnyLaw) -> str | None:
    """What an exact run keeps, "counts" or None for ballots; refused where the law needs the vote of every view."""
    if keep is None or (keep == "ballots" and isinstance(law, ExactLaw)):
        return None
    if keep != "counts":
        known = "last (counts at n alone)"
        if isinstance(law, ExactLaw):
            known = "counts (how many views voted for each class) or ballots (the vote of every view)"
        raise BadInput(f"keep={keep!r}: {known} is needed, or leave it out")
    if not isinstance(law, ExactLaw):
        raise BadInput(
            f"keep=counts: {law.spec} is sampled, and sampled runs keep counts anyway: leave it out, or write last for those "
            "at n alone"
        )
    if not law.counts_suffice:
        raise BadInput(f"keep=counts: {law.spec} needs the vote of every view; leave it out, or write bound=margin")
    return keep
