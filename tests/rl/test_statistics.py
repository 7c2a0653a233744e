"""Intervals of few seeds: what they are of, and that they cover."""

import numpy as np
import pytest

from vauban.errors import BadInput
from vauban.rl.statistics import difference, estimate, interquartile_mean


def test_the_interquartile_mean_ignores_the_lowest_and_the_highest_quarter() -> None:
    assert interquartile_mean(np.array([-50.0, 1.0, 2.0, 3.0, 90.0])) == 2
    assert interquartile_mean(np.array([0.0, 1.0, 3.0, 9.0])) == 2
    assert interquartile_mean(np.array([7.0])) == 7


def test_seeds_are_drawn_within_each_environment() -> None:
    easy, hard = np.full(5, 0.9), np.full(5, 0.1)
    whole = estimate([easy, hard])
    assert whole.value == whole.low == whole.high == pytest.approx(0.5)  # unstratified it would spread
    mixed = estimate([np.concatenate([easy, hard])])
    assert mixed.low < 0.4 < 0.6 < mixed.high
    assert difference([easy], [hard]).low == pytest.approx(0.8)


def test_intervals_are_the_same_each_time_and_mostly_cover_the_mean() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(60):
        scores = rng.normal(0.5, 0.1, 20)
        found = estimate([scores])
        assert found == estimate([scores])
        covered += found.low <= 0.5 <= found.high
    assert 48 <= covered <= 60


def test_one_seed_has_no_interval_and_none_is_refused() -> None:
    alone = estimate([np.array([0.3])])
    assert alone.value == 0.3
    assert np.isnan(alone.low)
    with pytest.raises(BadInput, match="at least one score"):
        estimate([np.array([])])
