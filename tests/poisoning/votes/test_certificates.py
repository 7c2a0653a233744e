"""Certificates from votes: certified, certified for another label, and abstained."""

import numpy as np
import pytest

from vauban.poisoning.votes.certificates import derive
from vauban.poisoning.votes.ensemble_votes import EnsembleVotes


def test_three_outcomes_stay_apart() -> None:
    votes = EnsembleVotes.from_arrays({"counts": np.array([[5, 0, 0], [0, 5, 0], [0, 0, 5]])}, 3)
    truth = np.array([0, 0, 2])
    answer, given = derive(votes, truth), derive(votes, truth, label="given")
    assert answer.label.tolist() == [0, 1, 2]
    assert not answer.abstained.any()
    assert given.abstained.tolist() == [False, True, False]
    assert np.isnan(given.radius[1])
    assert answer.accuracy() == given.accuracy() == pytest.approx(2 / 3)
    assert given.median_radius == answer.median_radius == 2
    assert derive(votes, np.array([1, 2, 0])).summary([0])["median_radius"] is None
