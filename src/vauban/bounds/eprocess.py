"""The e-process for "the label's probability is at most p": a test that stays valid when it is checked after every vote.

For threshold p and N wins in t votes, with Jeffreys' prior Beta(1/2, 1/2) truncated to (p, 1],

    E_t(p) = mean over q > p of (q/p)^N ((1-q)/(1-p))^(t-N)
           = B(N+1/2, t-N+1/2) P[Beta(N+1/2, t-N+1/2) > p] / (2 arccos(sqrt p) p^N (1-p)^(t-N)).

If the true probability is at most p, every q > p makes a supermartingale that starts at 1, so E_t(p) ever reaches 1/alpha
with probability at most alpha ([Ville1939]), whatever the stopping rule.

**The p that are rejected form an interval.** Write l' = (N - t p) / (p (1-p)) for the slope of the log-likelihood and h for
the prior's density at p over its mass above p. Then dE/dp = h (E - 1) - l' E, and h p (1-p) = sin(2a) / (4a) <= 1/2 with
a = arccos(sqrt p). So E falls wherever N - t p > 1/2. Elsewhere p >= (N - 1/2) / t, and E <= max L(q) / L(p) over q > p, at
most (N / (N - 1/2))^N <= 2. Hence for alpha < 1/2 E falls wherever it is at least 1/alpha: going down from such a p it only
grows, {p: E_t(p) >= 1/alpha} is (0, p*], and p* is a lower confidence bound that holds simultaneously for all t.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincc, betaln, expit, logit, xlog1py, xlogy

from vauban.bounds.clopper_pearson import Floats, move_to_safe_side, tail_error
from vauban.errors import BadInput
from vauban.numerics import LOG_SUM

_NEWTON_STEPS = 8


def log_e(wins: ArrayLike, votes: ArrayLike, p: ArrayLike) -> Floats:
    """log E_t(p), rounded down; shapes broadcast. -inf where it is too small to compute.

    >>> round(float(log_e(50, 50, 0.8413)), 3)
    7.453
    """
    N, t = _checked(wins, votes)
    p = np.asarray(p, dtype=float)
    if not ((p >= 0) & (p < 1)).all():
        raise BadInput("p must be a probability of at least 0 and below 1")
    with np.errstate(divide="ignore", invalid="ignore"):
        return _log_e_of(N, t)(p)


def _log_e_of(N: NDArray[np.int64], t: NDArray[np.int64]) -> Callable[[Floats], Floats]:
    """`log_e` as a function of p, with what does not depend on p computed once; the caller silences NumPy's warnings."""
    won, lost, missed = N + 0.5, t - N + 0.5, t - N
    constant, rounding, tail = betaln(won, lost), LOG_SUM * (t + 1.0) * np.log(t + 3.0), tail_error(t)

    def value(p: Floats) -> Floats:
        posterior_tail = np.log(betaincc(won, lost, p))
        prior_tail = np.log(2 * np.arctan2(np.sqrt(1 - p), np.sqrt(p)))
        found = constant + posterior_tail - prior_tail - xlogy(N, p) - xlog1py(missed, -p)
        found = found - tail - rounding
        return np.where(np.isnan(found), -np.inf, found)

    return value


def lower_bound(wins: ArrayLike, votes: ArrayLike, alpha: float) -> Floats:
    """The largest p with E_t(p) >= 1/alpha, rounded down; 0 where there is none. Shapes of `wins`, `votes` broadcast.

    Valid with confidence 1 - alpha at every number of votes simultaneously, so the largest of all bounds seen so far is valid
    too, for a label fixed before the votes. Found by Newton's method on the log-odds of p, then E is evaluated at the result:
    a bad root cannot make the bound too large.

    >>> bool(0.85 < lower_bound(50, 50, 0.001) < 0.001 ** (1 / 50))
    True
    """
    _check_alpha(alpha)
    N, t = np.broadcast_arrays(*_checked(wins, votes))
    pairs, inverse = np.unique(np.stack([N.ravel(), t.ravel()]), axis=1, return_inverse=True)
    wins_, votes_ = pairs[0], pairs[1]
    with_wins = np.flatnonzero(wins_ > 0)
    p = np.zeros(len(wins_))
    if len(with_wins):
        p[with_wins] = _root(wins_[with_wins], votes_[with_wins], -math.log(alpha))
    return p[inverse.ravel()].reshape(N.shape)


def boundaries(p: float, looks: ArrayLike, alpha: float) -> NDArray[np.int64]:
    """Least number of wins [J] at each look with E_t(p) >= 1/alpha; votes + 1 where winning every vote is not enough.

    By bisection: for q > p more wins make every (q/p)^N ((1-q)/(1-p))^(t-N) larger, so E grows with the wins.
    """
    _check_alpha(alpha)
    votes = np.asarray(looks, dtype=np.int64)
    low, high = np.full(votes.shape, -1), votes + 1
    while (high - low > 1).any():
        middle = np.clip((low + high) // 2, 0, votes)
        enough = log_e(middle, votes, p) >= -math.log(alpha)
        open_ = high - low > 1
        low, high = np.where(open_ & ~enough, middle, low), np.where(open_ & enough, middle, high)
    return high


def least_votes(p: float, alpha: float) -> int:
    """The least number of votes that rejects p when all of them are won.

    >>> least_votes(0.5, 0.001)
    12
    """
    _check_alpha(alpha)

    def enough(n: int) -> bool:
        return bool(log_e(n, n, p) >= -math.log(alpha))

    high = 1
    while not enough(high):
        high *= 2
        if high > 1 << 60:
            raise BadInput(f"no number of votes can show a probability above {p!r}")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _root(wins: NDArray[np.int64], votes: NDArray[np.int64], target: float) -> Floats:
    """For each pair a p with log E >= target, close to the largest such p. wins > 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        N, t, log_e = wins.astype(float), votes.astype(float), _log_e_of(wins, votes)
        z_squared = 2 * (target + np.log(t + 1) / 2)
        p = (N + z_squared / 2 - np.sqrt(z_squared * (N * (t - N) / t + z_squared / 4))) / (t + z_squared)
        for _ in range(_NEWTON_STEPS):
            value = log_e(p)
            hazard = np.sqrt(p * (1 - p)) / (2 * np.arctan2(np.sqrt(1 - p), np.sqrt(p)))
            slope = hazard * -np.expm1(-np.maximum(value, 0.0)) - (N - t * p)
            step = np.where(slope < 0, (value - target) / slope, 1.0)
            p = expit(logit(p) - step.clip(-2.0, 2.0)).clip(1e-300, 1 - 2.0**-53)
        return move_to_safe_side(p, lambda q: log_e(np.minimum(q, 1 - 2.0**-53)) >= target, -1)


def _checked(wins: ArrayLike, votes: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    N, t = np.asarray(wins, dtype=np.int64), np.asarray(votes, dtype=np.int64)
    if (N < 0).any() or (t < 1).any() or (t < N).any():
        raise BadInput("wins must lie between 0 and the number of votes, and at least one vote is needed")
    return N, t


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 0.5:
        raise BadInput(f"alpha={alpha}: a test that may stop at any time needs alpha strictly between 0 and 1/2")
