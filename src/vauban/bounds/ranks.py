"""The top-k labels of a vote: rank verification by two-sided binomial tests of neighbours. [Hung2019], [Jia2020] PREDICT"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc

from vauban.bounds.clopper_pearson import Floats, tail_error

_INEXACT_ABOVE = (
    1_000  # tosses above which SciPy's tails are wrong by more than one rounding, though by less than `tail_error`
)


def two_sided_p(wins: ArrayLike, total: ArrayLike) -> Floats:
    """Two-sided p-value, never too small, of `wins` out of `total` fair coin tosses (1 where there was no toss); any shape.

    >>> float(two_sided_p(11, 11)) == 2 * 0.5**11
    True
    """
    total = np.asarray(total, dtype=np.int64)
    most = np.maximum(np.asarray(wins, dtype=np.int64), total - np.asarray(wins, dtype=np.int64))
    tail = betainc(np.maximum(most, 1), total - most + 1, 0.5)
    tail = np.where(total > _INEXACT_ABOVE, tail * (1 + tail_error(total)), tail)
    return np.where(2 * most == total, 1.0, np.minimum(1.0, 2 * tail))


def leaders(counts: ArrayLike, k: int, alpha: float) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The k most voted labels [m, k] in order, and which rows [m] are undecided.

    A row is decided if each of its first k labels beats the next one at level alpha; then with probability at least
    1 - alpha these are the smoothed classifier's top k. [Jia2020] Proposition 1
    """
    counts = np.asarray(counts, dtype=np.int64)
    order = np.argsort(-counts, axis=1, kind="stable")[:, : k + 1]
    votes = np.take_along_axis(counts, order, axis=1)
    p = two_sided_p(votes[:, :-1], votes[:, :-1] + votes[:, 1:])
    decided: NDArray[np.bool_] = np.all(p <= alpha, axis=1)
    return order[:, :k].astype(np.int64), ~decided


def least_votes(k: int, alpha: float) -> int:
    """The least n at which PREDICT can decide k labels: the best case, built rank by rank from the last one up.

    >>> [least_votes(k, 0.001) for k in (1, 2, 3)]
    [11, 45, 113]
    """
    behind, total = 0, 0
    for _ in range(k):
        ahead = behind + 1
        while two_sided_p(ahead, ahead + behind) > alpha:
            ahead += 1
        behind, total = ahead, total + ahead
    return total


def least_votes_with(deviation: float, k: int, alpha: float) -> int | None:
    """The least n at which PREDICT can decide k labels where every vote takes `deviation` off alpha; None if no n can.

    What n votes leave of alpha needs least_votes of them; more votes leave less, so the first n that is enough is the least.

    >>> [least_votes_with(d, 1, 0.001) for d in (0.0, 5e-5, 1e-4)]
    [11, 13, None]
    """
    n = 0
    while (left := alpha - n * deviation) > 0:
        least = least_votes(k, left)
        if least <= n:
            return n
        n = least
    return None
