"""Futility boundaries: counts at which a claim has become too unlikely to be worth more votes. They use no alpha."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincc

FUTILE_BELOW = 1e-4


def futility(looks: Sequence[int], last: int, chance: float = FUTILE_BELOW) -> NDArray[np.int64]:
    """Most wins [J] at each look for which `last` wins at the last look are less likely than `chance`; -1 where none are.

    The predictive probability under Jeffreys' prior Beta(1/2, 1/2): wins still to come are beta-binomial, approximated by the
    beta law of the same mean and variance. No claim depends on it: the test's boundaries hold whether or not sampling stops
    early, so the approximation can cost votes or certificates and never soundness.

    >>> futility((10, 100, 1000), 900).tolist()
    [4, 78, 899]
    """
    votes = np.asarray(looks, dtype=np.int64)
    low, high = np.full(votes.shape, -1), votes + 1
    while (open_ := high - low > 1).any():
        middle = (low + high) // 2
        futile = _predictive_probability(np.clip(middle, 0, votes), votes, last) < chance
        low, high = np.where(open_ & futile, middle, low), np.where(open_ & ~futile, middle, high)
    return low


def _predictive_probability(wins: NDArray[np.int64], votes: NDArray[np.int64], last: int) -> NDArray[np.float64]:
    """The predictive probability [J] of at least `last` wins in total after votes[-1] votes."""
    left = votes[-1] - votes
    missing = last - wins
    mean = (wins + 0.5) / (votes + 1.0)
    concentration = np.where(left > 0, left * (votes + 2.0) / (votes + 1.0 + left) - 1.0, 1.0)
    concentration = np.maximum(concentration, 1e-3)
    fraction = np.clip((missing - 0.5) / np.maximum(left, 1), 0.0, 1.0)
    chance = betaincc(mean * concentration, (1 - mean) * concentration, fraction)
    return np.where(missing <= 0, 1.0, np.where(missing > left, 0.0, chance))
