"""Intervals for scores of few seeds: interquartile mean and stratified bootstrap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import trim_mean

from vauban.errors import BadInput

Scores = Sequence[NDArray[np.float64]]
_REPEATS, _LEVEL, _SEED = 5_000, 0.95, 0


@dataclass(frozen=True)
class Estimate:
    """A statistic and its percentile bootstrap interval; `low` and `high` are NaN where a group has fewer than two seeds."""

    value: float
    low: float
    high: float


def mean(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean over the last axis."""
    return np.asarray(scores.mean(axis=-1))


def interquartile_mean(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean over the last axis without its lowest and its highest quarter, rounded down to whole scores [Agarwal2021].

    >>> float(interquartile_mean(np.array([0.0, 1.0, 2.0, 3.0, 100.0])))
    2.0
    """
    return np.asarray(trim_mean(scores, 0.25, axis=-1))


def estimate(scores: Scores, statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]] = mean) -> Estimate:
    """A statistic of all scores pooled, with a 95 % interval from the stratified bootstrap [Agarwal2021].

    `scores` has one array for each environment, over seeds: a repetition draws as many seeds from each as it has, with
    replacement. The same scores always give the same interval. With five seeds it is rough, and tends to be too short.
    """
    groups = _groups(scores)
    value = float(statistic(np.concatenate(groups)))
    return _interval(value, statistic(_drawn(groups, np.random.default_rng(_SEED))), groups)


def difference(
    scores: Scores, others: Scores, statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]] = mean
) -> Estimate:
    """The statistic of `scores` less that of `others`, both drawn anew in each repetition, independently."""
    groups, against, rng = _groups(scores), _groups(others), np.random.default_rng(_SEED)
    value = float(statistic(np.concatenate(groups)) - statistic(np.concatenate(against)))
    drawn = statistic(_drawn(groups, rng)) - statistic(_drawn(against, rng))
    return _interval(value, drawn, [*groups, *against])


def _groups(scores: Scores) -> list[NDArray[np.float64]]:
    groups = [np.asarray(one, float).ravel() for one in scores]
    if not groups or not all(len(one) for one in groups):
        raise BadInput("an interval needs at least one score in every group")
    return groups


def _drawn(groups: list[NDArray[np.float64]], rng: np.random.Generator) -> NDArray[np.float64]:
    """Scores (repetitions, all seeds) drawn with replacement within each group."""
    return np.concatenate([one[rng.integers(0, len(one), (_REPEATS, len(one)))] for one in groups], axis=1)


def _interval(value: float, drawn: NDArray[np.float64], groups: list[NDArray[np.float64]]) -> Estimate:
    if min(map(len, groups)) < 2:
        return Estimate(value, float("nan"), float("nan"))
    low, high = np.quantile(drawn, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Estimate(value, float(low), float(high))
