"""One inequality that turns every law into a top-k certificate through its shifts. [Jia2020] Theorem 1"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from vauban.bounds.clopper_pearson import Floats
from vauban.certificates.law import Law

_MARGIN = 1e-12


def stays(law: Law, p_label: ArrayLike, p_sums: ArrayLike, r: ArrayLike) -> np.ndarray:
    """Whether the label is among the top k at every point within r [m], decided with a margin for rounding errors.

    `p_label` [m]: lower bounds of the label; `p_sums` [m, k]: upper bounds on the summed probability of the t weakest of
    its k strongest rivals, t = 1..k; r [m]. True where least(p_label, r) > min over t of most(p_sums_t, r) / t: the least
    of k numbers is at most the mean of any t of them.
    """
    p_sums, r = np.asarray(p_sums), np.asarray(r)
    rivals = (law.most(p_sums, r[:, None]) / np.arange(1, p_sums.shape[1] + 1)).min(axis=1)
    return law.least(p_label, r) * (1 - _MARGIN) > rivals * (1 + _MARGIN)


def radius(law: Law, p_label: ArrayLike, p_sums: ArrayLike) -> Floats:
    """Largest r [m] at which `stays` holds, found by bisection and rounded down; NaN where not even r = 0 does.

    Within 1e-12 of the law's scale of the exact solution, and never above it.
    """
    p_label, p_sums = np.asarray(p_label, dtype=float), np.asarray(p_sums, dtype=float)
    low = np.zeros(len(p_label))
    certified = stays(law, p_label, p_sums, low)
    high = np.full(len(p_label), law.scale)
    while (growing := stays(law, p_label, p_sums, high)).any():
        low, high = np.where(growing, high, low), np.where(growing, 2 * high, high)
    for _ in range(int(np.ceil(np.log2(max(1.0, high.max(initial=0.0) / law.scale)))) + 40):
        middle = (low + high) / 2
        inside = stays(law, p_label, p_sums, middle)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.where(certified & (low > 0), low, np.nan)
