"""Subsets: the probability that random ones hit marked elements, how they are drawn from words, and some that separate."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from vauban.bounds.clopper_pearson import Floats
from vauban.laws.rounded_noise import BITS

_FRACTION_BITS = 256
_SIGMAS, _TAIL_BITS = 9, 64


@lru_cache(maxsize=64)
def hit_probability(population: int, chosen: int) -> Floats:
    """Probability [r] that `chosen` of `population` include at least one of r marked ones, rounded up; r = 0, 1, … until it is 1.

    Delta(r) = 1 - C(d-r, e) / C(d, e), from C(d-r-1, e) = C(d-r, e) (d-e-r) / (d-r) in integers of 256 binary digits. Each
    step rounds down; its error is less than one unit and never grows: Delta is too large by less than d 2^-256.

    >>> hit_probability(4, 2).round(12).tolist()
    [0.0, 0.5, 0.833333333333, 1.0]
    """
    one = 1 << _FRACTION_BITS
    avoided, table = one, [0.0]
    for r in range(population - chosen + 1):
        avoided = avoided * (population - chosen - r) // (population - r)
        table.append(min(1.0, math.nextafter((one - avoided) / one, 2.0)))
        if table[-1] == 1.0:
            break
    result = np.array(table)
    result.flags.writeable = False
    return result


@lru_cache(maxsize=64)
def draws_needed(population: int, chosen: int) -> int:
    """How many draws with replacement nearly always contain `chosen` different elements, at most half of the population.

    The number of draws it takes is a sum of geometric variables: their mean plus nine standard deviations, plus enough for the
    last of them to fail with probability 2^-64; a multiple of 4. Only correctly rounded operations, so the result is the same
    on every machine.
    """
    if chosen <= 1:
        return 4
    mean = math.fsum(population / (population - i) for i in range(chosen))
    variance = math.fsum(i * population / (population - i) ** 2 for i in range(chosen))
    tail = -(-_TAIL_BITS // ((population // (chosen - 1)).bit_length() - 1))
    return -(-(math.ceil(mean + _SIGMAS * math.sqrt(variance)) + tail) // 4) * 4


@lru_cache(maxsize=64)
def draw_deviation(population: int, chosen: int) -> float:
    """Total variation between a uniform subset and the first `chosen` different ones of `draws_needed` words modulo `population`.

    The first different ones of independent uniform draws are a uniform subset. A word modulo d deviates from the uniform law
    by R (d - R) / (d 2^63), R = 2^63 mod d. Chernoff's bound limits the probability that too few are different: the draws
    needed are a sum of geometric variables of success 1 - i/d, so for every t > 0
    P[more than m] <= e^(-t (m+1)) prod (1-i/d) e^t / (1 - e^t i/d).
    """
    rest = 2**BITS % population
    modulo = draws_needed(population, chosen) * rest * (population - rest) / (population << BITS)
    if chosen <= 1:
        return modulo * (1 + 1e-9)
    repeated = np.arange(chosen) / population
    start = float(np.log1p(-repeated).sum())

    def bound(t: float) -> float:
        return (
            start - float(np.log1p(-repeated * math.exp(t)).sum()) - (draws_needed(population, chosen) + 1 - chosen) * t
        )

    low, high = 0.0, math.log(population / (chosen - 1))
    for _ in range(40):  # every t gives a valid bound; ternary search finds a good one
        third = (high - low) / 3
        low, high = (low, high - third) if bound(low + third) < bound(high - third) else (low + third, high)
    return (modulo + math.exp(min(bound(low), 0.0))) * (1 + 1e-9)


@lru_cache(maxsize=8)
def separating(population: int) -> NDArray[np.bool_]:
    """The fewest subsets, bool [t, population], such that for any two elements i, j some subset contains j and not i.

    Element i is in the subsets of the i-th of C(t, t // 2) combinations: of two combinations of the same size each has something
    that the other has not. Fewer subsets cannot do it (Sperner 1928): the combinations of two elements must not contain each
    other.

    >>> [len(separating(n)) for n in (1, 2, 50, 100, 1000, 4096)]
    [0, 2, 8, 9, 13, 15]
    """
    size = next(t for t in range(population + 1) if math.comb(t, t // 2) >= population)
    every = list(combinations(range(size), size // 2))
    found = np.zeros((size, population), dtype=bool)
    for i in range(population):
        found[list(every[i * len(every) // population]), i] = True
    found.flags.writeable = False
    return found
