"""Designs: lists of bin widths that separate values as often as a metric allows and never more often. [Levine2023] C.3

`python -m vauban.laws.designs.design` prints the contents of shipped.json, the designs shipped with Vauban.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import diags_array

from vauban.errors import BadInput
from vauban.laws.designs.metrics import Metric, Power
from vauban.laws.exact import Ints

SHIPPED = tuple(Fraction(p) for p in ("1/2", "1/3", "2/3", "1/4", "3/4"))
_BITS = 24  # errors are multiples of 2^-24 of a view


@dataclass(frozen=True)
class Design:
    """A list of `budget` equally likely outcomes on a grid of `levels` steps: a width of j steps has j divider positions, each
    of which is in the list `times` times; the remaining outcomes ablate. `weights`: (j, times), j ascending.

    >>> Design(((1, 2), (3, 1)), levels=4, budget=6).separations()
    array([0, 3, 4, 5, 5])
    """

    weights: tuple[tuple[int, int], ...]
    levels: int
    budget: int

    @property
    def widths(self) -> Ints:
        """Every width [widths] that occurs."""
        return np.array([j for j, _ in self.weights], dtype=np.int64)

    @property
    def times(self) -> Ints:
        """How often [widths] each divider position of that width occurs."""
        return np.array([w for _, w in self.weights], dtype=np.int64)

    def separations(self) -> Ints:
        """How many outcomes [levels + 1] separate two values k steps apart: n(k) = sum of min(j, k) w_j."""
        return np.minimum(self.widths, np.arange(self.levels + 1)[:, None]) @ self.times

    def check(self, metric: Metric, rate: Fraction) -> None:
        """Refuse, in exact integers, a design that is no valid list or that separates more than R g(k / levels) for some k."""
        total = 0
        for j, times in self.weights:
            if not (1 <= j <= self.levels and times >= 1):
                raise BadInput(f"this design is not sound: a width of {j} steps of {self.levels}, {times} times")
            total += j * times
        if total > self.budget or len({j for j, _ in self.weights}) < len(self.weights):
            raise BadInput(
                f"this design is not sound: it has {total} outcomes where {self.budget} fit, or a width occurs twice"
            )
        for k in range(self.levels + 1):
            separated = sum(min(j, k) * times for j, times in self.weights)
            if metric.excess(separated, k, self.levels, rate) > 0:
                raise BadInput(
                    f"this design is not sound: {separated} of {self.budget} outcomes separate values {k} of {self.levels} "
                    f"steps apart, and {metric.floor_views(k, self.levels, rate)} may"
                )

    def error(self, metric: Metric, rate: Fraction) -> float:
        """How far n / B falls short of the metric, at worst: max of g - n / B with g = min(R g / B, 1), rounded up."""
        exact = Fraction(_shortfall(self, metric, rate), self.budget << _BITS)
        near = float(exact)
        return near if near >= exact else math.nextafter(near, 1)


def solve(
    metric: Metric,
    levels: int,
    budget: int,
    error: float | Fraction,
    rate: Fraction | None = None,
    time_limit: float = 60,
    most_separations: bool = False,
) -> Design | None:
    """A design whose error is at most `error`; None if none is found (there is none, unless the time ran out).

    [Levine2023] C.66 at a given error, with HiGHS. `most_separations`: the design with the largest sum of n(k).

    The unknowns are n(1), … n(levels) instead of the weights: n is an integer sequence whose steps are non-negative and do not
    grow, since w_j = 2 n(j) - n(j - 1) - n(j + 1) (and w at the last j is the last step). So every row of the program has three
    entries, and the limits of C.66 are bounds on single unknowns, integers computed exactly. `rate`: B by default.
    """
    rate = Fraction(budget) if rate is None else rate
    limits = _limits(metric, levels, budget, rate)[1:]
    slack = math.floor(Fraction(error) * (budget << _BITS))
    high = [min(metric.floor_views(k, levels, rate), budget) for k in range(1, levels + 1)]
    low = [max(0, -(-(limit - slack) >> _BITS)) for limit in limits]
    if any(a > b for a, b in zip(low, high, strict=True)):
        return None
    diagonal = np.full(levels, 2.0)
    diagonal[-1] = 1.0
    weights_of_n = diags_array([diagonal, -np.ones(levels - 1), -np.ones(levels - 1)], offsets=[0, 1, -1], format="csr")
    found = milp(
        np.full(levels, -1.0 if most_separations else 0.0),
        constraints=LinearConstraint(weights_of_n, 0, np.inf),
        integrality=np.ones(levels),
        bounds=Bounds(low, high),
        options={"time_limit": time_limit, "mip_rel_gap": 0.0},
    )
    if found.x is None:
        return None
    n = [0, *(round(value) for value in found.x)]
    weights = [2 * n[j] - n[j - 1] - n[j + 1] for j in range(1, levels)] + [n[levels] - n[levels - 1]]
    design = Design(tuple((j, w) for j, w in enumerate(weights, start=1) if w), levels, budget)
    design.check(metric, rate)
    return design


def smallest_error_design(
    metric: Metric, levels: int, budget: int, rate: Fraction | None = None, time_limit: float = 60
) -> Design:
    """The design of smallest error, to 2^-24 of a view, by bisection; of those, the one with most separations.

    No design is better, unless the time ran out.
    """
    rate = Fraction(budget) if rate is None else rate
    best = Design((), levels, budget)
    infeasible, feasible = -1, _shortfall(best, metric, rate)
    end = time.monotonic() + time_limit
    while feasible - infeasible > 1 and time.monotonic() < end:
        middle = (infeasible + feasible) // 2
        found = solve(metric, levels, budget, Fraction(middle, budget << _BITS), rate, end - time.monotonic())
        if found is None:
            infeasible = middle
        else:
            best, feasible = found, min(middle, _shortfall(found, metric, rate))
    left = max(end - time.monotonic(), 1)
    error = Fraction(feasible, budget << _BITS)
    return solve(metric, levels, budget, error, rate, left, most_separations=True) or best


@lru_cache(maxsize=64)
def design(metric: Metric, levels: int, budget: int, rate: Fraction) -> Design:
    """The shipped design, or the one of smallest error; checked in exact integers."""
    known = shipped()
    if isinstance(metric, Power) and rate == budget and (metric.p, levels, budget) in known:
        found = known[metric.p, levels, budget]
        found.check(metric, rate)
        return found
    return smallest_error_design(metric, levels, budget, rate)


@lru_cache(maxsize=1)
def shipped() -> dict[tuple[Fraction, int, int], Design]:
    """The designs in shipped.json by p, levels and budget."""
    rows = json.loads(resources.files("vauban.laws.designs").joinpath("shipped.json").read_text(encoding="utf-8"))
    return {
        (Fraction(row["p"]), row["levels"], row["budget"]): Design(
            tuple((int(j), w) for j, w in row["weights"].items()), row["levels"], row["budget"]
        )
        for row in rows
    }


@lru_cache(maxsize=64)
def _limits(metric: Metric, levels: int, budget: int, rate: Fraction) -> tuple[int, ...]:
    """min(R g(k / levels), B) in 2^-24 of a view, rounded up [levels + 1]."""
    scaled = rate * 2**_BITS
    return tuple(min(metric.ceil_views(k, levels, scaled), budget << _BITS) for k in range(levels + 1))


def _shortfall(design: Design, metric: Metric, rate: Fraction) -> int:
    """max of min(R g, B) - n in 2^-24 of a view, rounded up."""
    limits = _limits(metric, design.levels, design.budget, rate)
    return max(limit - (int(n) << _BITS) for limit, n in zip(limits, design.separations(), strict=True))


def _rows(ps: Iterable[Fraction], levels: int = 255, budget: int = 1000) -> list[dict[str, Any]]:
    """What shipped.json holds."""
    rows = []
    for p in ps:
        start = time.monotonic()
        found = smallest_error_design(Power(p), levels, budget)
        rows.append(
            {
                "p": str(p),
                "levels": levels,
                "budget": budget,
                "error": found.error(Power(p), Fraction(budget)),
                "seconds": round(time.monotonic() - start, 2),
                "solved": "scipy.optimize.milp (HiGHS), bisection on the error to 2^-24 of a view: no smaller error is possible",
                "weights": {str(j): w for j, w in found.weights},
            }
        )
    return rows


if __name__ == "__main__":
    print("[\n" + ",\n".join(json.dumps(row) for row in _rows(SHIPPED)) + "\n]")
