"""Designs: what the program C.66 finds is sound in exact integers, no error is smaller, and the shipped ones are those."""

import json
import math
from fractions import Fraction
from functools import cache
from importlib import resources
from itertools import product

import mpmath
import numpy as np
import pytest
from amounts import examples
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, milp

from vauban.errors import BadInput
from vauban.laws.designs import design as designs
from vauban.laws.designs.design import SHIPPED, Design, design, shipped, smallest_error_design, solve
from vauban.laws.designs.metrics import Power, Tabulated

HALF, THIRD = Power(Fraction(1, 2)), Power(Fraction(1, 3))


def bin_of(x: Fraction, width: Fraction, s: Fraction) -> tuple[Fraction, Fraction]:
    """Definition C.4, word for word: (lower, upper) of the bin of x."""
    upper = width * math.ceil((x - s) / width) + s
    return max(upper - width, Fraction(0)), min(upper, Fraction(1))


def sound(weights: dict[int, int], p: Fraction, levels: int, budget: int) -> bool:
    """n(k)^b q^a <= B^b k^a for every k, and the list fits the budget."""
    a, b = p.numerator, p.denominator
    for k in range(levels + 1):
        n = sum(j * w for j, w in weights.items() if j <= k) + k * sum(w for j, w in weights.items() if j > k)
        if n**b * levels**a > budget**b * k**a:
            return False
    return sum(j * w for j, w in weights.items()) <= budget


def least_error(p: Fraction, levels: int, budget: int) -> mpmath.mpf:
    """The smallest error there is: every concave integer sequence below B g, by exhaustion over (k, n(k), last step)."""
    g = [mpmath.power(mpmath.mpf(k) / levels, mpmath.mpf(p.numerator) / p.denominator) for k in range(levels + 1)]
    top = [
        max(
            n
            for n in range(budget + 1)
            if n**p.denominator * levels**p.numerator <= budget**p.denominator * k**p.numerator
        )
        for k in range(levels + 1)
    ]

    @cache
    def rest(k: int, n: int, step: int) -> mpmath.mpf:
        gap = g[k] - mpmath.mpf(n) / budget
        if k == levels:
            return gap
        steps = [s for s in range(step + 1) if n + s <= top[k + 1]]
        return max(gap, min(rest(k + 1, n + s, s) for s in steps))

    return rest(0, 0, top[1])


def test_how_often_values_are_told_apart_is_counted_as_the_definition_says() -> None:
    levels, made = 6, Design(((1, 2), (3, 1), (4, 2), (6, 1)), levels=6, budget=30)
    found = [set() for _ in range(levels + 1)]
    for x, y in product(range(levels + 1), repeat=2):
        count = sum(
            times
            * sum(
                bin_of(Fraction(x, levels), Fraction(j, levels), Fraction(2 * place + 1, 2 * levels))
                != bin_of(Fraction(y, levels), Fraction(j, levels), Fraction(2 * place + 1, 2 * levels))
                for place in range(j)
            )
            for j, times in made.weights
        )
        found[abs(x - y)].add(count)
    assert [{int(n)} for n in made.separations()] == found


@pytest.mark.parametrize(("p", "levels", "budget"), [("1/2", 7, 20), ("1/3", 6, 33), ("3/4", 9, 25), ("2/5", 4, 41)])
def test_no_design_has_a_smaller_error(p: str, levels: int, budget: int) -> None:
    metric = Power(Fraction(p))
    made = smallest_error_design(metric, levels, budget)
    assert sound(dict(made.weights), Fraction(p), levels, budget)
    stated = made.error(metric, Fraction(budget))
    assert 0 <= stated - least_error(Fraction(p), levels, budget) <= 1e-6
    assert solve(metric, levels, budget, stated - 1e-6) is None
    again = solve(metric, levels, budget, stated)
    assert again is not None
    assert again.error(metric, Fraction(budget)) <= stated


def test_a_design_is_found_at_any_possible_error_and_keeps_to_it() -> None:
    metric, rate = HALF, Fraction(60)
    for error in (0.04, 0.06, 0.1, 0.5, 1):
        made = solve(metric, 15, 60, error)
        assert made is not None
        assert sound(dict(made.weights), metric.p, 15, 60)
        assert made.error(metric, rate) <= error
        closest = solve(metric, 15, 60, error, most_separations=True)
        assert closest is not None
        assert closest.separations().sum() >= made.separations().sum()
    assert solve(metric, 15, 60, 0.01) is None


@pytest.mark.parametrize("metric", [HALF, THIRD])
def test_the_design_of_the_thesis_is_found(metric: Power) -> None:
    made = solve(metric, 255, 1000, 0.02, time_limit=400)
    assert made is not None
    assert sound(dict(made.weights), metric.p, 255, 1000)
    g = (np.arange(256) / 255) ** float(metric.p)
    assert (g - made.separations() / 1000).max() <= 0.02 + 1e-12
    assert made.error(metric, Fraction(1000)) == pytest.approx((g - made.separations() / 1000).max(), abs=1e-9)


def test_shipped_designs_are_sound_and_the_best() -> None:
    rows = json.loads(resources.files("vauban.laws.designs").joinpath("shipped.json").read_text())
    assert [Fraction(row["p"]) for row in rows] == list(SHIPPED)
    for row in rows:
        p, weights = Fraction(row["p"]), {int(j): w for j, w in row["weights"].items()}
        assert (row["levels"], row["budget"]) == (255, 1000)
        assert sound(weights, p, 255, 1000)
        gaps = [
            mpmath.power(mpmath.mpf(k) / 255, mpmath.mpf(p.numerator) / p.denominator)
            - mpmath.mpf(sum(min(j, k) * w for j, w in weights.items())) / 1000
            for k in range(256)
        ]
        assert -1e-15 <= row["error"] - max(gaps) < 1e-9
        assert row["error"] <= 0.02
        best = smallest_error_design(Power(p), 255, 1000)
        assert best.error(Power(p), Fraction(1000)) == row["error"]
        assert dict(design(Power(p), 255, 1000, Fraction(1000)).weights) == weights


def test_designs_that_tell_apart_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for (p, levels, budget), made in shipped().items():
        limit = [Power(p).floor_views(k, levels, Fraction(budget)) for k in range(levels + 1)]
        n, refused = made.separations(), 0
        for j in (1, 2, 5, 20, 255):
            weights = dict(made.weights)
            weights[j] = weights.get(j, 0) + 1
            more = Design(tuple(sorted(weights.items())), levels, budget)
            over = any(n[k] + min(j, k) > limit[k] for k in range(levels + 1)) or made.separations()[-1] + j > budget
            assert over == (not sound(weights, p, levels, budget))
            if over:
                refused += 1
                with pytest.raises(BadInput, match="not sound"):
                    more.check(Power(p), Fraction(budget))
        assert refused
    for weights, answer in [
        (((0, 1),), "width of 0"),
        (((300, 1),), "width of 300"),
        (((3, -1),), "-1 times"),
        (((1, 1), (1, 1)), "a width occurs twice"),
        (((255, 4),), "1020 outcomes where 1000 fit"),
    ]:
        with pytest.raises(BadInput, match=answer):
            Design(weights, 255, 1000).check(HALF, Fraction(1000))
    monkeypatch.setattr(designs, "shipped", lambda: {(HALF.p, 255, 1000): Design(((1, 63),), 255, 1000)})
    design.cache_clear()
    with pytest.raises(BadInput, match="63 of 1000 outcomes separate values 1 of 255 steps apart, and 62 may"):
        design(HALF, 255, 1000, Fraction(1000))
    design.cache_clear()


def test_a_solution_that_is_off_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(*args: object, **options: object) -> object:
        found = milp(*args, **options)
        found.x = found.x + 5
        return found

    monkeypatch.setattr(designs, "milp", off)
    with pytest.raises(BadInput, match="not sound"):
        solve(HALF, 15, 60, 0.1)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_program_as_printed_agrees() -> None:
    """C.66 in its own unknowns, the weights: feasible where `solve` says so."""
    k = np.arange(1, 256)
    for metric in (HALF, THIRD):
        g = 1000 * (k / 255) ** float(metric.p)
        rows = LinearConstraint(np.minimum.outer(k, k), g - 20, np.floor(g + 1e-9))
        found = milp(np.zeros(255), constraints=rows, integrality=np.ones(255), options={"time_limit": 400})
        assert found.status == 0
        weights = {int(j): round(w) for j, w in zip(k, found.x, strict=True) if round(w)}
        assert sound(weights, metric.p, 255, 1000)


@given(
    p=st.builds(lambda a, b: Fraction(min(a, b), max(a, b)), st.integers(1, 12), st.integers(1, 12)),
    k=st.integers(0, 255),
    rate=st.builds(Fraction, st.integers(1, 10**5), st.integers(1, 30)),
)
@examples(300)
def test_powers_are_counted_exactly(p: Fraction, k: int, rate: Fraction) -> None:
    metric = Power(p)
    with mpmath.workdps(60):
        true = mpmath.power(mpmath.mpf(k) / 255, mpmath.mpf(p.numerator) / p.denominator)
        true = true * rate.numerator / rate.denominator
        most, enough = metric.floor_views(k, 255, rate), metric.ceil_views(k, 255, rate)
        assert most <= true + mpmath.mpf(10) ** -45
        assert true < most + 1
        assert enough == (most if abs(true - most) < mpmath.mpf(10) ** -45 else most + 1)
        assert metric.excess(most, k, 255, rate) <= 0 < metric.excess(most + 1, k, 255, rate)


@given(
    p=st.builds(lambda a, b: Fraction(min(a, b), max(a, b)), st.integers(1, 40), st.integers(1, 40)),
    changed=st.integers(0, 20_000),
    rate=st.builds(Fraction, st.integers(1, 10**4), st.integers(1, 9)),
)
@examples(300)
def test_the_reach_is_the_largest_float_there_is(p: Fraction, changed: int, rate: Fraction) -> None:
    r = Power(p).radius_tolerating(changed, rate)
    after = math.nextafter(r, math.inf)

    def may(r: float) -> bool:
        return Fraction(r) ** p.numerator * rate**p.denominator < (changed + 1) ** p.denominator

    assert may(r) or r == 0
    assert not (math.isfinite(after) and may(after))
    flat = Tabulated((Fraction(0), Fraction(1))).radius_tolerating(changed, rate)
    assert Fraction(flat) * rate < changed + 1 <= Fraction(math.nextafter(flat, math.inf)) * rate


def test_functions_are_checked_to_be_elementwise_concave() -> None:
    exact = Tabulated.of(lambda z: min(2 * z, 1), 10)
    assert exact.values[:3] == (0, Fraction(1, 5), Fraction(2, 5))
    assert exact.values[5:] == (1,) * 6
    assert Tabulated.of([Fraction(min(2 * k, 10), 10) for k in range(11)], 10) == exact
    for g in (np.sqrt, lambda z: z**0.5, math.log1p, lambda z: float(z), math.tanh, lambda z: float(min(3 * z, 1))):
        made = Tabulated.of(g, 255)
        assert all(Fraction(float(g(k / 255))) >= value for k, value in enumerate(made.values))
        assert all(float(g(k / 255)) == pytest.approx(float(value), rel=1e-13) for k, value in enumerate(made.values))
    assert Tabulated.of(np.sqrt, 255).hash != Tabulated.of(math.log1p, 255).hash
    for g, answer in [
        (lambda z: z + 0.1, r"g\(0\) is 0.1"),
        (lambda z: z**2, "not concave around step"),
        (lambda z: 1 - (1 - 2 * z) ** 2, "falls from step"),
        (lambda z: 2 * z, r"g\(1\) is 2.0: at most 1"),
        (lambda z: 0 * z, "not above zero at the first step"),
        (lambda z: float("nan"), "finite"),
        (lambda z: "z", "finite"),
        ([0, 1], "has 2 values: a grid of levels=255 steps needs 256"),
    ]:
        with pytest.raises(BadInput, match=answer):
            Tabulated.of(g, 255)
    with pytest.raises(BadInput, match="take a simpler fraction, such as 1/3"):
        Power(Fraction("0.33333"))
