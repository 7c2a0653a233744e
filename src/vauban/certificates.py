"""Certificates: which label is certified, how far, and what that says about the whole data set.

`derive`, `derive_sequential` and `derive_exact` turn counts or ballots into certificates; live calls, run folders, third-party
counts and verification all use them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.bounds.clopper_pearson import Floats
from vauban.bounds.dataset import claim_floor
from vauban.bounds.simultaneous import checked_counts, default_bounds
from vauban.errors import BadInput
from vauban.laws import as_law
from vauban.laws.conversions import convert, implied, in_unit_range
from vauban.laws.exact import Ballots, ExactLaw
from vauban.laws.from_counts import radii_of_counts, refuse_too_few
from vauban.laws.law import AnyLaw, Law
from vauban.laws.patches.exact import ExactPatchLaw
from vauban.report.numbers import as_written
from vauban.stopping.policies import Rule
from vauban.threats import Threat, converted
from vauban.validation import check_alpha, check_deviation, check_k, check_labels, check_radius, check_rho, check_votes

UNIT_RANGE = (0.0, 1.0)
COLUMNS = ("index", "label", "radius", "abstained", "truth")


class Claims(ABC):
    """Claims about m inputs; `vauban.certificates.Certificates` and `vauban.poisoning.PoisoningCertificates` are such.

    `label` [m]: the label each claim is about. `radius` [m]: within which it stays in the top k, NaN where abstained.
    `abstained` [m]: where nothing is claimed. `counts` [m, c]: the votes. `truth` [m]: the true labels, if known. `index` [m]:
    the number of each input in its data set. `notes`: what a reader must know besides the claim.
    """

    label: NDArray[np.int64]
    radius: NDArray[np.float64]
    abstained: NDArray[np.bool_]
    counts: NDArray[np.int64]
    truth: NDArray[np.int64] | None
    k: int
    index: NDArray[np.int64]
    notes: tuple[str, ...] = ()

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether the claims hold without probability."""

    @property
    @abstractmethod
    def threat(self) -> Threat:
        """What the radii speak of."""

    @property
    @abstractmethod
    def claim(self) -> str:
        """The sentence that says what a radius guarantees for its input."""

    @abstractmethod
    def _repr_html_(self) -> str: ...

    def __len__(self) -> int:
        return len(self.label)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = vars(self).keys() - {"record", "notes"}
        return all(_same(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def certified(self, r: float = 0.0) -> NDArray[np.bool_]:
        """Which inputs [m] are certified for their true label at radius r: decided, correct, and radius >= r."""
        right = self.label == self._truth()
        return right & ~self.abstained & (np.nan_to_num(self.radius, nan=-1.0) >= check_radius(r))

    def accuracy(self, r: float = 0.0) -> float:
        """Fraction of all inputs certified for their true label at radius r."""
        return float(self.certified(r).mean())

    def accuracy_claim(self, r: float = 0.0, rho: float = 1e-3, method: str = "binomial") -> float:
        """Lower bound, with confidence 1 - rho, on the true certified accuracy at radius r; for exact claims the accuracy."""
        check_rho(rho)
        return self.accuracy(r)

    @property
    def median_radius(self) -> float:
        """Largest radius, as it is written, at which at least half of all inputs are certified; NaN if fewer ever are."""
        radii = np.sort(np.where(self.certified(), self.radius, -np.inf))[::-1]
        middle = float(radii[(len(radii) + 1) // 2 - 1])
        return as_written(middle, self.threat) if middle >= 0 else float("nan")

    @property
    def average_radius(self) -> float:
        """Mean over all inputs of the radius at which each is certified for its true label, 0 where it is for none. [Zhai2020]

        Radii count as they are written, rounded down; abstained inputs and those certified for another label count as 0. NaN
        where a radius is infinite: there is no mean.
        """
        different, place = np.unique(np.where(self.certified(), self.radius, 0.0), return_inverse=True)
        written = np.array([as_written(float(radius), self.threat) for radius in different])
        mean = math.fsum(written[place]) / len(self)
        return mean if math.isfinite(mean) else float("nan")

    @property
    def clean_accuracy(self) -> float:
        """Fraction of inputs whose true label is among the k most voted (ties to the smaller label); an estimate, no bound."""
        truth = self._truth()
        own = self.counts[np.arange(len(self)), truth][:, None]
        smaller = np.arange(self.counts.shape[1])[None, :] < truth[:, None]
        ahead = (self.counts > own) | ((self.counts == own) & smaller)
        return float((ahead.sum(axis=1) < self.k).mean())

    @property
    def base_accuracy(self) -> float:
        """Fraction of votes for the true label, every input with the same weight: the base classifier's accuracy on views."""
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

    def to_csv(self, columns: Sequence[str] = COLUMNS) -> str:
        """Claims as CSV text: radii rounded down, empty where abstained; truth empty where it is not known."""
        from vauban.report.tables import csv_text

        return csv_text(self, columns)

    def to_pandas(self, names: Sequence[str] | None = None) -> Any:
        """A pandas table: index, truth, label, radius, abstained, counts per class; file names where there are any."""
        from vauban.report.tables import data_frame

        return data_frame(self, names)

    def plot(self, path: str | Path | None = None, **options: Any) -> Any:
        """The curve of certified accuracy against the radius, as a Matplotlib figure; written to `path` if given."""
        from vauban.report.curve import figure

        return figure([self], path, **options)

    def _truth(self) -> NDArray[np.int64]:
        if self.truth is None:
            raise BadInput("accuracy needs the true labels: give y to certify, or use certs.radius directly")
        return self.truth


@dataclass(frozen=True, eq=False)
class Certificates(Claims):
    """Claims that follow from votes on views. Exact ones have alpha 0 and no bounds.

    `ballots`: the vote of every view, where they were kept. `input_range`: allowed values of inputs and attacked inputs, None for
    no limit. `look` [m], of claims at all looks at once: the votes after which each radius was earned, 0 for none. `record`:
    manifest and votes of the `certify` call or run; None for certificates derived from bare counts.
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
    index: NDArray[np.int64]
    converted: Threat | None = None
    arithmetic: str | None = None
    input_range: tuple[float, float] | None = UNIT_RANGE
    ballots: Ballots | None = None
    look: NDArray[np.int64] | None = None
    notes: tuple[str, ...] = ()
    record: Any = field(default=None, repr=False)

    @property
    def exact(self) -> bool:
        return self.law.exact

    @property
    def votes_per_input(self) -> int | float:
        """Votes per input: the number of views for an exact law, the mean where inputs stopped at different looks."""
        if isinstance(self.law, ExactLaw):
            return self.law.views
        votes = self.counts.sum(axis=1)
        return int(votes[:1].sum()) if (votes == votes[:1]).all() else float(votes.mean())

    @property
    def threat(self) -> Threat:
        """The threat that the radii measure: the law's, or the one they were converted to."""
        return self.converted or self.law.threat

    @property
    def claim(self) -> str:
        from vauban.report.wording import certificates_claim

        return certificates_claim(self)

    def accuracy_claim(self, r: float = 0.0, rho: float = 1e-3, method: str = "binomial") -> float:
        """As for all claims; `method`: see `bounds.dataset`."""
        check_rho(rho)
        if self.exact:
            return self.accuracy(r)
        return claim_floor(int(self.certified(r).sum()), len(self), self.alpha, rho, method)

    def against(self, truth: ArrayLike) -> Certificates:
        """The same claims, judged by these true labels [m]."""
        return replace(self, truth=check_labels(truth, len(self), self.counts.shape[1]))

    def about(self, index: Sequence[int], truth: Sequence[int] | None, where: Sequence[int]) -> Certificates:
        """The same claims, about the inputs at the positions `where` of a run with this index and these true labels."""
        numbers, true = (None if some is None else np.asarray(some, dtype=np.int64)[where] for some in (index, truth))
        assert numbers is not None
        return replace(self, index=numbers, truth=true)

    def in_threat(self, target: str, shape: Sequence[int], mass: ArrayLike | None = None) -> Certificates:
        """The same claims converted to another threat, for inputs of this shape (see `laws.conversions`).

        `mass` [m], for Wasserstein targets: what the numbers of each picture add up to at most; by default all white.
        """
        if target == self.threat.name:
            return self
        if self.input_range != UNIT_RANGE and target != "linf":
            said = "anything" if self.input_range is None else f"in [{self.input_range[0]:g}, {self.input_range[1]:g}]"
            raise BadInput(f"conversions hold for inputs and attacks in [0,1]; these inputs were allowed to be {said}")
        if mass is not None and not (target.startswith("wasserstein") and self.threat.name == "l1"):
            raise BadInput(f"mass plays no part from {self.threat.name} to {target}, only from l1 to wasserstein")
        radii = convert(self.radius, self.threat, target, shape, mass=mass)
        threat = converted(self.threat, target)
        notes = (*self.notes, *implied(self.threat, target, shape))
        if in_unit_range(self.threat, target) and self.arithmetic != "grid":
            notes = (*notes, f"these {target} radii are about inputs and attacks whose numbers all are in [0, 1]")
        lost = self.abstained | np.isnan(radii)
        return replace(self, radius=radii, abstained=lost, converted=threat, notes=notes)

    def by_margin(self) -> Certificates | None:
        """The same ballots under the papers' margin bound, never larger; None unless these are exact patch claims by position."""
        if not isinstance(self.law, ExactPatchLaw) or self.law.bound == "margin" or self.ballots is None:
            return None
        radii = replace(self.law, bound="margin").radius(self.ballots, self.label, self.k)
        return replace(self, law=replace(self.law, bound="margin"), radius=radii, abstained=np.isnan(radii))

    def stands(self, patch: tuple[int, int]) -> NDArray[np.bool_]:
        """Which labels [m] stay in the top k under every change inside one rectangle of this height and width, anywhere."""
        if not isinstance(self.law, ExactPatchLaw) or self.ballots is None:
            raise BadInput(
                f"{self.law.spec} cannot certify rectangles: exact band and block can, from ballots; for square patches use "
                "their radius"
            )
        return self.law.stands(self.ballots, self.label, self.k, patch=patch)

    def summary(self, radii: ArrayLike, rho: float = 1e-3, method: str = "binomial") -> dict[str, Any]:
        """Everything a table shows, as plain numbers; `method` as in `accuracy_claim`."""
        from vauban.report.summary import summarised

        return summarised(self, radii, rho, method)

    def save(self, path: str | Path) -> Any:
        """Write the run folder that certify(out=path) would have written; `vauban.Run.open(path)` reads it. A second claim from
        the votes of a run is refused: the folder would claim something else."""
        from vauban.runs.saving import own_claim, save_run

        if self.record is not None and not own_claim(self):
            raise BadInput(
                "these are a second claim from the votes of a run, or judged by other labels, and a run folder holds its own: "
                "save those that certify() returned (of a folder, copy it), ask Run.certificates(…) again, or write a table "
                "with to_csv()"
            )
        if self.record is None:
            raise BadInput(
                "these certificates were derived from bare counts: nothing says which model and inputs they are about. "
                "certify(out=…) writes a run folder, to_csv() a table"
            )
        return save_run(path, self.record)

    def _repr_html_(self) -> str:
        from vauban.report.tables import certificates_html

        return certificates_html(self)


def derive(
    counts: ArrayLike,
    labels: ArrayLike,
    law: Any,
    *,
    k: int = 1,
    alpha: float = 1e-3,
    bounds: str | None = None,
    deviation: float = 0.0,
    truth: ArrayLike | None = None,
    shape: Sequence[int] | None = None,
) -> Certificates:
    """Certify, for each row of `counts` [m, c], how far `labels` [m] stays among the top k. [Jia2020] CERTIFY

    `law`: a law, a smoothing, or its text. `labels` must have been fixed before these votes were drawn. `deviation`: how far,
    in total variation per view, the sampled noise may be from the law. `bounds`: None is `default_bounds(k)`. `shape`: of the
    inputs, where the law depends on it. Counts of an exact law hold one vote of every view; alpha and bounds are then unused.
    `truth` [m]: the true labels, by which accuracies count; None takes `labels` for them.

    >>> derive([[990, 10]], [0], "gaussian:sigma=0.5").radius.round(3).tolist()
    [0.989]
    """
    noise = as_law(law)
    noise = noise if shape is None else noise.for_shape(shape)
    if isinstance(noise, ExactLaw):
        certs = _derive_exact_counts(counts, labels, noise, k)
        return certs if truth is None else certs.against(truth)
    assert isinstance(noise, Law)
    table, which, votes = checked_counts(counts, labels)
    bounds = bounds or default_bounds(k)
    check_alpha(alpha)
    check_votes(votes)
    check_deviation(deviation)
    check_k(k, table.shape[1])
    refuse_too_few(votes, k, alpha, table.shape[1], bounds, noise, deviation)
    radii = radii_of_counts(table, which, noise, k=k, alpha=alpha, bounds=bounds, deviation=deviation)
    certs = _certificates(which, radii, table, k, alpha, bounds, noise)
    return certs if truth is None else certs.against(truth)


def derive_sequential(
    looks: Sequence[ArrayLike], labels: ArrayLike, law: Law, rule: Rule, *, k: int = 1, alpha: float = 1e-3
) -> Certificates:
    """Certify the decisions of a sequential test: `looks[i]` [j, c], counts of input i at the rule's first j looks, j >= 1.

    `labels` [m] must have been fixed before these votes were drawn; `rule` made for this law, k and alpha. Counts at looks
    after a decision are not read.
    """
    tables, which = [np.asarray(some, dtype=np.int64) for some in looks], np.asarray(labels, dtype=np.int64)
    wins = np.full((len(tables), max(map(len, tables))), -1, dtype=np.int64)
    for row, table, label in zip(wins, tables, which, strict=True):
        row[: len(table)] = table[:, label]
    decision = rule.decide(wins)
    counts = np.stack([table[used - 1] for table, used in zip(tables, decision.looks, strict=True)])
    return _certificates(which, decision.radius, counts, k, alpha, "binocp", law)


def derive_exact(ballots: Ballots, labels: ArrayLike, law: ExactLaw, *, k: int = 1) -> Certificates:
    """Certify, for each ballot, how far `labels` [m] stays among the top k. The claim is exact: labels may be read off it."""
    which = np.asarray(labels, dtype=np.int64)
    check_k(k, ballots.num_classes)
    if ballots.votes.shape[1] != law.views:
        raise BadInput(
            f"ballots of {ballots.votes.shape[1]} votes: {law.spec} has {law.views} views, and each needs its vote"
        )
    certs = _certificates(which, law.radius(ballots, which, k), ballots.counts, k, 0.0, "exact", law)
    return replace(certs, arithmetic="grid", ballots=ballots)


def _derive_exact_counts(counts: ArrayLike, labels: ArrayLike, law: ExactLaw, k: int) -> Certificates:
    """As `derive_exact`, from counts [m, c] of one vote per view, where their order does not matter."""
    table, which, _ = checked_counts(counts, labels, equal_totals=getattr(law, "threshold", None) is None)
    check_k(k, table.shape[1])
    certs = _certificates(which, law.radius_of_counts(table, which, k), table, k, 0.0, "exact", law)
    return replace(certs, arithmetic="grid")


def _certificates(
    labels: NDArray[np.int64], radii: Floats, counts: NDArray[np.int64], k: int, alpha: float, bounds: str, law: AnyLaw
) -> Certificates:
    numbers = np.arange(len(labels), dtype=np.int64)
    return Certificates(labels, radii, np.isnan(radii), counts, labels, k, alpha, bounds, law, numbers)


def _same(mine: Any, other: Any) -> bool:
    """Whether two fields are equal, bit for bit; NaN equals NaN, and laws are equal if their text forms are."""
    if isinstance(mine, AnyLaw) and isinstance(other, AnyLaw):
        return bool(mine.spec == other.spec)
    if isinstance(mine, Ballots) and isinstance(other, Ballots):
        return mine.num_classes == other.num_classes and np.array_equal(mine.votes, other.votes)
    if isinstance(mine, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(mine, other, equal_nan=mine.dtype.kind == "f")
    return mine is other or (mine is not None and other is not None and bool(mine == other))
