"""One-sided Clopper-Pearson bounds on a binomial probability, rounded to the safe side. [Clopper1934]"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincc, betainccinv, betaincinv

from vauban.errors import BadInput
from vauban.numerics import BOUND_STEP, TAIL, TAIL_TRIALS

Floats = NDArray[np.float64]


def lower_bound(wins: ArrayLike, n: int, alpha: float) -> Floats:
    """Largest p below which `wins` or more out of `n` has probability at most `alpha`; 0 for no wins.

    Valid with confidence 1 - alpha for a label and an `n` fixed before the votes were drawn. `wins` has any shape, the
    result the same. The tail is evaluated again at the result, so a bad inverse cannot make the bound too large.

    >>> bool(lower_bound(10, 10, 0.001) <= 0.001 ** (1 / 10))
    True
    """
    wins = _checked(wins, n, alpha)
    counts, inverse = np.unique(wins, return_inverse=True)
    won = np.maximum(counts, 1)
    p = move_to_safe_side(
        betaincinv(won, n - won + 1, alpha), lambda q: betainc(won, n - won + 1, q) <= alpha * (1 - tail_error(n)), -1
    )
    return np.where(counts == 0, 0.0, p)[inverse].reshape(wins.shape)


def upper_bound(wins: ArrayLike, n: int, alpha: float) -> Floats:
    """Smallest p above which `wins` or fewer out of `n` has probability at most `alpha`; 1 if every vote was won."""
    wins = _checked(wins, n, alpha)
    counts, inverse = np.unique(wins, return_inverse=True)
    won = np.minimum(counts, n - 1)
    p = move_to_safe_side(
        betainccinv(won + 1, n - won, alpha), lambda q: betaincc(won + 1, n - won, q) <= alpha * (1 - tail_error(n)), +1
    )
    return np.where(counts >= n, 1.0, p)[inverse].reshape(wins.shape)


def tail_error(n: ArrayLike) -> Floats:
    """Relative error of SciPy's tails of the beta and binomial laws of n trials, at most; n is at most 2^53, where it is 1/2."""
    return np.asarray(TAIL * np.clip(np.asarray(n, dtype=float) / TAIL_TRIALS, 1.0, 2.0**35))


def _checked(wins: ArrayLike, n: int, alpha: float) -> NDArray[np.int64]:
    counts = np.asarray(wins, dtype=np.int64)
    if n < 1 or (counts < 0).any() or (counts > n).any() or not 0 < alpha < 1:
        raise BadInput(f"wins must lie between 0 and n={n}, n be at least 1 and alpha={alpha} strictly between 0 and 1")
    return counts


def move_to_safe_side(p: Floats, is_valid: Callable[[Floats], NDArray[np.bool_]], direction: int) -> Floats:
    """Move each p one small step down (direction -1) or up (+1), then in growing steps until it is valid."""
    step = BOUND_STEP

    def one_step(q: Floats) -> Floats:
        return np.clip(q + direction * step * np.where(q < 0.5, q, np.maximum(1 - q, 2.0**-53)), 0.0, 1.0)

    moved = one_step(np.where(np.isnan(p), (direction + 1) / 2, p))
    while not (valid := is_valid(moved)).all():
        step *= 2
        moved = np.where(valid, moved, one_step(moved))
    return moved
