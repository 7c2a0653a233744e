"""How often each way to stop claims what is false: at most alpha of the time, and half as often again would be noticed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from amounts import some_slow
from polls import ALPHA, GAUSS, poll, sampled
from scipy.special import ndtr
from tally_worlds import too_often

from vauban.laws.topk import radius_of_label
from vauban.stopping import AnytimeRule, Fixed, FixedRule, Grid, GridRule, Rule, Target

TRIALS = 20_000


def false_claims(rule: Rule, p: float, true_radius: float, n: int, trials: int = TRIALS) -> int:
    """How many polls of a label of probability p end with a claim beyond the true radius."""
    return int((rule.decide(poll(p, rule.looks_until(n), trials, 11)).radius > true_radius).sum())


@pytest.mark.parametrize("test", ["group", "eprocess"])
@pytest.mark.parametrize(
    ("spec", "radius", "k"),
    [("gaussian:sigma=0.5", 0.4, 1), ("laplace:sigma=0.5", 0.3, 3), ("ablation:retained=75", 2, 1)],
)
def test_target_is_false_at_most_alpha_of_the_time(spec: str, radius: float, k: int, test: str) -> None:
    rule = Target(radius, test).rule(sampled(spec), n=2_000, alpha=ALPHA, k=k)
    assert isinstance(rule, GridRule)
    wrong = false_claims(rule, rule.p[0], radius / 2, 2_000)
    assert not too_often(wrong, TRIALS, ALPHA)
    assert wrong > (0.03 if test == "group" else 0.005) * TRIALS
    assert false_claims(rule, 0.98 * rule.p[0], radius / 2, 2_000) < wrong
    sure = false_claims(rule, 1 - (1 - rule.p[0]) / 2, radius / 2, 2_000, 1_000)
    assert sure > 900


@pytest.mark.parametrize("test", ["group", "eprocess"])
@pytest.mark.parametrize("which", [0, 1, 3])
def test_a_grid_is_false_at_most_alpha_of_the_time_whichever_radius_is_the_first_false_one(
    which: int, test: str
) -> None:
    rule = Grid(0.1, test).rule(GAUSS, n=2_000, alpha=ALPHA)
    assert isinstance(rule, GridRule)
    wrong = false_claims(rule, rule.p[which], rule.radii[which] - 0.05, 2_000)
    assert not too_often(wrong, TRIALS, ALPHA)
    assert wrong > 0.005 * TRIALS


@pytest.mark.parametrize("p", some_slow([0.55, 0.8413447460685429, 0.97], quick=[1]))
def test_fixed_and_anytime_are_false_at_most_alpha_of_the_time(p: float) -> None:
    true = float(radius_of_label(GAUSS, np.array([p]), 1)[0])
    for rule, least in ((FixedRule(GAUSS, 2_000, ALPHA), 0.03), (AnytimeRule(GAUSS, ALPHA), 0.005)):
        wrong = false_claims(rule, p, true, 2_000)
        assert not too_often(wrong, TRIALS, ALPHA)
        assert wrong > least * TRIALS


DEVIATING: list[Callable[[float], Rule]] = [
    lambda d: Target(0.25).rule(GAUSS, n=2_000, alpha=ALPHA, deviation=d),
    lambda d: Grid(0.25).rule(GAUSS, n=2_000, alpha=ALPHA, deviation=d),
    lambda d: FixedRule(GAUSS, 2_000, ALPHA, deviation=d),
    lambda d: AnytimeRule(GAUSS, ALPHA, deviation=d),
]


@pytest.mark.parametrize("make", some_slow(DEVIATING, quick=range(3)))
def test_views_that_deviate_are_paid_for(make: Callable[[float], Rule]) -> None:
    deviation = 0.02
    p = float(ndtr(0.99)) + deviation
    assert not too_often(false_claims(make(deviation), p, 0.2475, 2_000), TRIALS, ALPHA)
    assert too_often(false_claims(make(0.0), p, 0.2475, 2_000), TRIALS, ALPHA)


@pytest.mark.parametrize("wish", [Target(0.25), Grid(0.25), Fixed()])
def test_half_as_many_false_claims_again_would_be_noticed(wish: Target | Grid | Fixed) -> None:
    rule = wish.rule(GAUSS, n=2_000, alpha=1.5 * ALPHA)
    assert too_often(false_claims(rule, float(ndtr(1.0)), 0.2499999, 2_000), TRIALS, ALPHA)
    assert too_often(round(1.5 * ALPHA * TRIALS), TRIALS, ALPHA)


def test_correcting_nothing_for_radii_in_order_is_right_and_out_of_order_would_not_be() -> None:
    rule = Grid(0.02, "group").rule(GAUSS, n=2_000, alpha=ALPHA)
    assert isinstance(rule, GridRule)
    wins = poll(rule.p[0], list(rule.looks), TRIALS, 12)
    any_radius = (wins[:, None, :] >= rule.least[None]).any(axis=(1, 2))
    in_order = rule.decide(wins).certified
    assert not too_often(int(in_order.sum()), TRIALS, ALPHA)
    assert any_radius.sum() > in_order.sum()
