"""Bounds on floating-point errors, and factors that move results to the safe side.

Every constant is larger than the error it bounds; where it is used, it moves a result to the safe side.
"""

from __future__ import annotations

from fractions import Fraction

UP, DOWN = 1 + 2.0**-50, 1 - 2.0**-50
"""Cover the relative error of one product or quotient and one sum of two rounded numbers."""

POWER_UP = 1 + 2.0**-43
"""Covers the relative error of r^p: |log r| 2^-53 for the rounding of p, and a few units of its own."""

BIN_PAD = 1 + 2.0**-26
"""Factor that widens a floating-point bin beyond its law's, to cover the rounding of x / width (`smoothing.splitting`)."""

TAIL = 2.0**-36
"""Relative error of SciPy's tails of the beta and binomial laws, at most, of up to TAIL_TRIALS trials; of more it grows like n.

Largest found at Clopper-Pearson bounds, in units of 2^-36: 2.4, 25, 250 and 2,520 for 10^6, 10^7, 10^8 and 10^9 trials, where
3.8, 38, 381 and 3,815 are allowed for."""

TAIL_TRIALS = 2**18

BOUND_STEP = 2.0**-36
"""The first step by which a Clopper-Pearson bound is moved to the safe side, of p or of 1 - p, whichever is smaller."""

LOG_SUM = 2.0**-48
"""Error of adding up logarithms of size t log t, as a fraction of t log t, at most."""

DROPPED = 2.0**-50
"""Fraction of alpha that a group-sequential boundary may leave out at either end of a range."""

SPENT_DOWN = 1 - 2.0**-40
"""Covers the relative error of adding up the alpha spent at earlier looks."""

INEQUALITY = 1e-12
"""Margin on both sides of the top-k inequality."""

PROBABILITY = 1e-12
"""Assumed error of a probability bound where it is compared with multiples of a fixed number."""

FLOAT_VALUES = 1 - Fraction(1, 2**48)
"""Covers what a few roundings of a number, and of its grid step, can add."""

DIGITS = 60
"""Decimal digits with which mpmath computes tables."""
