"""The bound of `laws.poisoning.collective` as an integer programme, by the solver HiGHS."""

from __future__ import annotations

import math

import numpy as np

from vauban.laws.poisoning.collective import Scores

_LOOSE = 1e-7  # by which each constraint is relaxed: rounded coefficients exclude no poisoning
_MARGIN = 0.01  # added to the solver's bound before it is rounded down, for its tolerances


def solved(scores: Scores, seconds: float) -> int:
    """At most how many inputs one poisoning changes, by the bound that HiGHS proves within so many seconds.

    Choose s_i in {0, 1} for each bucket, `budget` of them 1, and y_x in {0, 1} for each input; y_x = 1 only if the scores of
    the chosen buckets add up to 0 or more: sum of s_i a_i(x) >= (1 - y_x) low(x). Maximise the sum of the y_x. Only the solver's
    upper bound counts, never the best solution that it found; without one, the answer is all inputs.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, eye_array, hstack

    inputs, buckets = scores.table.shape
    if not inputs:
        return scores.certain
    table = csr_array(scores.table / -scores.low[:, None])
    reach = LinearConstraint(hstack([table, -eye_array(inputs)], format="csr"), lb=-1 - _LOOSE)
    chosen = np.concatenate([np.ones(buckets), np.zeros(inputs)])
    size = LinearConstraint(chosen[None], lb=scores.budget, ub=scores.budget)
    found = milp(
        c=np.concatenate([np.zeros(buckets), -np.ones(inputs)]),
        constraints=[reach, size],
        integrality=np.ones(buckets + inputs),
        bounds=Bounds(0, 1),
        options={"time_limit": float(seconds)},
    )
    bound = getattr(found, "mip_dual_bound", None)
    if bound is None or not math.isfinite(bound):
        return scores.certain + inputs
    return scores.certain + max(0, min(inputs, math.floor(-bound + _MARGIN)))
