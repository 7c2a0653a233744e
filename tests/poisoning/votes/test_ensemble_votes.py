"""Votes: counted on the device as a person would count them, and kept only as far as claims need them."""

from typing import Any

import numpy as np
import pytest
import torch

from vauban.errors import BadInput
from vauban.poisoning.votes.certificates import derive
from vauban.poisoning.votes.counting import PreferenceCounter, VoteCounter, smallest
from vauban.poisoning.votes.ensemble_votes import EnsembleVotes

RNG = np.random.default_rng(0)
MODELS, INPUTS, CLASSES = 12, 7, 4


def scores_with_ties() -> np.ndarray:
    """Scores [inputs, models, classes] on a coarse grid, so that many are equal; a few are NaN, one model is all NaN."""
    scores = RNG.integers(0, 3, size=(INPUTS, MODELS, CLASSES)).astype(np.float32)
    scores[2, 3, 1] = np.nan
    scores[4, 5] = np.nan
    return scores


def prefers(row: np.ndarray, a: int, b: int) -> bool:
    """Whether a model with these scores puts class a above class b, said slowly."""
    one, other = (0 if np.isnan(row).any() else row[c] for c in (a, b))
    return bool(one > other or (one == other and a < b))


def slow(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    votes = np.array(
        [
            [
                next(a for a in range(CLASSES) if all(prefers(row, a, b) for b in range(CLASSES) if b != a))
                for row in rows
            ]
            for rows in scores
        ]
    )
    duels = np.zeros((INPUTS, CLASSES, CLASSES), dtype=int)
    for i, rows in enumerate(scores):
        for a in range(CLASSES):
            for b in range(CLASSES):
                duels[i, a, b] = sum(prefers(row, a, b) for row in rows) if a != b else 0
    return votes, duels


def test_ballots_are_counted_as_a_person_would() -> None:
    scores = scores_with_ties()
    votes, duels = slow(scores)
    ballots = VoteCounter(INPUTS, CLASSES, MODELS + 2, duels=True, votes=True)
    stacked = torch.from_numpy(scores).permute(1, 0, 2)
    for numbers in ([0, 3, 4], [1, 2], list(range(5, 12))):
        ballots.add(numbers, stacked[numbers, :4], 0)
        ballots.add(numbers, stacked[numbers, 4:], 4)
    with pytest.raises(BadInput, match="12 of 14 models"):
        ballots.arrays()
    ballots.add_constant([12, 13])
    arrays = ballots.arrays()
    assert np.array_equal(arrays["votes"][:, :12], votes)
    assert (arrays["votes"][:, 12:] == 0).all()
    smaller_first = np.triu(np.full((CLASSES, CLASSES), 2), 1)
    assert np.array_equal(arrays["duels"], duels + smaller_first)
    expected = np.stack([(arrays["votes"] == c).sum(axis=1) for c in range(CLASSES)], axis=1)
    assert np.array_equal(arrays["counts"], expected)


@pytest.mark.parametrize("spread", [1, 3])
def test_scores_duels_and_packed_bits_agree(spread: int) -> None:
    scores = scores_with_ties()
    votes, duels = slow(scores)
    whole = EnsembleVotes.from_arrays({"scores": scores}, CLASSES, spread=spread)
    assert whole.winner is not None
    preferences = PreferenceCounter(whole.winner, CLASSES, MODELS)
    stacked = torch.from_numpy(scores).permute(1, 0, 2)
    preferences.add([0, 2, 4], stacked[[0, 2, 4]])
    preferences.add([1, 3, *range(5, 12)], stacked[[1, 3, *range(5, 12)]])
    bits = np.unpackbits(preferences.packed(), axis=2, count=MODELS)
    for i, rows in enumerate(scores):
        winner = int(whole.winner[i])
        for c in range(CLASSES):
            assert bits[i, c].tolist() == [c != winner and prefers(row, winner, c) for row in rows]
    if spread == 1:
        pieces: dict[str, Any] = {"counts": whole.counts, "duels": duels}
    else:
        pieces = {"votes": votes, "winner": whole.winner, "prefers": preferences.packed()}
    again = EnsembleVotes.from_arrays(pieces, CLASSES, spread=spread)
    assert np.array_equal(derive(whole, aggregate="runoff").radius, derive(again, aggregate="runoff").radius)
    kept = again.arrays("runoff")
    third = EnsembleVotes.from_arrays(kept, CLASSES, spread=spread)
    assert np.array_equal(derive(third, aggregate="runoff").radius, derive(whole, aggregate="runoff").radius)
    assert set(kept) == ({"counts", "winner", "beats"} if spread == 1 else {"votes", "winner", "prefers"})
    assert set(whole.arrays("plurality")) == ({"counts"} if spread == 1 else {"votes"})


def test_types_are_as_small_as_can_be() -> None:
    assert smallest(255) is np.uint8
    assert smallest(256) is np.uint16
    assert smallest(65536) is np.uint32
    assert (
        EnsembleVotes.from_arrays({"counts": np.array([[300, 0]])}, 2).arrays("plurality")["counts"].dtype == np.uint16
    )


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"counts": np.array([[2, 1]]), "duels": np.zeros((1, 2, 2), int)}, "do not add up"),
        ({"counts": np.array([[2, 1]]), "duels": np.zeros((1, 2), int)}, "\\[1, 2, 2\\]"),
        ({"counts": np.array([[2, 1]]), "votes": np.array([[0, 1, 1]])}, "not those of the votes"),
        ({"votes": np.array([[1]]), "scores": np.array([[[3.0, 1.0]]])}, "not those of the scores"),
        ({"scores": np.array([[3.0, 1.0]])}, "scores of shape"),
        ({"counts": np.array([[2, 1]]), "winner": np.array([0])}, "without beats"),
    ],
)
def test_votes_that_contradict_themselves_are_refused(arrays: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        EnsembleVotes.from_arrays(arrays, 2)


def test_wrong_scores_are_refused() -> None:
    ballots = VoteCounter(3, 4, 2)
    with pytest.raises(BadInput, match="scores of shape"):
        ballots.add([0], torch.zeros(1, 3, 5))
    with pytest.raises(BadInput, match="models, inputs, classes"):
        ballots.add([0], torch.zeros(3, 4))
