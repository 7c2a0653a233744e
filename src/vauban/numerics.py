"""How far floating-point results may be off, and the factors by which bounds are moved to pay for it.

Every constant is larger than the error it stands for; where it is used, it moves a bound to the safe side.
"""

from __future__ import annotations

from fractions import Fraction

UP, DOWN = 1 + 2.0**-50, 1 - 2.0**-50
"""More than one product or quotient and one sum of two rounded numbers can lose."""

POWER_UP = 1 + 2.0**-43
"""More than r^p can lose: |log r| 2^-53 for the rounding of p, and a few units of its own."""

BIN_PAD = 1 + 2.0**-26
"""How much wider than its law a floating-point bin is: pays for the rounding of x / width (`smoothing.splitting`)."""

TAIL = 2.0**-36
"""What SciPy's tails of the beta and binomial laws may be wrong by, relative."""

BOUND_STEP = 2.0**-36
"""The first step by which a Clopper-Pearson bound is moved to the safe side, of p or of 1 - p, whichever is smaller."""

LOG_SUM = 2.0**-48
"""Of t log t: what adding up logarithms of that size may be wrong by."""

DROPPED = 2.0**-50
"""Of alpha: what a group-sequential boundary may leave out at either end of a range."""

SPENT_DOWN = 1 - 2.0**-40
"""More than adding up the alpha spent at earlier looks can lose."""

INEQUALITY = 1e-12
"""Margin on both sides of the top-k inequality."""

PROBABILITY = 1e-12
"""What a probability bound is taken to be right to, where it is compared with multiples of a fixed number."""

FLOAT_VALUES = 1 - Fraction(1, 2**48)
"""More than a few roundings of a number, and of the grid step it belongs to, can add."""

DIGITS = 60
"""Decimal digits in which mpmath computes tables."""
