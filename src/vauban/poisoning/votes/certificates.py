"""Derives certificates from the votes of an ensemble; exact, and without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.errors import BadInput
from vauban.laws.poisoning.finite import finite_radius, finite_runoff_radius
from vauban.laws.poisoning.partition import Ints, checked, plurality_radius, runoff_radius
from vauban.poisoning.votes.ensemble_votes import AGGREGATES, THREATS, EnsembleVotes
from vauban.specs import choose
from vauban.threats import Threat


@dataclass(frozen=True, eq=False)
class PoisoningCertificates:
    """Exact certificates for m inputs: how much of the training set may change while the label stays (in the top k).

    `label` [m]: the certified label. `radius` [m]: the certified size of the change, NaN where abstained. `answer` [m]: the
    ensemble's answer. `truth` [m]: the true labels, if known.
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
        """What a radius guarantees, in words."""
        return wording(self.threat, self.aggregate, self.k)

    def certified(self, r: float = 0) -> NDArray[np.bool_]:
        """Whether each input [m] is certified for its true label at radius r."""
        return (self.label == self._truth()) & ~self.abstained & (np.nan_to_num(self.radius, nan=-1.0) >= r)

    def accuracy(self, r: float = 0) -> float:
        """Fraction of all inputs certified for their true label at radius r."""
        return float(self.certified(r).mean())

    @property
    def median_radius(self) -> float:
        """Largest radius at which at least half of all inputs are certified; NaN if fewer than half are at any."""
        radii = np.sort(np.where(self.certified(), self.radius, -1.0))[::-1]
        middle = float(radii[(len(radii) + 1) // 2 - 1])
        return middle if middle >= 0 else float("nan")

    @property
    def clean_accuracy(self) -> float:
        """Fraction of inputs that the ensemble answers correctly (for k > 1: whose true label is in the top k)."""
        if self.k == 1:
            return float((self.answer == self._truth()).mean())
        return float((plurality_radius(self.counts, self._truth(), self.k) >= 0).mean())

    @property
    def base_accuracy(self) -> float:
        """Fraction of all votes for the true label: the mean accuracy of the base classifiers."""
        return float(self.counts[np.arange(len(self)), self._truth()].sum() / self.counts.sum())

    def rows(self, index: NDArray[np.int64]) -> list[dict[str, Any]]:
        """One plain dict for each input, with its index [m] in its data set."""
        return [
            {"index": int(i), "label": int(label), "radius": None if none else int(r), "abstained": bool(none)}
            for i, label, r, none in zip(index, self.label, self.radius, self.abstained, strict=True)
        ]

    def table_radii(self, most: int = 8) -> list[int]:
        """Round radii from 0 to the largest one, about `most` of them."""
        farthest = int(np.nanmax(self.radius, initial=0))
        steps = (digit * 10**power for power in range(10) for digit in (1, 2, 5))
        step = next(s for s in steps if farthest // s <= most)
        return list(range(0, farthest + 1, step))

    def summary(self, radii: ArrayLike | None = None) -> dict[str, Any]:
        """The numbers of a table, as plain values; `radii` are `table_radii` unless given."""
        numbers: dict[str, Any] = {
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
            return numbers
        median, shown = self.median_radius, self.table_radii() if radii is None else radii
        return numbers | {
            "base_accuracy": self.base_accuracy,
            "clean_accuracy": self.clean_accuracy,
            "median_radius": None if np.isnan(median) else int(median),
            "certified": [{"radius": int(r), "accuracy": self.accuracy(int(r))} for r in np.asarray(shown)],
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
    """Certificates from votes: how many samples (or labels) of the training set may change while the label stays in the top k.

    `label`: "votes" certifies the ensemble's answer; "given" the true label, abstaining where it is not in the top k. The
    default is "votes" for k = 1, else "given" if there are true labels. A run-off has one answer, so k = 1.
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


def check_request(
    inputs: int, num_classes: int, truth: ArrayLike | None, *, aggregate: str, k: int, label: str | None
) -> None:
    """Raise the errors that `derive` would raise whatever the votes, so that no model votes in vain."""
    choose("aggregate", aggregate, AGGREGATES)
    _check_runoff(aggregate, k)
    unanimous = np.zeros((inputs, num_classes), dtype=np.int64)
    unanimous[:, 0] = 1
    derive(EnsembleVotes(unanimous), truth, k=k, label=label)


def default_label(k: int, labelled: bool) -> str:
    """The label that is certified by default: "given" or "votes"."""
    return "given" if k > 1 and labelled else "votes"


def scope(training: Any) -> str:
    """Describes the training subset the certificate is about; empty if it is a whole data set."""
    data = training.get("data") if isinstance(training, dict) else None
    if not isinstance(data, dict):
        return ""
    text = ""
    if data.get("classes"):
        text += (
            f" The training set is the samples of the classes {data['classes']}; relabelling one to another class than these is "
            "not covered."
        )
    if data.get("every", 1) != 1 or data.get("limit"):
        text += " The training set is what was selected of the data set by position, before any change."
    return text


def wording(threat: Threat, aggregate: str, k: int, training: Any = None) -> str:
    """What a radius guarantees, in words."""
    vote = "the vote's winner" if aggregate == "plurality" else "the run-off's winner"
    stays = f"the label stays {vote}" if k == 1 else f"the label stays among the top {k} of the vote"
    return (
        f"For each input that is not abstained {stays} of the ensemble trained anew, for every changed training set whose "
        f"{threat.metric} is at most its radius ({threat.unit}). Exact: no probability is involved.{scope(training)}"
    )


def _check_runoff(aggregate: str, k: int) -> None:
    if aggregate == "runoff" and k != 1:
        raise BadInput(f"k={k}: a run-off has one answer, so only k=1 can be certified; plurality has a top {k}")


def _radii(votes: EnsembleVotes, aggregate: str, label: Ints, answer: Ints, k: int) -> Ints:
    if aggregate == "plurality":
        if votes.spread == 1:
            return plurality_radius(votes.counts, label, k)
        assert votes.ballots is not None
        return finite_radius(votes.ballots, votes.counts.shape[1], votes.spread, label, k)
    _check_runoff(aggregate, k)
    if votes.spread == 1:
        assert votes.beats is not None
        radii = runoff_radius(votes.counts, answer, votes.beats)
    else:
        assert votes.ballots is not None
        if votes.prefers is None:
            raise BadInput("a run-off over shared samples needs every model's second-round vote: scores, or prefers")
        radii = finite_runoff_radius(votes.ballots, votes.counts.shape[1], votes.spread, answer, votes.prefers)
    return np.where(label == answer, radii, -1)
