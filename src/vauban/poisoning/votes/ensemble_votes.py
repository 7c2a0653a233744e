"""Holds the votes of an ensemble as compactly as certificates allow; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput
from vauban.laws.poisoning.finite import check_spread
from vauban.laws.poisoning.partition import LABELS, SAMPLES, Ints, checked, plurality, runoff, tally
from vauban.specs import choose

AGGREGATES = ("plurality", "runoff")
THREATS = {"samples": SAMPLES, "labels": LABELS}


@dataclass(frozen=True, eq=False)
class EnsembleVotes:
    """The votes of an ensemble on m inputs.

    `counts` [m, c]: votes per class. `ballots` [m, models]: every vote, needed where base classifiers share samples
    (spread > 1) and for claims about one poisoning against many inputs; None if not kept. For Run-Off: `winner` [m], and
    the number of models that prefer it to each class, `beats` [m, c], or with spread > 1 which ones, `prefers` uint8 [m, c,
    ceil(models / 8)]. `against`: what may be poisoned, "samples" or "labels".
    """

    counts: Ints
    spread: int = 1
    against: str = "samples"
    ballots: NDArray[np.integer] | None = None
    winner: Ints | None = None
    beats: Ints | None = None
    prefers: NDArray[np.uint8] | None = None

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, NDArray[Any]],
        num_classes: int,
        *,
        spread: int = 1,
        against: str = "samples",
        keep_votes: bool = False,
    ) -> EnsembleVotes:
        """Votes from arrays by name: `votes` or `counts`; for Run-Off `scores`, `duels`, or `winner` and `beats` or `prefers`.

        `keep_votes`: keep the vote of every model, where it is given, also if counts would do.
        """
        choose("threat", against, THREATS)
        scores = arrays.get("scores")
        ballots = arrays.get("votes")
        if scores is not None:
            ballots = _ballots_from(scores, num_classes, ballots)
        counts = _counts_from(arrays.get("counts"), ballots, num_classes)
        models = int(counts[0].sum())
        check_spread(models, spread)
        if spread > 1 and ballots is None:
            raise BadInput(
                f"spread={spread} needs the vote of every model: give votes [inputs, {models}], not counts alone"
            )
        first_round = cls(counts, spread, against, ballots if spread > 1 or keep_votes else None)
        if scores is not None:
            return first_round._with_scores(scores)
        if "duels" in arrays:
            return first_round._with_duels(arrays["duels"])
        if "winner" not in arrays:
            return first_round
        name = "prefers" if spread > 1 else "beats"
        if name not in arrays:
            raise BadInput(f"winner is given without {name}: the second round cannot be counted")
        if any(arrays[key].dtype.kind not in "iu" for key in ("winner", name)):
            raise BadInput(f"winner and {name} must be whole numbers")
        winner = np.asarray(arrays["winner"]).astype(np.int64)
        if spread > 1:
            return replace(first_round, winner=winner, prefers=arrays[name])
        return replace(first_round, winner=winner, beats=arrays[name].astype(np.int64))

    @property
    def models(self) -> int:
        """The number of base classifiers."""
        return int(self.counts[0].sum())

    def answer(self, aggregate: str = "plurality") -> Ints:
        """The ensemble's answers [m]."""
        if choose("aggregate", aggregate, AGGREGATES) == "plurality":
            return plurality(self.counts)
        if self.winner is None:
            raise BadInput(
                "a run-off needs second-round votes: scores [inputs, models, classes], or duels between classes"
            )
        return self.winner

    def arrays(self, aggregate: str) -> dict[str, NDArray[Any]]:
        """The arrays that certificates of this aggregate need, and no others."""
        one_by_one = self.ballots is not None and (self.spread > 1 or aggregate == "plurality")
        names = ["votes"] if one_by_one else ["counts"]
        if aggregate == "runoff":
            self.answer(aggregate)
            names += ["winner", "prefers" if self.spread > 1 else "beats"]
        available = {
            "counts": self.counts,
            "votes": self.ballots,
            "winner": self.winner,
            "beats": self.beats,
            "prefers": self.prefers,
        }
        return {name: _small(array) for name in names if (array := available[name]) is not None}

    def _with_duels(self, duels: NDArray[Any]) -> EnsembleVotes:
        (m, c), table = self.counts.shape, np.asarray(duels)
        if table.shape != (m, c, c) or table.dtype.kind not in "iu":
            raise BadInput(f"duels of shape {table.shape}, {table.dtype}: whole numbers [{m}, {c}, {c}] are needed")
        both = table.astype(np.int64) + table.transpose(0, 2, 1)
        if (both[:, ~np.eye(c, dtype=bool)] != self.models).any():
            raise BadInput(f"duels do not add up: every one of {self.models} models prefers one of two classes")
        if self.spread > 1:
            return self
        winner = runoff(self.counts, table)
        beats = table[np.arange(m), winner].astype(np.int64)
        beats[np.arange(m), winner] = 0
        return replace(self, winner=winner, beats=beats)

    def _with_scores(self, scores: NDArray[Any]) -> EnsembleVotes:
        m, _, c = scores.shape
        values = _ranked(scores)
        duels = np.empty((m, c, c), dtype=np.int64)
        for a in range(c):
            duels[:, a] = _above(values, values[:, :, a], np.full(m, a)).sum(axis=1)
        if self.spread == 1:
            return self._with_duels(duels)
        winner = runoff(self.counts, duels)
        own = values[np.arange(m), :, winner]
        bits = _above(values, own, winner).transpose(0, 2, 1)
        return replace(self, winner=winner, prefers=np.packbits(bits, axis=2))


def _counts_from(counts: NDArray[Any] | None, ballots: NDArray[Any] | None, num_classes: int) -> Ints:
    if ballots is not None:
        table = tally(ballots, num_classes)
    elif counts is not None:
        table = checked(counts, None, 1)[0]
    else:
        raise BadInput("there are no votes: an array `votes` [inputs, models] or `counts` [inputs, classes] is needed")
    if table.shape[1] != num_classes:
        raise BadInput(f"counts of {table.shape[1]} classes, and num_classes says {num_classes}")
    if counts is not None and not np.array_equal(table, counts):
        raise BadInput("counts are not those of the votes beside them: leave one of them out")
    return table


def _ballots_from(scores: NDArray[Any], num_classes: int, ballots: NDArray[Any] | None) -> NDArray[Any]:
    if scores.ndim != 3 or scores.shape[2] != num_classes or scores.dtype.kind not in "iuf" or scores.size == 0:
        raise BadInput(f"scores of shape {scores.shape}, {scores.dtype}: [inputs, models, {num_classes}] are needed")
    chosen = _ranked(scores).argmax(axis=2)
    if ballots is not None and not np.array_equal(chosen, ballots):
        raise BadInput("votes are not those of the scores beside them (largest score, ties to the smaller class)")
    return chosen


def _ranked(scores: NDArray[Any]) -> NDArray[Any]:
    """Scores [m, models, c] without NaN: a model with a NaN among its scores of an input gives every class 0."""
    return np.where(np.isnan(scores).any(axis=2, keepdims=True), 0, scores) if scores.dtype.kind == "f" else scores


def _above(values: NDArray[Any], own: NDArray[Any], which: Ints) -> NDArray[np.bool_]:
    """Whether each model scores class `which` [m], with scores `own` [m, models], above every class [m, models, c]."""
    classes = np.arange(values.shape[2])
    return (own[:, :, None] > values) | ((own[:, :, None] == values) & (which[:, None, None] < classes))


def _small(array: NDArray[Any]) -> NDArray[Any]:
    """The same whole numbers in the smallest unsigned type."""
    most = int(array.max(initial=0))
    kind = next((t for t in (np.uint8, np.uint16) if most <= np.iinfo(t).max), np.uint32)
    return array.astype(kind)
