"""Top-k radii of every sampled law, from one inequality between its shifts. [Jia2020] Theorem 1"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.bounds.clopper_pearson import Floats
from vauban.laws.law import Law
from vauban.numerics import INEQUALITY

_HALVINGS, _PROBABILITY_HALVINGS = 53, 64
_BELOW_ONE = 1 - 2.0**-53


def stays_in_top_k(law: Law, p_label: ArrayLike, p_sums: ArrayLike, r: ArrayLike) -> np.ndarray:
    """Whether the label is among the top k at every point within r [m], decided with a margin for rounding errors.

    `p_label` [m]: lower bounds of the label; `p_sums` [m, k]: upper bounds on the summed probability of the t weakest of
    its k strongest rivals, t = 1..k; r [m]. True where least(p_label, r) > min over t of most(p_sums_t, r) / t: the least
    of k numbers is at most the mean of any t of them.
    """
    p_sums, r = np.asarray(p_sums), np.asarray(r)
    rivals = (law.most(p_sums, r[:, None]) / np.arange(1, p_sums.shape[1] + 1)).min(axis=1)
    return law.least(p_label, r) * (1 - INEQUALITY) > rivals * (1 + INEQUALITY)


def radius(law: Law, p_label: ArrayLike, p_sums: ArrayLike) -> Floats:
    """Largest r [m] at which `stays_in_top_k` holds, rounded down; NaN where the label is not certified at the input itself.

    By bisection, to 1e-11 of the law's scale and never above the exact solution; over integers if the threat's radius is an
    integer, where radius 0 means that only the input itself is certified. A row's radius does not depend on the other rows.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _bisected(law, np.asarray(p_label, dtype=float), np.asarray(p_sums, dtype=float))


def _bisected(law: Law, p_label: Floats, p_sums: Floats) -> Floats:
    low = np.zeros(len(p_label))
    certified = stays_in_top_k(law, p_label, p_sums, low)
    if not certified.any():
        return np.full(len(p_label), np.nan)
    high = np.full(len(p_label), min(law.scale, law.max_distance))
    while (growing := stays_in_top_k(law, p_label, p_sums, high) & (high < law.max_distance)).any():
        low, high = np.where(growing, high, low), np.where(growing, np.minimum(2 * high, law.max_distance), high)
    low = np.where(stays_in_top_k(law, p_label, p_sums, high), high, low)
    if law.threat.integer:
        while (open_ := high - low > 1).any():
            low, high = _halve(law, p_label, p_sums, low, high, np.where(open_, np.floor((low + high) / 2), low))
        return np.where(certified, low, np.nan)
    for _ in range(_HALVINGS):
        low, high = _halve(law, p_label, p_sums, low, high, (low + high) / 2)
    return np.where(certified & (low > 0), low, np.nan)


def _halve(
    law: Law, p_label: Floats, p_sums: Floats, low: Floats, high: Floats, middle: Floats
) -> tuple[Floats, Floats]:
    """One bisection step: the half of each interval in which the largest certified radius lies."""
    inside = stays_in_top_k(law, p_label, p_sums, middle)
    return np.where(inside, middle, low), np.where(inside, high, middle)


def radius_of_label(law: Law, p_lower: Floats, k: int) -> Floats:
    """The certified radius [m] from a lower bound [m] on the label's probability alone (BinoCP, every k)."""
    p = np.maximum(p_lower, 0.0)
    return radius(law, p, np.repeat((1.0 - p)[:, None], k, axis=1))


def probability_needed(law: Law, radii: ArrayLike, k: int = 1) -> Floats:
    """For each radius [g] the label probability, rounded up, that certifies it for the top k; NaN where none below 1 does.

    The least p with L(p, r) > U(1 - p, r) / k, by bisection: L grows with p and U(1 - p) falls. A returned p passes the test
    itself, with its margin for rounding errors, and so does every larger one.

    >>> from vauban.laws import law
    >>> probability_needed(law("gaussian:sigma=0.25"), [0.25, 0.5]).round(5).tolist()
    [0.84134, 0.97725]
    """
    r = np.asarray(radii, dtype=float)
    inside = np.minimum(r, law.max_distance)

    def enough(p: Floats) -> NDArray[np.bool_]:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            certified: NDArray[np.bool_] = stays_in_top_k(law, p, np.repeat((1.0 - p)[:, None], k, axis=1), inside)
        return certified

    low, high = np.zeros(len(r)), np.full(len(r), _BELOW_ONE)
    possible = enough(high) & (r <= law.max_distance)
    for _ in range(_PROBABILITY_HALVINGS):
        middle = (low + high) / 2
        good = enough(middle)
        low, high = np.where(good, low, middle), np.where(good, middle, high)
    return np.where(possible, high, np.nan)
