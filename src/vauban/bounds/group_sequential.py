"""An exact test of "the label's probability is at most p" that looks at the votes at sample sizes fixed beforehand.

At look j, after N_j votes, the claim is made if at least c_j of them are wins. Looks and spends s_1, ..., s_J are fixed before
any vote; c_j is the least count for which the probability of crossing there for the first time, under p itself, is within
s_j and what earlier looks left unspent. The chance of ever crossing is then at most s_1 + ... + s_J <= alpha under p, and
under every smaller probability too: a vote that is won there is won under p, so counts can only be lower. Stopping early
without a claim costs nothing.

**Rounding.** Floats with unit u = 2^-53; every number is non-negative and only sums, products and quotients are made of them,
so relative errors add up (a sum of K terms, in any order, loses at most K u) and nothing cancels.
- A look's new votes are Binomial(m, p). Weights r start with 1 at the most likely count and go on by the ratio
  (m-s)/(s+1) * p/(1-p): five roundings a step. The probability of s is r(s) over the sum of all weights, at most r(s) over
  the sum of those kept. With W kept weights that is wrong by at most (5 W) + (5 W + W) + 1 roundings.
- What is not kept weighs, by log-concavity, at most the last kept weight times ratio / (1 - ratio) on each side.
- One convolution with W terms loses W + 1 roundings, one tail over L counts L more.
Each look's probabilities are multiplied by 1 + 2 (14 W + L + 32) u, which covers these and their products. Mass that is
dropped (not kept above, or at the ends of the range) is added to what has been spent, as if all of it crossed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.numerics import DROPPED, SPENT_DOWN

MOST_VOTES = 10**7

EARLY = 0.04  # of alpha, for all looks but the last
POWER = 0.5
PER_DECADE = 10
FIRST = 20

_SMALLEST = 1e-12
_MOST_LOOKS = 1000


def geometric_looks(n: int, first: int = FIRST, per_decade: int = PER_DECADE) -> tuple[int, ...]:
    """Looks from about `first` votes to n, each 10^(1/per_decade) times the one before, the last at n.

    >>> geometric_looks(100)
    (25, 32, 40, 50, 63, 79, 100)
    """
    if n < 1:
        raise BadInput(f"n={n}: at least one vote is needed")
    back = max(0, math.floor(per_decade * math.log10(max(n / first, 1)) + 1e-9))
    return tuple(sorted({round(n / 10 ** (i / per_decade)) for i in range(back + 1)}))


def spending(looks: Sequence[int], alpha: float, early: float = EARLY, power: float = POWER) -> Floats:
    """Spends [J]: by look j the part early * (N_j / n)^power of alpha may be spent, and at the last look the rest.

    So nearly all alpha is left for the last look, whose boundary is that of the fixed test or a count above, and what the
    sequence certifies is what n votes would. Spending early is cheap all the same: the votes needed grow with the logarithm
    of the spend. The defaults are near the best on 500 published inputs, and the best is flat there (`vauban.bench.votes`).
    """
    part = early * (np.asarray(looks, dtype=float) / looks[-1]) ** power
    part[-1] = 1.0
    return np.diff(part, prepend=0.0) * alpha


def boundaries(p: float, looks: Sequence[int], alpha: float, spending: ArrayLike) -> NDArray[np.int64]:
    """Least wins c_j [J] that make the claim at each look; N_j + 1 where no count does.

    `looks` [J] rising, `spending` [J] with a sum of at most alpha.

    >>> boundaries(0.5, (10, 20), 0.05, (0.025, 0.025)).tolist()
    [9, 15]
    """
    looks, spends = _checked(p, looks, alpha, spending)
    return _solve(float(p), looks, float(alpha), spends).copy()


def least_votes(p: float, alpha: float) -> int:
    """The least number of votes that can reject p, all of them won: p^n <= alpha, with room for rounding.

    >>> least_votes(0.5, 0.001)
    10
    """
    if not 0 < p < 1:
        raise BadInput(f"no number of votes can show a probability above {p!r}")
    n = max(1, math.ceil(math.log(alpha) / math.log(p)))
    while n * math.log(p) > math.log(alpha) - 1e-9:
        n += max(1, int(n * 1e-12))
    return n


@lru_cache(maxsize=4096)
def _solve(p: float, looks: tuple[int, ...], alpha: float, spends: tuple[float, ...]) -> NDArray[np.int64]:
    """The boundaries, by dynamic programming over the count of wins among those who have not crossed."""
    least = []
    going, start = np.ones(1), 0
    spent, drop = 0.0, alpha * DROPPED
    for j, (before, votes) in enumerate(pairwise((0, *looks))):
        chances, lowest, beyond = _binomial(votes - before, p, drop)
        going = np.convolve(going, chances)
        going *= 1 + 2.0**-52 * (14 * len(chances) + len(going) + 32)
        start += lowest
        spent += beyond
        crossing = np.append(np.cumsum(going[::-1])[::-1], 0.0)
        enough = np.flatnonzero(spent + crossing <= math.fsum(spends[: j + 1]) * SPENT_DOWN)
        first = int(enough[0]) if len(enough) else len(going)
        least.append(start + first if len(enough) else votes + 1)
        spent += float(crossing[first])
        going, below, lost = _trimmed(going[:first], drop)
        start += below
        spent += lost
    return np.minimum(np.array(least), np.asarray(looks) + 1)


def _binomial(m: int, p: float, drop: float) -> tuple[Floats, int, float]:
    """Probabilities [W], rounded up to a sum of 1, of consecutive counts of m votes; the first count; a bound on the rest."""
    odds = p / (1 - p)
    mode = min(m, int((m + 1) * p))
    reach = int(12 * math.sqrt(m * p * (1 - p))) + 40
    while True:
        up = np.arange(mode, min(m, mode + reach), dtype=float)
        down = np.arange(mode, max(0, mode - reach), -1, dtype=float)
        above, over = _side((m - up) / (up + 1) * odds, mode + len(up) == m, drop)
        below, under = _side(down / (m - down + 1) / odds, mode - len(down) == 0, drop)
        if over + under <= 2 * drop:
            weights = np.concatenate([below[::-1], [1.0], above])
            return weights / weights.sum(), mode - len(below), (over + under) * (1 + 2.0**-30)
        reach *= 2


def _side(ratios: Floats, whole: bool, drop: float) -> tuple[Floats, float]:
    """Weights on one side of the mode, cut where what follows is within `drop`, and a bound on what follows.

    `ratios`: each weight over the one before. Beyond the last of them there is nothing if `whole`; else who needs more asks
    again with more. Weights fall ever faster, so what follows weight i is at most w_i ratio_i+1 / (1 - ratio_i+1).
    """
    weights: Floats = np.cumprod(ratios, dtype=np.float64)
    if not len(ratios):
        return weights, 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.where(ratios[1:] < 1, weights[:-1] * ratios[1:] / (1 - ratios[1:]), np.inf)
    good = np.flatnonzero(rest <= drop * (1 - 2.0**-30))
    if len(good):
        return weights[: good[0] + 1], float(rest[good[0]])
    return weights, 0.0 if whole else math.inf


def _trimmed(mass: Floats, drop: float) -> tuple[Floats, int, float]:
    """The mass without ends that weigh at most `drop` each, how many counts went below, and what went in all."""
    low = int(np.searchsorted(np.cumsum(mass), drop, side="right"))
    mass, lost = mass[low:], float(mass[:low].sum())
    high = int(np.searchsorted(np.cumsum(mass[::-1]), drop, side="right"))
    keep = len(mass) - high
    return mass[:keep], low, (lost + float(mass[keep:].sum())) * (1 + 2.0**-30)


def _checked(
    p: float, looks: Sequence[int], alpha: float, spending: ArrayLike
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    if not _SMALLEST <= p < 1 or not 0 < alpha < 0.5:
        raise BadInput(f"p={p} must lie between {_SMALLEST:g} and 1, alpha={alpha} between 0 and 1/2")
    sizes = tuple(int(n) for n in looks)
    if not 1 <= len(sizes) <= _MOST_LOOKS or any(b <= a for a, b in pairwise((0, *sizes))):
        raise BadInput(f"looks={sizes[:5]}…: 1 to {_MOST_LOOKS} are needed, rising, the first at one vote or more")
    if sizes[-1] > MOST_VOTES:
        raise BadInput(
            f"n={sizes[-1]:,}: boundaries are computed up to {MOST_VOTES:,} votes; beyond that use the e-process"
        )
    spends = tuple(float(s) for s in np.asarray(spending, dtype=float).ravel())
    if len(spends) != len(sizes) or min(spends) < 0 or not math.fsum(spends) <= alpha * (1 + 2.0**-45):
        raise BadInput(f"spending needs one share for each of the {len(sizes)} looks, none negative, {alpha:g} in all")
    return sizes, spends
