"""An exact test of "the label's probability is at most p" that looks at the votes at sample sizes fixed in advance.

At look j, after N_j votes, the claim is made if at least c_j of them are wins. Looks and spends s_1, ..., s_J are fixed before
any vote; c_j is the least count for which the probability of first crossing at look j, under p itself, is at most s_j plus
what earlier looks left unspent. The probability of ever crossing is then at most s_1 + ... + s_J <= alpha under p, and under
every smaller probability too: votes can be coupled so that each one won there is also won under p, so counts can only be
lower. Stopping early without a claim uses no alpha.

**Rounding.** Floats with unit u = 2^-53; every number is non-negative and is only added, multiplied and divided, so relative
errors add up (a sum of K terms, in any order, loses at most K u) and nothing cancels.
- A look's new votes are Binomial(m, p). Weights r start with 1 at the most likely count and continue by the ratio
  (m-s)/(s+1) * p/(1-p): five roundings a step. The probability of s is r(s) over the sum of all weights, at most r(s) over
  the sum of those kept. With W kept weights that is wrong by at most (5 W) + (5 W + W) + 1 roundings.
- By log-concavity the dropped weights on each side sum to at most the last kept weight times ratio / (1 - ratio).
- One convolution with W terms loses W + 1 roundings, one tail over L counts L more.
Each look's probabilities are multiplied by 1 + 2 (14 W + L + 32) u, which covers these and their products. Dropped mass
(dropped weights, and the trimmed ends of the range) is added to what has been spent, as if all of it crossed.
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

MAX_BOUNDARY_VOTES = 10**7

EARLY = 0.04  # the fraction of alpha spent at all looks before the last
POWER = 0.5
LOOKS_PER_DECADE = 10
FIRST_LOOK = 20

_MIN_PROBABILITY = 1e-12
_MAX_LOOKS = 1000


def geometric_looks(n: int, first: int = FIRST_LOOK, per_decade: int = LOOKS_PER_DECADE) -> tuple[int, ...]:
    """Looks from about `first` votes to n, each 10^(1/per_decade) times the previous one, the last at n.

    >>> geometric_looks(100)
    (25, 32, 40, 50, 63, 79, 100)
    """
    if n < 1:
        raise BadInput(f"n={n}: at least one vote is needed")
    earlier = max(0, math.floor(per_decade * math.log10(max(n / first, 1)) + 1e-9))
    return tuple(sorted({round(n / 10 ** (i / per_decade)) for i in range(earlier + 1)}))


def spending(looks: Sequence[int], alpha: float, early: float = EARLY, power: float = POWER) -> Floats:
    """Spends [J]: up to look j < J the fraction early * (N_j / n)^power of alpha, and the rest at the last look.

    Nearly all alpha is left for the last look, whose boundary is that of the fixed test or one count above, so the sequence
    certifies nearly what n votes would. Early looks need little alpha: the votes needed grow with the logarithm of 1 / spend.
    The defaults are near the optimum on 500 published inputs, and the optimum is flat (`vauban.bench.votes`).
    """
    cumulative = early * (np.asarray(looks, dtype=float) / looks[-1]) ** power
    cumulative[-1] = 1.0
    return np.diff(cumulative, prepend=0.0) * alpha


def boundaries(p: float, looks: Sequence[int], alpha: float, spending: ArrayLike) -> NDArray[np.int64]:
    """Least number of wins c_j [J] that makes the claim at each look; N_j + 1 where no count does.

    `looks` [J] ascending, `spending` [J] with a sum of at most alpha.

    >>> boundaries(0.5, (10, 20), 0.05, (0.025, 0.025)).tolist()
    [9, 15]
    """
    looks, spends = _checked(p, looks, alpha, spending)
    return _solve(float(p), looks, float(alpha), spends).copy()


def least_votes(p: float, alpha: float) -> int:
    """The least number of votes that rejects p when all of them are won: p^n <= alpha, with a margin for rounding.

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
    """The boundaries, by dynamic programming over the distribution of wins of the paths that have not crossed."""
    least = []
    mass, lowest_count = np.ones(1), 0
    spent, drop = 0.0, alpha * DROPPED
    for j, (before, votes) in enumerate(pairwise((0, *looks))):
        new_votes, fewest, dropped = _binomial(votes - before, p, drop)
        mass = np.convolve(mass, new_votes)
        mass *= 1 + 2.0**-52 * (14 * len(new_votes) + len(mass) + 32)
        lowest_count += fewest
        spent += dropped
        crossing = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
        affordable = np.flatnonzero(spent + crossing <= math.fsum(spends[: j + 1]) * SPENT_DOWN)
        first = int(affordable[0]) if len(affordable) else len(mass)
        least.append(lowest_count + first if len(affordable) else votes + 1)
        spent += float(crossing[first])
        mass, trimmed_below, dropped = _trimmed(mass[:first], drop)
        lowest_count += trimmed_below
        spent += dropped
    return np.minimum(np.array(least), np.asarray(looks) + 1)


def _binomial(m: int, p: float, drop: float) -> tuple[Floats, int, float]:
    """Probabilities [W] of consecutive counts of m votes, scaled up to sum to 1; the first count; a bound on the dropped mass."""
    odds = p / (1 - p)
    mode = min(m, int((m + 1) * p))
    reach = int(12 * math.sqrt(m * p * (1 - p))) + 40
    while True:
        up = np.arange(mode, min(m, mode + reach), dtype=float)
        down = np.arange(mode, max(0, mode - reach), -1, dtype=float)
        above, dropped_above = _side_of_mode((m - up) / (up + 1) * odds, mode + len(up) == m, drop)
        below, dropped_below = _side_of_mode(down / (m - down + 1) / odds, mode - len(down) == 0, drop)
        dropped = dropped_above + dropped_below
        if dropped <= 2 * drop:
            weights = np.concatenate([below[::-1], [1.0], above])
            return weights / weights.sum(), mode - len(below), dropped * (1 + 2.0**-30)
        reach *= 2


def _side_of_mode(ratios: Floats, complete: bool, drop: float) -> tuple[Floats, float]:
    """Weights on one side of the mode, cut off once the rest sums to at most `drop`, and a bound on that rest.

    `ratios`: each weight over the previous one; `complete`: no weights follow the last ratio. Otherwise the bound is infinite
    where the ratios end too early. Weights fall ever faster, so the rest after weight i is at most
    w_i ratio_i+1 / (1 - ratio_i+1).
    """
    weights: Floats = np.cumprod(ratios, dtype=np.float64)
    if not len(ratios):
        return weights, 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.where(ratios[1:] < 1, weights[:-1] * ratios[1:] / (1 - ratios[1:]), np.inf)
    cuts = np.flatnonzero(rest <= drop * (1 - 2.0**-30))
    if len(cuts):
        return weights[: cuts[0] + 1], float(rest[cuts[0]])
    return weights, 0.0 if complete else math.inf


def _trimmed(mass: Floats, drop: float) -> tuple[Floats, int, float]:
    """The mass after both ends lost at most `drop` each; the number of counts cut below; the mass cut in total."""
    low = int(np.searchsorted(np.cumsum(mass), drop, side="right"))
    mass, dropped = mass[low:], float(mass[:low].sum())
    high = int(np.searchsorted(np.cumsum(mass[::-1]), drop, side="right"))
    end = len(mass) - high
    return mass[:end], low, (dropped + float(mass[end:].sum())) * (1 + 2.0**-30)


def _checked(
    p: float, looks: Sequence[int], alpha: float, spending: ArrayLike
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    if not _MIN_PROBABILITY <= p < 1 or not 0 < alpha < 0.5:
        raise BadInput(f"p={p} must lie between {_MIN_PROBABILITY:g} and 1, alpha={alpha} between 0 and 1/2")
    sizes = tuple(int(n) for n in looks)
    if not 1 <= len(sizes) <= _MAX_LOOKS or any(b <= a for a, b in pairwise((0, *sizes))):
        raise BadInput(f"looks={sizes[:5]}…: 1 to {_MAX_LOOKS} are needed, ascending, the first at one vote or more")
    if sizes[-1] > MAX_BOUNDARY_VOTES:
        raise BadInput(
            f"n={sizes[-1]:,}: boundaries are computed up to {MAX_BOUNDARY_VOTES:,} votes; beyond that use the e-process"
        )
    spends = tuple(float(s) for s in np.asarray(spending, dtype=float).ravel())
    if len(spends) != len(sizes) or min(spends) < 0 or not math.fsum(spends) <= alpha * (1 + 2.0**-45):
        raise BadInput(
            f"spending needs one value for each of the {len(sizes)} looks, none negative, with a sum of at most {alpha:g}"
        )
    return sizes, spends
