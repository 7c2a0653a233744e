"""Claims about a whole data set: quantiles in exact integers, Bernstein derived again, and exact coverage."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from amounts import examples
from exact_binomial import rational_at_least
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from vauban.bounds.dataset import claim_floor, false_claims
from vauban.errors import BadInput


def bernstein_floor(claimed: int, m: int, alpha: float, rho: float) -> mpmath.mpf:
    """The least share of true claims, by bisection.

    If z inputs deserve the claim, the others' false claims are at most Binomial(m - z, alpha), a sum whose variance is at
    most v = m alpha (1 - alpha). Bernstein: it exceeds its mean by more than sqrt(2 v L) + L / 3 with probability at
    most rho = exp(-L). So z + (m - z) alpha + sqrt(2 v L) + L / 3 >= claimed, and the left side grows with z.
    """
    with mpmath.workdps(40):
        a, log = mpmath.mpf(alpha), -mpmath.log(mpmath.mpf(rho))
        low, high = mpmath.mpf(0), mpmath.mpf(m)
        for _ in range(120):
            z = (low + high) / 2
            enough = z + (m - z) * a + mpmath.sqrt(2 * m * a * (1 - a) * log) + log / 3 >= claimed
            low, high = (low, z) if enough else (z, high)
        return low / m


@examples(150)
@given(
    m=st.integers(1, 200),
    alpha=st.one_of(st.sampled_from([1e-6, 1e-3, 0.05, 0.5]), st.floats(1e-9, 0.9)),
    rho=st.one_of(st.sampled_from([1e-9, 1e-3, 0.05]), st.floats(1e-9, 0.9)),
)
def test_false_claims_is_the_exact_quantile(m: int, alpha: float, rho: float) -> None:
    q = false_claims(m, alpha, rho)
    assert 0 <= q <= m
    assert rational_at_least(q + 1, m, alpha) <= rho
    assert q == 0 or rational_at_least(q, m, alpha) > rho * (1 - 1e-8)


@examples(200)
@given(
    data=st.data(),
    m=st.integers(1, 100_000),
    alpha=st.floats(1e-9, 0.9),
    rho=st.floats(1e-9, 0.9),
)
def test_bernstein_is_what_the_derivation_gives_and_not_more(
    data: st.DataObject, m: int, alpha: float, rho: float
) -> None:
    claimed = data.draw(st.integers(0, m))
    floor = claim_floor(claimed, m, alpha, rho, "bernstein")
    exact = bernstein_floor(claimed, m, alpha, rho)
    assert exact - mpmath.mpf("1e-9") <= floor <= exact + mpmath.mpf("1e-30")


@pytest.mark.parametrize("method", ["binomial", "bernstein"])
@pytest.mark.parametrize("rho", [0.001, 0.05, 0.3])
@pytest.mark.parametrize("alpha", [0.001, 0.02, 0.3])
def test_the_floor_exceeds_the_truth_with_probability_at_most_rho(method: str, alpha: float, rho: float) -> None:
    for m in (1, 7, 60):
        floors = np.array([claim_floor(claimed, m, alpha, rho, method) for claimed in range(m + 1)])
        for true in range(m + 1):
            false = np.arange(m - true + 1)
            wrong = binom.pmf(false, m - true, alpha)[floors[true + false] > true / m + 1e-12].sum()
            assert wrong <= rho * (1 + 1e-9)


def test_the_exact_coverage_check_notices_one_input_too_many() -> None:
    m, alpha, rho = 60, 0.02, 0.05
    q = false_claims(m, alpha, rho)
    assert binom.sf(q, m, alpha) <= rho < binom.sf(q - 1, m, alpha)


def test_five_hundred_inputs_at_one_in_a_thousand_lose_four() -> None:
    assert false_claims(500, 0.001, 0.001) == 4
    assert claim_floor(450, 500, 0.001, 0.001) == 446 / 500
    assert 4.9 < 500 * (0.9 - claim_floor(450, 500, 0.001, 0.001, "bernstein")) < 5.2


@pytest.mark.parametrize("method", ["binomial", "bernstein"])
def test_claims_that_cannot_be_wrong_lose_nothing(method: str) -> None:
    assert claim_floor(450, 500, 0.0, 0.001, method) == 0.9
    assert claim_floor(0, 500, 0.0, 0.001, method) == 0.0


@pytest.mark.parametrize("method", ["binomial", "bernstein"])
def test_the_floor_is_never_negative_and_never_above_what_was_claimed(method: str) -> None:
    for claimed in range(101):
        assert 0.0 <= claim_floor(claimed, 100, 0.01, 0.01, method) <= claimed / 100


def test_an_unknown_method_is_answered_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match="bernstein, binomial"):
        claim_floor(1, 2, 0.1, 0.1, "hoeffding")
