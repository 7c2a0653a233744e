"""Radii from counts of sampled votes, and the largest radius and least number of votes that can certify anything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vauban.bounds.clopper_pearson import Floats
from vauban.bounds.simultaneous import probability_bounds
from vauban.errors import BadInput
from vauban.laws.law import Law
from vauban.laws.topk import radius


def radii_of_counts(
    counts: NDArray[np.int64],
    labels: NDArray[np.int64],
    law: Law,
    *,
    k: int,
    alpha: float,
    bounds: str,
    deviation: float = 0.0,
) -> Floats:
    """Radii [m] from counts [m, c], by probability bounds widened by `deviation`; NaN where nothing is certified."""
    limits = law.calibrated(probability_bounds(counts, labels, k=k, alpha=alpha, method=bounds).widened(deviation))
    return radius(law, limits.label, limits.sums())


def radii_of_looks(
    looks: Sequence[NDArray[np.int64]],
    labels: NDArray[np.int64],
    law: Law,
    *,
    k: int,
    alpha: float,
    bounds: str,
    deviation: float = 0.0,
) -> tuple[Floats, NDArray[np.int64]]:
    """Radii [m] that hold at all J looks (counts [m, c] each) at once, and the look of each, from 0.

    Every look gets alpha / J, so that with probability 1 - alpha no look's bounds fail, and the largest radius of any look holds.
    """
    share = alpha / len(looks)
    radii = np.stack(
        [radii_of_counts(t, labels, law, k=k, alpha=share, bounds=bounds, deviation=deviation) for t in looks]
    )
    best = np.where(np.isnan(radii), -1.0, radii).argmax(axis=0)
    return radii[best, np.arange(len(labels))], best


def largest_radius(
    n: int, k: int, alpha: float, num_classes: int, bounds: str, law: Law, deviation: float = 0.0
) -> float | None:
    """The radius of an input for which all n votes agree: no input has a larger one; None if nothing is certified."""
    unanimous = np.zeros((1, num_classes), dtype=np.int64)
    unanimous[0, 0] = n
    one = radii_of_counts(unanimous, np.array([0]), law, k=k, alpha=alpha, bounds=bounds, deviation=deviation)
    return None if np.isnan(one[0]) else float(one[0])


def least_n(k: int, alpha: float, num_classes: int, bounds: str, law: Law, deviation: float = 0.0) -> int:
    """The least number of votes that can certify anything, by doubling and bisection (more unanimous votes never certify less).

    >>> from vauban.laws import law
    >>> [least_n(k, 0.001, 10, b, law("gaussian:sigma=0.5")) for b in ("binocp", "simuem") for k in (1, 3)]
    [10, 5, 14, 7]
    """

    def enough(n: int) -> bool:
        return largest_radius(n, k, alpha, num_classes, bounds, law, deviation) is not None

    high = 1
    while not enough(high):
        high *= 2
        if high > 1 << 60:
            raise BadInput(f"no number of votes can certify anything when the noise deviates by {deviation:g}")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def refuse_too_few(
    n: int, k: int, alpha: float, num_classes: int, bounds: str, law: Law, deviation: float = 0.0
) -> None:
    """Refuse a number of votes that can certify nothing, and name the least that can."""
    if n < 1 or largest_radius(n, k, alpha, num_classes, bounds, law, deviation) is None:
        least = least_n(k, alpha, num_classes, bounds, law, deviation)
        raise BadInput(
            f"n={n} can certify nothing at alpha={alpha:g} (top-{k}, {bounds}, {num_classes} classes): the least is {least}"
        )
