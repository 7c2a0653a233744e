"""Continuous noise rounded to a grid, as an integer table, with a bound on the distance between table and law."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import mpmath
import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput
from vauban.numerics import DIGITS

BITS = 63
GUIDE_BITS = 16
PER_WORD = 3
_MAX_STEPS = 20_000
_OVERFLOW = 2.0**-100


@dataclass(frozen=True)
class RoundedNoise:
    """An integer random variable, sampled by looking up a uniform 63-bit word in a table.

    A word w becomes the number of `thresholds` at or below w, minus `offset`. `deviation` is an upper bound on the total
    variation distance, for one coordinate, to the continuous law rounded to the nearest grid point; for an input of d
    coordinates it is at most d times that.
    """

    thresholds: NDArray[np.int64]
    offset: int
    deviation: float

    @cached_property
    def undecided_fraction(self) -> float:
        """The fraction of words whose first 16 bits do not determine the value."""
        inner = self.thresholds & ((1 << (BITS - GUIDE_BITS)) - 1) != 0
        return len(np.unique(self.thresholds[inner] >> (BITS - GUIDE_BITS))) / 2**GUIDE_BITS

    def packed_words(self, size: int) -> tuple[int, int]:
        """The words that `size` numbers take at three to a word, and the extra words for numbers that 16 bits leave undecided.

        The extra words run out with probability under 2^-100: by Chernoff's bound, more than m of n numbers are undecided
        with probability at most exp(-n KL(m/n, undecided_fraction)).
        """
        main = -(-size // PER_WORD)
        return main, _max_undecided(PER_WORD * main, self.undecided_fraction)

    def packed_deviation(self, size: int) -> float:
        """Total variation of `size` packed numbers to the law: that of each number, plus running out of words."""
        return (size * self.deviation + _OVERFLOW) * (1 + 1e-12)

    def __call__(self, words: NDArray[np.int64]) -> NDArray[np.int64]:
        """The noise, in grid steps, for words in [0, 2^63); any shape."""
        return np.searchsorted(self.thresholds, words, side="right") - self.offset


@lru_cache(maxsize=64)
def _max_undecided(n: int, p: float) -> int:
    """The least m >= 1 for which Chernoff's bound gives P[Binomial(n, p) > m] <= 2^-100."""
    need = -math.log(_OVERFLOW)

    def enough(m: int) -> bool:
        tail = m + 1
        if tail > n or p == 0:
            return True
        if tail <= n * p:
            return False
        rest = (n - tail) * math.log((n - tail) / (n * (1 - p))) if tail < n else 0.0
        return tail * math.log(tail / (n * p)) + rest >= need

    return next(m for m in range(max(1, int(n * p)), n + 1) if enough(m))


class TooWide(BadInput):
    """Noise of more steps of the grid than are tabulated."""


@lru_cache(maxsize=64)
def rounded_noise(tail: Callable[[mpmath.mpf], mpmath.mpf], scale: float, levels: int) -> RoundedNoise:
    """Tabulate the nearest integer to levels * scale * Z for a symmetric continuous Z with P[Z > x] = tail(x).

    Computed with 60 digits. The table ends where a tail falls below half a word; the tail beyond is part of the deviation.
    """
    if not scale * levels <= _MAX_STEPS:
        raise TooWide(
            f"noise of scale {scale:g} is too wide for the grid of step 1/{levels}: at most {_MAX_STEPS / levels:g} is possible"
        )
    with mpmath.workdps(DIGITS):
        step = 1 / (mpmath.mpf(scale) * levels)
        above = [tail(step / 2)]  # above[j]: the probability of a value greater than j
        while above[-1] * 2**BITS > mpmath.mpf(1) / 2:
            above.append(tail((len(above) + mpmath.mpf(1) / 2) * step))
        if len(above) == 1:
            raise BadInput(
                f"noise of scale {scale:g} never leaves a point of the grid of step 1/{levels}: make it larger"
            )
        words = [int(mpmath.nint(p * 2**BITS)) for p in above[:-1]]
        ideal = [1 - 2 * above[0]] + [a - b for a, b in pairwise(above)]
        table = [2**BITS - 2 * words[0]] + [a - b for a, b in pairwise([*words, 0])]
        error = [abs(p - mpmath.mpf(w) / 2**BITS) for p, w in zip(ideal, table, strict=True)]
        deviation = error[0] / 2 + sum(error[1:]) + above[-1]  # every value but 0 counts twice: v and -v
        rounded_up = float(deviation * (1 + mpmath.mpf(10) ** -12))
    thresholds = words[::-1] + [2**BITS - w for w in words]
    return RoundedNoise(np.array(thresholds, dtype=np.int64), len(words), rounded_up)
