"""One-sided Clopper-Pearson bounds on a binomial probability, rounded toward safety. [Clopper1934]"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincc, betainccinv, betaincinv

Floats = NDArray[np.float64]

_STEP = 2.0**-44


def lower_bound(wins: ArrayLike, n: int, alpha: float) -> Floats:
    """Largest p below which `wins` or more out of `n` has probability at most `alpha`; 0 for no wins.

    Valid with confidence 1 - alpha for a label and an `n` fixed before the votes were drawn. `wins` has any shape, the
    result the same. The tail is evaluated again at the answer, so a bad inverse cannot make the bound too large.

    >>> bool(lower_bound(10, 10, 0.001) <= 0.001 ** (1 / 10))
    True
    """
    wins = np.asarray(wins, dtype=np.int64)
    counts, where = np.unique(wins, return_inverse=True)
    some = np.maximum(counts, 1)
    p = betaincinv(some, n - some + 1, alpha) * (1 - _STEP)
    p = _settle(p, lambda q: betainc(some, n - some + 1, q) <= alpha, toward=0.0)
    return np.where(counts == 0, 0.0, p)[where].reshape(wins.shape)


def upper_bound(wins: ArrayLike, n: int, alpha: float) -> Floats:
    """Smallest p above which `wins` or fewer out of `n` has probability at most `alpha`; 1 if every vote was won."""
    wins = np.asarray(wins, dtype=np.int64)
    counts, where = np.unique(wins, return_inverse=True)
    some = np.minimum(counts, n - 1)
    p = np.minimum(betainccinv(some + 1, n - some, alpha) * (1 + _STEP), 1.0)
    p = _settle(p, lambda q: betaincc(some + 1, n - some, q) <= alpha, toward=1.0)
    return np.where(counts >= n, 1.0, p)[where].reshape(wins.shape)


def _settle(p: Floats, holds: Callable[[Floats], NDArray[np.bool_]], toward: float) -> Floats:
    """Move each p that does not pass its own tail test toward the safe end, in growing steps, until it does."""
    step = _STEP
    while not (good := holds(p)).all():
        p = np.where(good, p, p + (toward - p) * step)
        step = min(2 * step, 1.0)
    return p
