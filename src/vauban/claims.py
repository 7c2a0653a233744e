"""From tallies to claims: which label is certified, how far, and what that says about the whole data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.bounds.clopper_pearson import Floats
from vauban.bounds.dataset import claim_floor
from vauban.bounds.simultaneous import checked_counts, probability_bounds
from vauban.errors import BadInput
from vauban.laws.conversions import convert
from vauban.laws.exact import Ballots, ExactLaw
from vauban.laws.law import AnyLaw, Law
from vauban.laws.patches.exact import ExactPatchLaw
from vauban.laws.topk import radius
from vauban.stopping import Rule
from vauban.threats import Threat, named

MOST_VOTES = 10**12


@dataclass(frozen=True)
class Certificates:
    """Claims for m inputs.

    `label` [m]: the label each claim is about. `radius` [m]: how far it stays in the top k, NaN where abstained.
    `abstained` [m]: where nothing is claimed. `truth` [m]: the true labels, if known. `counts` [m, c]: the votes.
    Exact claims have alpha 0 and no bounds; `ballots` holds the vote of every view, where there was one.
    """

    label: NDArray[np.int64]
    radius: Floats
    abstained: NDArray[np.bool_]
    counts: NDArray[np.int64]
    truth: NDArray[np.int64] | None
    k: int
    alpha: float
    bounds: str
    law: AnyLaw
    converted: Threat | None = None
    arithmetic: str | None = None
    unit_range: bool = True
    ballots: Ballots | None = None

    @property
    def exact(self) -> bool:
        """Whether the claims hold without probability."""
        return self.law.exact

    @property
    def votes_per_input(self) -> int | float:
        """How many votes each claim rests on: of every view, where it is exact; the mean, where votes stopped one by one."""
        if isinstance(self.law, ExactLaw):
            return self.law.views
        votes = self.counts.sum(axis=1)
        return int(votes[0]) if (votes == votes[0]).all() else float(votes.mean())

    @property
    def threat(self) -> Threat:
        """What the radii speak of: the law's threat, or the one they were converted to."""
        return self.converted or self.law.threat

    @property
    def claim(self) -> str:
        """In words, what a radius says of its input."""
        grid = " to another 8-bit picture" if self.arithmetic == "grid" else ""
        changes = self.threat.sentence("the radius").replace("every change", f"every change{grid}", 1)
        if self.exact:
            return f"the label is among the top {self.k} under {changes}; this is exact, no probability is left"
        return f"with probability at least {1 - self.alpha}, the label is among the top {self.k} under {changes}"

    def __len__(self) -> int:
        return len(self.label)

    def certified(self, r: float = 0.0) -> NDArray[np.bool_]:
        """Which inputs [m] are certified for their true label at radius r: decided, correct, and radius >= r."""
        right = self.label == self._truth()
        return right & ~self.abstained & (np.nan_to_num(self.radius, nan=-1.0) >= r)

    def accuracy(self, r: float = 0.0) -> float:
        """Fraction of all inputs certified for their true label at radius r."""
        return float(self.certified(r).mean())

    def accuracy_claim(self, r: float = 0.0, rho: float = 1e-3, method: str = "binomial") -> float:
        """Lower bound, with confidence 1 - rho, on the true certified accuracy at radius r (see `bounds.dataset`).

        Where claims are exact it is the accuracy itself.
        """
        if not 0 < rho < 1:
            raise BadInput(f"rho={rho}: a probability strictly between 0 and 1 is needed, for example 0.001")
        if self.exact:
            return self.accuracy(r)
        return claim_floor(int(self.certified(r).sum()), len(self), self.alpha, rho, method)

    @property
    def median_radius(self) -> float:
        """Largest radius at which at least half of all inputs are certified; NaN if fewer than half ever are."""
        radii = np.sort(np.where(self.certified(), self.radius, -np.inf))[::-1]
        middle = float(radii[(len(radii) + 1) // 2 - 1])
        return middle if middle >= 0 else float("nan")

    @property
    def clean_accuracy(self) -> float:
        """Fraction of inputs whose true label is among the k most voted (ties to the smaller label): no confidence."""
        truth = self._truth()
        own = self.counts[np.arange(len(self)), truth][:, None]
        smaller = np.arange(self.counts.shape[1])[None, :] < truth[:, None]
        ahead = (self.counts > own) | ((self.counts == own) & smaller)
        return float((ahead.sum(axis=1) < self.k).mean())

    @property
    def base_accuracy(self) -> float:
        """Fraction of all votes that went to the true label: how the base classifier does on views.

        Every input counts the same, however many votes it took.
        """
        own, votes = self.counts[np.arange(len(self)), self._truth()], self.counts.sum(axis=1)
        if (votes == votes[:1]).all():
            return float(own.sum() / max(1, votes.sum()))
        return float((own / np.maximum(votes, 1)).mean())

    @property
    def undecided(self) -> float:
        """Fraction of inputs for which nothing is claimed."""
        return float(self.abstained.mean())

    @property
    def certified_elsewhere(self) -> float:
        """Fraction of inputs certified for a label that is not the true one."""
        return float((~self.abstained & (self.label != self._truth())).mean())

    def against(self, truth: ArrayLike) -> Certificates:
        """The same claims, judged by these true labels [m]."""
        labels = np.asarray(truth)
        if labels.shape != self.label.shape or labels.dtype.kind not in "iu":
            raise BadInput(f"labels of shape {labels.shape} for {len(self)} inputs: one whole number each is needed")
        wrong = np.flatnonzero((labels < 0) | (labels >= self.counts.shape[1]))
        if len(wrong):
            last = self.counts.shape[1] - 1
            raise BadInput(f"label {labels[wrong[0]]} of input {wrong[0]} is outside the classes 0..{last}")
        return replace(self, truth=labels.astype(np.int64))

    def in_threat(self, target: str, shape: Sequence[int]) -> Certificates:
        """What the same claims are worth against another threat, for inputs of this shape (see `laws.conversions`)."""
        if target == self.threat.name:
            return self
        if not self.unit_range:
            raise BadInput("conversions hold for inputs and attacks in [0,1]; these inputs were allowed to be anything")
        radii = convert(self.radius, self.threat, target, shape)
        other = named(target)
        threat = other if other.integer else replace(other, ball=self.threat.ball)
        return replace(self, radius=radii, abstained=self.abstained | np.isnan(radii), converted=threat)

    def by_margin(self) -> Certificates | None:
        """Where votes were counted place by place, what the papers' margin proves from the same ballots: never more."""
        if not isinstance(self.law, ExactPatchLaw) or self.law.bound == "margin" or self.ballots is None:
            return None
        radii = replace(self.law, bound="margin").radius(self.ballots, self.label, self.k)
        return replace(self, law=replace(self.law, bound="margin"), radius=radii, abstained=np.isnan(radii))

    def stands(self, patch: tuple[int, int]) -> NDArray[np.bool_]:
        """Which labels [m] stay in the top k whatever happens within any rectangle of this height and width."""
        if not isinstance(self.law, ExactPatchLaw) or self.ballots is None:
            raise BadInput(
                f"{self.law.spec} says nothing of rectangles: exact band and block do, from ballots, and square patches "
                "are what their radii measure"
            )
        return self.law.stands(self.ballots, self.label, self.k, patch=patch)

    def summary(self, radii: ArrayLike, rho: float = 1e-3) -> dict[str, Any]:
        """Everything a table shows, as plain numbers."""
        margin = self.by_margin()
        return {
            "inputs": len(self),
            "k": self.k,
            "alpha": self.alpha,
            "bounds": self.bounds,
            "threat": self.threat.name,
            "exact": self.exact,
            "votes_per_input": self.votes_per_input,
            "base_accuracy": self.base_accuracy,
            "clean_accuracy": self.clean_accuracy,
            "undecided": self.undecided,
            "certified_elsewhere": self.certified_elsewhere,
            "median_radius": None if np.isnan(self.median_radius) else self.median_radius,
            "rho": rho,
            "certified": [
                {"radius": float(r), "accuracy": self.accuracy(r), "at_least": self.accuracy_claim(r, rho)}
                | ({} if margin is None else {"by_margin": margin.accuracy(r)})
                for r in np.asarray(radii, dtype=float)
            ],
        }

    def _truth(self) -> NDArray[np.int64]:
        if self.truth is None:
            raise BadInput("accuracy needs the true labels: give y to certify, or use certs.radius directly")
        return self.truth


def derive(
    counts: ArrayLike,
    labels: ArrayLike,
    law: Law,
    *,
    k: int = 1,
    alpha: float = 1e-3,
    bounds: str | None = None,
    deviation: float = 0.0,
    truth: ArrayLike | None = None,
) -> Certificates:
    """Claim, for each row of `counts` [m, c], how far `labels` [m] stays among the top k. [Jia2020] CERTIFY

    `labels` must have been fixed before these votes were drawn. `deviation`: how far, in total variation per view, the
    sampled noise may be from the law. `bounds`: None is `default_bounds(k)`.
    """
    table, which, votes = checked_counts(counts, labels)
    bounds = bounds or default_bounds(k)
    check_settings(k=k, alpha=alpha, num_classes=table.shape[1], n=votes, bounds=bounds, law=law, deviation=deviation)
    radii = _radii(table, which, law, k=k, alpha=alpha, bounds=bounds, deviation=deviation)
    certs = Certificates(which, radii, np.isnan(radii), table, which, k, alpha, bounds, law)
    return certs if truth is None else certs.against(truth)


def derive_stopped(
    looks: Sequence[ArrayLike], labels: ArrayLike, law: Law, rule: Rule, *, k: int = 1, alpha: float = 1e-3
) -> Certificates:
    """Claim what a sequential test decides: `looks[i]` [j, c] are the counts of input i at the rule's first j looks, j >= 1.

    `labels` [m] must have been fixed before these votes were drawn; `rule` made for this law, k and alpha. Counts at looks
    after a decision are not read.
    """
    tables, which = [np.asarray(some, dtype=np.int64) for some in looks], np.asarray(labels, dtype=np.int64)
    wins = np.full((len(tables), max(map(len, tables))), -1, dtype=np.int64)
    for row, table, label in zip(wins, tables, which, strict=True):
        row[: len(table)] = table[:, label]
    decision = rule.decide(wins)
    counts = np.stack([table[used - 1] for table, used in zip(tables, decision.looks, strict=True)])
    return Certificates(which, decision.radius, ~decision.certified, counts, which, k, alpha, "binocp", law)


def derive_exact(ballots: Ballots, labels: ArrayLike, law: ExactLaw, *, k: int = 1) -> Certificates:
    """Claim, for each ballot, how far `labels` [m] stays among the top k: without probability, so labels may be read off it."""
    which = np.asarray(labels, dtype=np.int64)
    check_k(k, ballots.num_classes)
    if ballots.votes.shape[1] != law.views:
        raise BadInput(
            f"ballots of {ballots.votes.shape[1]} votes: {law.spec} has {law.views} views, and each needs its vote"
        )
    radii = law.radius(ballots, which, k)
    return Certificates(
        which, radii, np.isnan(radii), ballots.counts, which, k, 0.0, "exact", law, arithmetic="grid", ballots=ballots
    )


def derive_exact_from_counts(counts: ArrayLike, labels: ArrayLike, law: ExactLaw, *, k: int = 1) -> Certificates:
    """As `derive_exact`, from counts [m, c] of one vote per view, where their order does not matter."""
    table, which, _ = checked_counts(counts, labels, alike=getattr(law, "threshold", None) is None)
    check_k(k, table.shape[1])
    radii = law.radius_of_counts(table, which, k)
    return Certificates(which, radii, np.isnan(radii), table, which, k, 0.0, "exact", law, arithmetic="grid")


def refuse_sampled_settings(smoothing: str, **settings: Any) -> None:
    """Refuse what only sampled votes have, where every view votes."""
    for name, value in settings.items():
        if value is not None:
            raise BadInput(
                f"{name}={value} with {smoothing}, which is exact: every view votes and nothing is left to chance; "
                f"leave {name} out, or ask for the sampled form if it has one (sampled=true)"
            )


def _radii(
    counts: NDArray[np.int64],
    labels: NDArray[np.int64],
    law: Law,
    *,
    k: int,
    alpha: float,
    bounds: str,
    deviation: float,
) -> Floats:
    """From counts to bounds, to bounds under the exact law, to radii."""
    limits = law.calibrated(probability_bounds(counts, labels, k=k, alpha=alpha, method=bounds).widened(deviation))
    return radius(law, limits.label, limits.sums())


def default_bounds(k: int) -> str:
    """BinoCP for top-1, as [Cohen2019]; SimuEM for top-k, as the experiments of [Jia2020]."""
    return "binocp" if k == 1 else "simuem"


def check_settings(
    *, k: int, alpha: float, num_classes: int, n: int, bounds: str, law: Law, deviation: float = 0.0
) -> None:
    """Refuse settings under which no input could ever be certified, before any vote is cast."""
    check_alpha(alpha)
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise BadInput(f"n={n!r}: a whole number is needed")
    if n > MOST_VOTES:
        raise BadInput(f"n={n}: more than {MOST_VOTES:,} votes per input cannot be counted here")
    if not 0 <= deviation < 1:
        raise BadInput(f"deviation={deviation}: a total variation is at least 0 and below 1")
    check_k(k, num_classes)
    if n < 1 or largest_radius(n, k, alpha, num_classes, bounds, law, deviation) is None:
        least = least_n(k, alpha, num_classes, bounds, law, deviation)
        raise BadInput(
            f"n={n} can certify nothing at alpha={alpha:g} (top-{k}, {bounds}, {num_classes} classes): the least is {least}"
        )


def check_k(k: int, num_classes: int) -> None:
    """Refuse a k for which being among the top k says nothing, or nothing can be said."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise BadInput(f"k={k!r}: a whole number is needed")
    if not 1 <= k < num_classes:
        raise BadInput(f"k={k} of {num_classes} classes: k must be at least 1 and below the number of classes")


def check_alpha(alpha: float) -> None:
    """Refuse a failure probability outside (0, 1)."""
    if not isinstance(alpha, float | int | np.floating) or not 0 < alpha < 1:
        raise BadInput(f"alpha={alpha}: a probability strictly between 0 and 1 is needed, for example 0.001")


def largest_radius(
    n: int, k: int, alpha: float, num_classes: int, bounds: str, law: Law, deviation: float = 0.0
) -> float | None:
    """The radius of an input on which all n votes agree, which no input can exceed; None if that is not certified."""
    unanimous = np.zeros((1, num_classes), dtype=np.int64)
    unanimous[0, 0] = n
    best = float(_radii(unanimous, np.array([0]), law, k=k, alpha=alpha, bounds=bounds, deviation=deviation)[0])
    return None if np.isnan(best) else best


def least_n(k: int, alpha: float, num_classes: int, bounds: str, law: Law, deviation: float = 0.0) -> int:
    """The least number of votes that can certify anything: by doubling, then bisection (more votes never hurt).

    >>> from vauban.laws import law
    >>> [least_n(k, 0.001, 10, b, law("gaussian:sigma=0.5")) for b in ("binocp", "simuem") for k in (1, 3)]
    [10, 5, 14, 7]
    """

    def enough(n: int) -> bool:
        return largest_radius(n, k, alpha, num_classes, bounds, law, deviation) is not None

    high = 1
    while not enough(high):
        high *= 2
        if high > 1 << 60:
            raise BadInput(f"no number of votes can certify anything when the noise deviates by {deviation:g}")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
