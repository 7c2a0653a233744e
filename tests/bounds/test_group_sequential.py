"""Group-sequential boundaries against rational arithmetic, every path of small polls, and a plain programme at full size."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import exact_sequential
import mpmath
import numpy as np
import pytest
from amounts import few_then_all
from exact_binomial import DIGITS, at_least, rational_at_least
from scipy.stats import binom
from tally_worlds import too_often

from vauban.bounds import group_sequential
from vauban.bounds.futility import futility
from vauban.bounds.group_sequential import boundaries, geometric_looks, least_votes, spending
from vauban.errors import BadInput


def random_plans(count: int, most: int, seed: int) -> list[tuple[float, tuple[int, ...], float, np.ndarray]]:
    """Thresholds, looks, levels and spends; some looks get nothing, some alpha is left over."""
    rng, plans = np.random.default_rng(seed), []
    for _ in range(count):
        n = int(rng.integers(1, most + 1))
        looks = tuple(sorted({*rng.integers(1, n + 1, rng.integers(0, 5)).tolist(), n}))
        alpha = float(rng.choice([0.4, 0.05, 0.001, 1e-6]))
        shares = rng.dirichlet(np.ones(len(looks))) * (rng.random(len(looks)) < 0.8) * rng.choice([1.0, 0.5])
        p = float(rng.choice([rng.random(), 1 - rng.random() ** 4 / 3, 0.5]))
        plans.append((min(max(p, 1e-6), 1 - 1e-6), looks, alpha, shares * alpha * (1 - 1e-12)))
    return plans


@pytest.mark.parametrize("plans", few_then_all(250, 1_000))
def test_boundaries_are_those_of_rational_arithmetic_and_within_alpha(
    plans: int, cases_tried: Callable[[int], None]
) -> None:
    agree = 0
    for p, looks, alpha, spends in random_plans(plans, 30, 1):
        least = boundaries(p, looks, alpha, spends).tolist()
        exact, crossed, close = exact_sequential.boundaries(p, looks, spends.tolist())
        assert sum(crossed) <= Fraction(alpha)
        assert exact_sequential.ever_crosses(p, looks, least) <= Fraction(alpha)
        assert least == exact or close
        agree += least == exact
    assert agree > 0.95 * plans
    cases_tried(plans)


def test_every_path_of_small_polls(cases_tried: Callable[[int], None]) -> None:
    tried = 0
    for p, looks, alpha, spends in random_plans(40, 10, 2):
        least = boundaries(p, looks, alpha, spends).tolist()
        wrong, paths = exact_sequential.ever_crosses_path_by_path(p, looks, least)
        assert wrong == exact_sequential.ever_crosses(p, looks, least)
        assert wrong <= Fraction(alpha)
        tried += paths
    cases_tried(tried)


def test_a_smaller_probability_crosses_less_often() -> None:
    looks, spends = (5, 9, 20), (0.02, 0.01, 0.02)
    least = boundaries(0.7, looks, 0.05, spends).tolist()
    chances = [exact_sequential.ever_crosses(q, looks, least) for q in (0.05, 0.3, 0.5, 0.6, 0.69, 0.7, 0.75)]
    assert all(a < b for a, b in pairwise(chances))
    assert chances[-2] <= Fraction(0.05) < chances[-1]


def test_what_a_look_leaves_unspent_is_there_for_the_next_ones() -> None:
    assert boundaries(0.5, (3, 10), 0.01, (0.009, 0.001)).tolist() == [4, 10]
    assert rational_at_least(9, 10, 0.5) > 0.01 >= rational_at_least(10, 10, 0.5)
    assert boundaries(0.5, (3, 10), 0.2, (0.0, 0.2)).tolist() == [4, 7]
    assert boundaries(0.5, (3, 10), 0.2, (0.2, 0.0))[0] == 3


def test_a_tie_with_the_budget_is_left_to_the_safe_side() -> None:
    assert boundaries(0.5, (4,), 1 / 16, (1 / 16,)).tolist() == [5]
    assert boundaries(0.5, (4,), 1 / 16 * (1 + 1e-9), (1 / 16 * (1 + 1e-9),)).tolist() == [4]


@pytest.mark.parametrize("p", [0.5, 0.8413447460685429, 0.9986501019683699, 0.999929])
@pytest.mark.parametrize("alpha", [0.001, 1e-9])
def test_one_look_at_a_hundred_thousand_votes_is_the_fixed_test(p: float, alpha: float) -> None:
    n = 100_000
    (least,) = boundaries(p, (n,), alpha, (alpha,)).tolist()
    with mpmath.workdps(DIGITS):
        assert least > n or at_least(least, n, mpmath.mpf(p)) <= alpha
        assert at_least(least - 1, n, mpmath.mpf(p)) > alpha * (1 - 1e-8)


@pytest.mark.parametrize("p", [0.5, 0.8413447460685429, 0.9772498680518208, 0.9986501019683699])
@pytest.mark.parametrize("n", [3_000, 100_000])
def test_thirty_odd_looks_against_a_plain_programme(n: int, p: float) -> None:
    alpha, looks = 0.001, geometric_looks(n)
    spends = spending(looks, alpha)
    least = boundaries(p, looks, alpha, spends)
    going, start, spent = np.ones(1), 0, 0.0
    for j, ((before, votes), c) in enumerate(zip(pairwise((0, *looks)), least, strict=True)):
        m = votes - before
        low, high = int(max(0, binom.isf(1 - 1e-15, m, p) - 60)), int(min(m, binom.isf(1e-15, m, p) + 60))
        going, start = np.convolve(going, binom.pmf(np.arange(low, high + 1), m, p)), start + low
        crossing = going[max(0, c - start) :].sum()
        one_less = going[max(0, c - 1 - start) :].sum()
        budget = spends[: j + 1].sum() - spent
        assert crossing <= budget * (1 + 1e-8)
        assert one_less > budget * (1 - 1e-8)
        spent += crossing
        going = going[: max(0, c - start)]
    assert spent <= alpha
    assert n < 100_000 or spent > 0.7 * alpha
    fixed = int(boundaries(p, (n,), alpha, (alpha,))[0])
    assert fixed <= least[-1] <= fixed + 1


@pytest.mark.parametrize(("m", "p"), [(1, 0.3), (7, 0.999), (40, 0.5), (60, 1e-6), (300, 0.97), (100, 1 - 1e-9)])
def test_chances_of_new_votes_are_rounded_up_and_nothing_is_forgotten(m: int, p: float) -> None:
    drop = 1e-18
    chances, lowest, beyond = group_sequential._binomial(m, p, drop)
    exact = exact_sequential.binomial(m, Fraction(p))
    kept = range(lowest, lowest + len(chances))
    slack = 1 + Fraction(14 * len(chances) + 32, 2**52)
    for s, chance in zip(kept, chances.tolist(), strict=True):
        assert exact[s] <= Fraction(chance) * slack
        assert Fraction(chance) <= exact[s] * (1 + Fraction(1, 10**10))
    left = sum(mass for s, mass in exact.items() if s not in kept)
    assert left <= Fraction(beyond) <= Fraction(2.1 * drop)


def test_trimming_accounts_for_all_it_drops() -> None:
    mass = np.array([1e-30, 1e-25, 0.25, 0.5, 0.25, 1e-22, 1e-40])
    rest, below, lost = group_sequential._trimmed(mass, 1e-21)
    assert rest.tolist() == [0.25, 0.5, 0.25]
    assert below == 2
    assert lost >= 1e-30 + 1e-25 + 1e-22 + 1e-40


def test_a_programme_that_forgot_the_earlier_looks_would_be_noticed() -> None:
    looks, alpha = geometric_looks(2_000), 0.05
    spends = np.full(len(looks), alpha / len(looks))
    honest = boundaries(0.8, looks, alpha, spends)
    naive = np.array([int(boundaries(0.8, (n,), alpha, (alpha,))[0]) for n in looks])
    rng, trials = np.random.default_rng(3), 20_000
    wins = np.cumsum([rng.binomial(m, 0.8, trials) for m in np.diff((0, *looks))], axis=0)
    wrong = int((wins >= honest[:, None]).any(axis=0).sum())
    assert not too_often(wrong, trials, alpha)
    assert wrong > 0.6 * alpha * trials
    assert too_often(int((wins >= naive[:, None]).any(axis=0).sum()), trials, alpha)
    assert too_often(round(1.5 * alpha * trials), trials, alpha)


def test_looks_are_geometric_and_end_at_n() -> None:
    for n in (1, 5, 19, 20, 26, 100, 12_345, 10**6):
        looks = geometric_looks(n)
        assert looks[-1] == n
        assert all(a < b for a, b in pairwise(looks))
        assert looks[0] >= min(n, 20)
        assert all(b / a < 1.35 for a, b in pairwise(looks))
    assert len(geometric_looks(100_000)) == 37


def test_spends_add_up_to_alpha_and_leave_most_for_the_last_look() -> None:
    for n in (1, 30, 100_000):
        spends = spending(geometric_looks(n), 0.001)
        assert (spends > 0).all()
        assert float(sum(map(Fraction, spends.tolist()))) == pytest.approx(0.001, rel=1e-12)
        assert spends[-1] >= 0.9 * 0.001


@pytest.mark.parametrize("p", [0.3, 0.5, 0.84, 0.999, 0.99999])
@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_the_least_votes_are_enough_and_one_less_is_not(p: float, alpha: float) -> None:
    n = least_votes(p, alpha)
    for votes, reachable in ((n, True), (n - 1, False)):
        if votes:
            looks = geometric_looks(votes)
            assert (boundaries(p, looks, alpha, spending(looks, alpha))[-1] <= votes) == reachable


def test_futility_gives_up_where_a_claim_is_unlikely_and_not_elsewhere() -> None:
    looks = geometric_looks(10_000)
    hopeless = futility(looks, 8_500)
    assert hopeless[-1] == 8_499
    assert all(a < b for a, b in pairwise(hopeless))
    rng = np.random.default_rng(4)

    def luck(wins: int, votes: int) -> float:
        q = rng.beta(wins + 0.5, votes - wins + 0.5, 200_000)
        return float((wins + rng.binomial(10_000 - votes, q) >= 8_500).mean())

    for j in (0, 5, 15, 20):
        assert luck(int(hopeless[j]), looks[j]) < 3e-4
        assert luck(int(hopeless[j] + np.ceil(0.03 * looks[j])), looks[j]) > 1e-4


PLAN = (0.8, (20, 50, 100), 0.05, (0.01, 0.01, 0.03))


def test_a_boundary_that_is_changed_by_its_reader_stays_what_it_was() -> None:
    computed = boundaries(*PLAN)
    boundaries(*PLAN)[:] = 0
    assert np.array_equal(boundaries(*PLAN), computed)
    assert computed.dtype == np.int64
    assert computed.any()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ((0.0, (10,), 0.05, (0.05,)), "p=0.0 must lie"),
        ((1.0, (10,), 0.05, (0.05,)), "p=1.0 must lie"),
        ((float("nan"), (10,), 0.05, (0.05,)), "p=nan must lie"),
        ((0.5, (10,), 0.5, (0.05,)), "alpha=0.5 between 0 and 1/2"),
        ((0.5, (), 0.05, ()), "looks="),
        ((0.5, (10, 10), 0.05, (0.01, 0.01)), "ascending"),
        ((0.5, (0, 10), 0.05, (0.01, 0.01)), "ascending"),
        ((0.5, (10, 10**9), 0.05, (0.01, 0.01)), "use the e-process"),
        ((0.5, (10,), 0.05, (0.01, 0.01)), "one value for each of the 1 looks"),
        ((0.5, (10, 20), 0.05, (0.04, 0.02)), "at most 0.05"),
        ((0.5, (10, 20), 0.05, (0.06, -0.02)), "none negative"),
        ((0.5, (10, 20), 0.05, (float("nan"), 0.01)), "none negative"),
    ],
)
def test_plans_that_cannot_be_right_are_refused(plan: tuple, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        boundaries(*plan)


def test_no_votes_show_that_a_probability_exceeds_one() -> None:
    with pytest.raises(BadInput, match="no number of votes"):
        least_votes(1.0, 0.001)
    with pytest.raises(BadInput, match="at least one vote"):
        geometric_looks(0)
