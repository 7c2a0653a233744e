"""Binomial tails without floating point: integers where they are cheap, 50 digits where they are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath

DIGITS = 50
_FRACTION_BITS = 240


def rational_at_least(wins: int, n: int, p: float) -> Fraction:
    """P[Binomial(n, p) >= wins] for the exact value of the float p."""
    up, whole = p.as_integer_ratio()
    terms = (math.comb(n, j) * up**j * (whole - up) ** (n - j) for j in range(wins, n + 1))
    return Fraction(sum(terms), whole**n)


def rational_at_most(wins: int, n: int, p: float) -> Fraction:
    """P[Binomial(n, p) <= wins] for the exact value of the float p."""
    return 1 - rational_at_least(wins + 1, n, p)


def at_least(wins: int, n: int, p: mpmath.mpf) -> mpmath.mpf:
    """P[Binomial(n, p) >= wins]: the first term from loggamma, its ratios to the others summed in integers."""
    if wins <= 0 or p >= 1:
        return mpmath.mpf(1)
    if wins > n or p <= 0:
        return mpmath.mpf(0)
    if wins < n * p:
        return 1 - at_least(n - wins + 1, n, 1 - p)
    with mpmath.workdps(DIGITS + 20):
        odds = int(mpmath.ldexp(p / (1 - p), _FRACTION_BITS))
        term, total, j = 1 << _FRACTION_BITS, 0, wins
        while term:
            total += term
            term = (term * (n - j) // (j + 1)) * odds >> _FRACTION_BITS
            j += 1
        log_choose = mpmath.loggamma(n + 1) - mpmath.loggamma(wins + 1) - mpmath.loggamma(n - wins + 1)
        first = mpmath.exp(log_choose + wins * mpmath.log(p) + (n - wins) * mpmath.log1p(-p))
        return first * mpmath.ldexp(mpmath.mpf(total), -_FRACTION_BITS)


def at_most(wins: int, n: int, p: mpmath.mpf) -> mpmath.mpf:
    """P[Binomial(n, p) <= wins]."""
    return at_least(n - wins, n, 1 - p)


def solve(below: Callable[[mpmath.mpf], bool]) -> mpmath.mpf:
    """The point of [0, 1] at which `below` turns false, by bisection to 1e-40."""
    low, high = mpmath.mpf(0), mpmath.mpf(1)
    while high - low > mpmath.mpf(10) ** -40:
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return low
