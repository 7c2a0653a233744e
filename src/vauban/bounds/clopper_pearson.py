"""One-sided Clopper-Pearson bounds on a binomial probability, rounded toward safety. [Clopper1934]"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincc, betainccinv, betaincinv

from vauban.errors import BadInput
from vauban.numerics import BOUND_STEP, TAIL

Floats = NDArray[np.float64]


def lower_bound(wins: ArrayLike, n: int, alpha: float) -> Floats:
    """Largest p below which `wins` or more out of `n` has probability at most `alpha`; 0 for no wins.

    Valid with confidence 1 - alpha for a label and an `n` fixed before the votes were drawn. `wins` has any shape, the
    result the same. The tail is evaluated again at the answer, so a bad inverse cannot make the bound too large.

    >>> bool(lower_bound(10, 10, 0.001) <= 0.001 ** (1 / 10))
    True
    """
    wins = _checked(wins, n, alpha)
    counts, where = np.unique(wins, return_inverse=True)
    some = np.maximum(counts, 1)
    p = _settle(
        betaincinv(some, n - some + 1, alpha), lambda q: betainc(some, n - some + 1, q) <= alpha * (1 - TAIL), -1
    )
    return np.where(counts == 0, 0.0, p)[where].reshape(wins.shape)


def upper_bound(wins: ArrayLike, n: int, alpha: float) -> Floats:
    """Smallest p above which `wins` or fewer out of `n` has probability at most `alpha`; 1 if every vote was won."""
    wins = _checked(wins, n, alpha)
    counts, where = np.unique(wins, return_inverse=True)
    some = np.minimum(counts, n - 1)
    p = _settle(
        betainccinv(some + 1, n - some, alpha), lambda q: betaincc(some + 1, n - some, q) <= alpha * (1 - TAIL), +1
    )
    return np.where(counts >= n, 1.0, p)[where].reshape(wins.shape)


def _checked(wins: ArrayLike, n: int, alpha: float) -> NDArray[np.int64]:
    counts = np.asarray(wins, dtype=np.int64)
    if n < 1 or (counts < 0).any() or (counts > n).any() or not 0 < alpha < 1:
        raise BadInput(f"wins must lie between 0 and n={n}, n be at least 1 and alpha={alpha} strictly between 0 and 1")
    return counts


def _settle(p: Floats, holds: Callable[[Floats], NDArray[np.bool_]], direction: int) -> Floats:
    """Move each p a little to the safe side, and on in growing steps until it passes its own tail test."""
    step = BOUND_STEP

    def further(q: Floats) -> Floats:
        return np.clip(q + direction * step * np.where(q < 0.5, q, np.maximum(1 - q, 2.0**-53)), 0.0, 1.0)

    moved = further(np.where(np.isnan(p), (direction + 1) / 2, p))
    while not (good := holds(moved)).all():
        step *= 2
        moved = np.where(good, moved, further(moved))
    return moved
