"""Derives certificates from the votes of an ensemble; exact, and without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.certificates import Claims
from vauban.errors import BadInput
from vauban.laws.poisoning.finite import finite_radius, finite_runoff_radius
from vauban.laws.poisoning.partition import Ints, plurality_radius, runoff_radius
from vauban.poisoning.votes.ensemble_votes import THREATS, EnsembleVotes
from vauban.poisoning.votes.settings import PoisoningSettings
from vauban.specs import Spec
from vauban.threats import Threat
from vauban.validation import check_index, check_labels


@dataclass(frozen=True, eq=False)
class PoisoningCertificates(Claims):
    """Exact certificates for m inputs: how much of the training set may change while the label stays (in the top k).

    `label` [m]: the certified label. `radius` [m]: the certified size of the change, NaN where abstained. `answer` [m]: the
    ensemble's answer. `counts` [m, c]: votes per class. `truth` [m]: the true labels, if known. `index` [m]: the number of each
    input in its data set. `against`: what may be poisoned, "samples" or "labels". `scope`: the training subset they are about, in
    words; empty if it is a whole data set.
    """

    label: Ints
    radius: NDArray[np.float64]
    abstained: NDArray[np.bool_]
    answer: Ints
    counts: Ints
    truth: Ints | None
    k: int
    aggregate: str
    spread: int
    against: str
    index: Ints
    scope: str = ""

    @property
    def exact(self) -> bool:
        """Always true: votes of base classifiers leave no probability."""
        return True

    @property
    def threat(self) -> Threat:
        """What the radii count: samples added and removed, or labels flipped."""
        return THREATS[self.against]

    @property
    def claim(self) -> str:
        """What a radius guarantees, in words."""
        return wording(self.threat, self.aggregate, self.k, self.scope)

    @property
    def models(self) -> int:
        """The number of base classifiers."""
        return int(self.counts[0].sum())

    @property
    def clean_accuracy(self) -> float:
        """Fraction of inputs that the ensemble answers correctly (for k > 1: whose true label is in the top k)."""
        if self.aggregate == "runoff":
            return float((self.answer == self._truth()).mean())
        return super().clean_accuracy

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict for each input."""
        return [
            {"index": int(i), "label": int(label), "radius": None if none else int(r), "abstained": bool(none)}
            for i, label, r, none in zip(self.index, self.label, self.radius, self.abstained, strict=True)
        ]

    def summary(self, radii: ArrayLike | None = None) -> dict[str, Any]:
        """The numbers of a table, as plain values; `radii`: round ones up to the largest certified, unless given."""
        from vauban.report.summary import nice_radii, number_or_none

        numbers: dict[str, Any] = {
            "inputs": len(self),
            "models": self.models,
            "aggregate": self.aggregate,
            "spread": self.spread,
            "k": self.k,
            "threat": self.threat.name,
            "unit": self.threat.unit,
            "abstained": self.undecided,
        }
        if self.truth is None:
            return numbers
        median, shown = self.median_radius, nice_radii(self) if radii is None else radii
        return numbers | {
            "base_accuracy": self.base_accuracy,
            "clean_accuracy": self.clean_accuracy,
            "median_radius": None if np.isnan(median) else int(median),
            "average_radius": number_or_none(self.average_radius),
            "certified": [{"radius": int(r), "accuracy": self.accuracy(int(r))} for r in np.asarray(shown)],
        }

    def _repr_html_(self) -> str:
        from vauban.report.poisoning import headers, rows
        from vauban.report.tables import claims_html

        summary = self.summary()
        title = f"{self.models:,} base classifiers, {self.aggregate}"
        return claims_html(self, title, headers(summary), rows(summary))


def derive(
    votes: EnsembleVotes,
    truth: ArrayLike | None = None,
    *,
    aggregate: str = "plurality",
    k: int = 1,
    label: str | None = None,
    index: ArrayLike | None = None,
    training: Mapping[str, Any] | None = None,
    altered: int = 0,
) -> PoisoningCertificates:
    """Certificates from votes: how many samples (or labels) of the training set may change while the label stays in the top k.

    `truth` [m]: the true labels. `label`: "votes" certifies the ensemble's answer; "given" the true label, abstaining where it
    is not in the top k. The default is "votes" for k = 1, else "given" if there are true labels. A run-off has one answer, so
    k = 1. `index` [m]: the number of each input in its data set; its position unless given.
    `training`: how the base classifiers were trained, as a manifest says. `altered`: certificates that hold also if this many
    base classifiers, trained anew, vote otherwise than `votes` says.
    """
    inputs, classes = votes.counts.shape
    right = None if truth is None else check_labels(truth, inputs, classes)
    settings = PoisoningSettings.of(classes, right is not None, aggregate=aggregate, k=k, label=label)
    answer = votes.answer(settings.aggregate)
    which = answer if settings.label == "votes" or right is None else right
    radii = _radii(votes, settings, which, answer, altered)
    return PoisoningCertificates(
        label=which,
        radius=np.where(radii < 0, np.nan, radii),
        abstained=radii < 0,
        answer=answer,
        counts=votes.counts,
        truth=right,
        k=settings.k,
        aggregate=settings.aggregate,
        spread=votes.spread,
        against=votes.against,
        index=check_index(index, inputs),
        scope=training_scope(training),
    )


def training_scope(training: Mapping[str, Any] | None) -> str:
    """Describes the training subset the certificate is about; empty if it is a whole data set."""
    data = None if training is None else training.get("data")
    if not isinstance(data, dict):
        return ""
    text = ""
    if data.get("classes"):
        text += (
            f" The training set is the samples of the classes {data['classes']}; relabelling one to another class than these is "
            "not covered."
        )
    if data.get("every", 1) != 1 or data.get("limit") or _split_by_position(data.get("spec")):
        text += " The training set is what was selected of the data set by position, before any change."
    if "originals_sha256" in data:
        text += (
            " Inputs are told apart by their original pictures: equal inputs made from different ones count one by one."
        )
    return text


def _split_by_position(spec: object) -> bool:
    """Whether this is every fifth row of a table, or the others: an added row moves those behind it from one to the other."""
    return isinstance(spec, str) and spec.startswith("table:") and Spec.parse(spec).params.get("split", "all") != "all"


def wording(threat: Threat, aggregate: str, k: int, scope: str = "") -> str:
    """What a radius guarantees, in words."""
    vote = "the vote's winner" if aggregate == "plurality" else "the run-off's winner"
    stays = f"the label stays {vote}" if k == 1 else f"the label stays among the top {k} of the vote"
    return (
        f"For each input that is not abstained {stays} of the ensemble trained anew, for every changed training set whose "
        f"{threat.metric} is at most its radius ({threat.unit}). Exact: no probability is involved.{scope}"
    )


def _radii(votes: EnsembleVotes, settings: PoisoningSettings, label: Ints, answer: Ints, altered: int) -> Ints:
    """Radii [m], -1 where nothing is certified. Without shared buckets a model that was altered costs as much as a changed
    bucket: the radius is smaller by one for each."""
    two_rounds, classes = settings.aggregate == "runoff", votes.counts.shape[1]
    if votes.spread == 1:
        if two_rounds:
            assert votes.beats is not None
            radii = runoff_radius(votes.counts, answer, votes.beats)
        else:
            radii = plurality_radius(votes.counts, label, settings.k)
        radii = np.maximum(radii - altered, -1)
    else:
        assert votes.ballots is not None
        if two_rounds and votes.prefers is None:
            raise BadInput("a run-off over shared samples needs every model's second-round vote: scores, or prefers")
        if votes.prefers is not None and two_rounds:
            radii = finite_runoff_radius(votes.ballots, classes, votes.spread, answer, votes.prefers, altered)
        else:
            radii = finite_radius(votes.ballots, classes, votes.spread, label, settings.k, altered)
    return np.where(label == answer, radii, -1) if two_rounds else radii
