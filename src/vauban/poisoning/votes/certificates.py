"""From the votes of an ensemble to claims about its training set; exact, and without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.certificates.finite import finite_radius, finite_runoff_radius
from vauban.certificates.partition import Ints, checked, plurality_radius, runoff_radius
from vauban.errors import BadInput
from vauban.poisoning.votes.ensemble_votes import THREATS, EnsembleVotes
from vauban.specs import choose
from vauban.threats import Threat


@dataclass(frozen=True, eq=False)
class PoisoningCertificates:
    """Claims for m inputs, each about an ensemble's answer under a changed training set; exact.

    `label` [m]: the label each claim is about. `radius` [m]: how much may change while it stays (in the top k), NaN where
    abstained. `answer` [m]: what the ensemble says. `truth` [m]: the true labels, if known.
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
    threat: Threat

    def __len__(self) -> int:
        return len(self.label)

    @property
    def claim(self) -> str:
        """In words, what a radius says of its input."""
        return wording(self.threat, self.aggregate, self.k)

    def certified(self, r: float = 0) -> NDArray[np.bool_]:
        """Which inputs [m] are certified for their true label at radius r."""
        return (self.label == self._truth()) & ~self.abstained & (np.nan_to_num(self.radius, nan=-1.0) >= r)

    def accuracy(self, r: float = 0) -> float:
        """Fraction of all inputs certified for their true label at radius r."""
        return float(self.certified(r).mean())

    @property
    def median_radius(self) -> float:
        """Largest radius at which at least half of all inputs are certified; NaN if fewer than half ever are."""
        radii = np.sort(np.where(self.certified(), self.radius, -1.0))[::-1]
        middle = float(radii[(len(radii) + 1) // 2 - 1])
        return middle if middle >= 0 else float("nan")

    @property
    def clean_accuracy(self) -> float:
        """Fraction of inputs that the ensemble answers rightly (for k > 1: whose true label is in the top k)."""
        if self.k == 1:
            return float((self.answer == self._truth()).mean())
        return float((plurality_radius(self.counts, self._truth(), self.k) >= 0).mean())

    @property
    def base_accuracy(self) -> float:
        """Fraction of all votes that went to the true label: how the base classifiers do, one by one."""
        return float(self.counts[np.arange(len(self)), self._truth()].sum() / self.counts.sum())

    def summary(self, radii: ArrayLike) -> dict[str, Any]:
        """Everything a table shows, as plain numbers."""
        told: dict[str, Any] = {
            "inputs": len(self),
            "models": int(self.counts[0].sum()),
            "aggregate": self.aggregate,
            "spread": self.spread,
            "k": self.k,
            "threat": self.threat.name,
            "unit": self.threat.unit,
            "abstained": float(self.abstained.mean()),
        }
        if self.truth is None:
            return told
        median = self.median_radius
        return told | {
            "base_accuracy": self.base_accuracy,
            "clean_accuracy": self.clean_accuracy,
            "median_radius": None if np.isnan(median) else int(median),
            "certified": [{"radius": int(r), "accuracy": self.accuracy(int(r))} for r in np.asarray(radii)],
        }

    def _truth(self) -> Ints:
        if self.truth is None:
            raise BadInput("accuracy needs the true labels: give y to certify, or use .radius directly")
        return self.truth


def derive(
    votes: EnsembleVotes,
    truth: ArrayLike | None = None,
    *,
    aggregate: str = "plurality",
    k: int = 1,
    label: str | None = None,
) -> PoisoningCertificates:
    """Claims from votes: how many samples (or labels) of the training set may change while the label stays in the top k.

    `label`: "votes" certifies what the ensemble answers, "given" the true label, abstaining where it is not in the top k; by
    default "votes" for k = 1, else "given" where there are true labels. A run-off has one answer, so k = 1.
    """
    answer = votes.answer(aggregate)
    right = None if truth is None else checked(votes.counts, truth, 1)[1]
    mode = default_label(k, right is not None) if label is None else choose("label", label, ("given", "votes"))
    if mode == "given" and right is None:
        raise BadInput("the true labels are to be certified, and there are none: give them, or take label=votes")
    which = answer if mode == "votes" or right is None else right
    radii = _radii(votes, aggregate, which, answer, k)
    return PoisoningCertificates(
        which,
        np.where(radii < 0, np.nan, radii),
        radii < 0,
        answer,
        votes.counts,
        right,
        k,
        aggregate,
        votes.spread,
        THREATS[votes.against],
    )


def default_label(k: int, labelled: bool) -> str:
    """Which label is certified unless somebody says otherwise."""
    return "given" if k > 1 and labelled else "votes"


def scope(training: Any) -> str:
    """What the training set is of which a claim speaks, where it is only a part of a data set."""
    data = training.get("data") if isinstance(training, dict) else None
    if not isinstance(data, dict):
        return ""
    said = ""
    if data.get("classes"):
        said += (
            f" The training set is the samples of the classes {data['classes']}; relabelling one to another class than these is "
            "not covered."
        )
    if data.get("every", 1) != 1 or data.get("limit"):
        said += " The training set is what was selected of the data set by position, before any change."
    return said


def wording(threat: Threat, aggregate: str, k: int, training: Any = None) -> str:
    """The claim in words."""
    vote = "the vote's winner" if aggregate == "plurality" else "the run-off's winner"
    stays = f"the label stays {vote}" if k == 1 else f"the label stays among the top {k} of the vote"
    return (
        f"For each input that is not abstained {stays} of the ensemble trained anew, for every changed training set whose "
        f"{threat.metric} is at most its radius ({threat.unit}). Exact: no probability is involved.{scope(training)}"
    )


def _radii(votes: EnsembleVotes, aggregate: str, label: Ints, answer: Ints, k: int) -> Ints:
    if aggregate == "plurality":
        if votes.spread == 1:
            return plurality_radius(votes.counts, label, k)
        assert votes.ballots is not None
        return finite_radius(votes.ballots, votes.counts.shape[1], votes.spread, label, k)
    if k != 1:
        raise BadInput(f"k={k}: a run-off has one answer, so only k=1 can be certified; plurality has a top {k}")
    if votes.spread == 1:
        assert votes.beats is not None
        radii = runoff_radius(votes.counts, answer, votes.beats)
    else:
        assert votes.ballots is not None
        if votes.prefers is None:
            raise BadInput("a run-off over shared samples needs every model's second-round vote: scores, or prefers")
        radii = finite_runoff_radius(votes.ballots, votes.counts.shape[1], votes.spread, answer, votes.prefers)
    return np.where(label == answer, radii, -1)
