"""The Gaussian top-k radius by roots at 50 digits, one rival set at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import mpmath

DIGITS = 50


@lru_cache
def normal_quantile(p: float) -> mpmath.mpf:
    """The standard normal quantile of the exact value of the float p."""
    if p <= 0 or p >= 1:
        return mpmath.mpf("-inf") if p <= 0 else mpmath.mpf("inf")
    with mpmath.workdps(DIGITS + 20):
        return mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(p) - 1)


def exact_radius(p_label: float, p_sums: Sequence[float], sigma: float) -> mpmath.mpf:
    """The largest root over t of Phi(z_l - r / sigma) = Phi(z_t + r / sigma) / t; negative where there is no radius."""
    with mpmath.workdps(DIGITS):
        label = normal_quantile(p_label)
        return mpmath.mpf(sigma) * max(_root(label, normal_quantile(p), t) for t, p in enumerate(p_sums, 1))


def stays_at(p_label: float, p_sums: Sequence[float], shift: mpmath.mpf) -> bool:
    """Whether Phi(z_l - shift) > Phi(z_t + shift) / t for some t: whether the label stays under that shift."""
    with mpmath.workdps(DIGITS):
        label = mpmath.ncdf(normal_quantile(p_label) - shift)
        return any(t * label > mpmath.ncdf(normal_quantile(p) + shift) for t, p in enumerate(p_sums, 1))


def _root(label: mpmath.mpf, rivals: mpmath.mpf, t: int) -> mpmath.mpf:
    def difference(s: mpmath.mpf) -> mpmath.mpf:
        return t * mpmath.ncdf(label - s) - mpmath.ncdf(rivals + s)

    low, high = mpmath.mpf(-1), mpmath.mpf(1)
    while difference(low) < 0:
        low *= 2
    while difference(high) > 0:
        high *= 2
    while high - low > mpmath.mpf(10) ** -16:
        middle = (low + high) / 2
        low, high = (middle, high) if difference(middle) > 0 else (low, middle)
    return low
