"""The Gaussian top-k radius against roots at 50 digits: close, never above, and NaN exactly where nothing holds."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from amounts import examples
from exact_gaussian import DIGITS, exact_radius, normal_quantile, stays_at
from hypothesis import assume, given
from hypothesis import strategies as st

from vauban.bounds.simultaneous import ProbabilityBounds
from vauban.laws.gaussian import GaussianLaw
from vauban.laws.topk import radius, stays_in_top_k

CLOSE = 1e-9
AWAY_FROM_ROUNDING = Fraction(1, 10**11)


@st.composite
def shares(draw: st.DrawFn) -> tuple[float, list[float]]:
    """A label's probability and its k rivals', ascending; anywhere from even to one part in 1e12."""
    k = draw(st.integers(1, 5))
    power = st.floats(-12.0, 0.0)
    weights = [10.0 ** draw(power) for _ in range(k + 2)]
    label, rest, *rivals = (w / sum(weights) for w in weights)
    if draw(st.booleans()):
        label, rivals = max(label, rest), [min(label, rest), *rivals[1:]]
    return label, sorted(rivals)


def sums(p_label: float, rivals: list[float]) -> list[float]:
    return ProbabilityBounds(np.array([p_label]), np.array([rivals])).sums()[0].tolist()


def one_radius(p_label: float, p_sums: list[float], sigma: float) -> float:
    return float(radius(GaussianLaw(sigma), [p_label], [p_sums])[0])


@examples(400)
@given(shares(), st.sampled_from([0.01, 0.12, 0.25, 0.5, 1.0, 2.0, 100.0]))
def test_the_label_stays_at_the_radius_and_leaves_right_after(p: tuple[float, list[float]], sigma: float) -> None:
    p_sums = sums(*p)
    got = one_radius(p[0], p_sums, sigma)
    with mpmath.workdps(DIGITS):
        shift = mpmath.mpf(0) if np.isnan(got) else mpmath.mpf(got) / mpmath.mpf(sigma)
        assert np.isnan(got) or stays_at(p[0], p_sums, shift)
        assert not stays_at(p[0], p_sums, shift + mpmath.mpf(CLOSE))


@examples(40)
@given(shares(), st.sampled_from([0.01, 0.12, 0.25, 0.5, 1.0, 2.0, 100.0]))
def test_radius_is_the_root_and_never_above(p: tuple[float, list[float]], sigma: float) -> None:
    p_sums = sums(*p)
    got = one_radius(p[0], p_sums, sigma)
    exact = exact_radius(p[0], p_sums, sigma)
    with mpmath.workdps(DIGITS):
        assert np.isnan(got) or exact - CLOSE * sigma <= got <= exact
        assert not np.isnan(got) or exact <= CLOSE * sigma


@examples(1_000)
@given(shares())
def test_nothing_is_certified_exactly_where_the_input_itself_is_not(p: tuple[float, list[float]]) -> None:
    p_sums = sums(*p)
    lead = Fraction(p[0]) - min(Fraction(s) / t for t, s in enumerate(p_sums, 1))
    assume(abs(lead) > AWAY_FROM_ROUNDING * Fraction(p[0]))
    assert np.isnan(one_radius(p[0], p_sums, 1.0)) == (lead <= 0)


def test_equal_shares_are_not_certified() -> None:
    for k in range(1, 6):
        for share in (1e-9, 0.01, 1 / (k + 1)):
            assert np.isnan(one_radius(share, sums(share, [share] * k), 0.5))


@examples(200)
@given(st.floats(1e-12, 1 - 1e-12), st.floats(1e-12, 1.0), st.sampled_from([0.12, 0.25, 0.5, 1.0]))
def test_one_label_gives_half_the_difference_of_quantiles(p_label: float, share: float, sigma: float) -> None:
    rival = share * (1 - p_label)
    assume(p_label > rival * (1 + 1e-9))
    with mpmath.workdps(DIGITS):
        exact = mpmath.mpf(sigma) / 2 * (normal_quantile(p_label) - normal_quantile(rival))
        assert exact - CLOSE <= one_radius(p_label, [rival], sigma) <= exact


def test_binocp_gives_cohens_radius() -> None:
    p = np.array([0.51, 0.6, 0.9, 0.99, 0.999, 1 - 1e-6])
    got = radius(GaussianLaw(0.5), p, (1 - p)[:, None])
    assert got == pytest.approx([float(0.5 * normal_quantile(q)) for q in p], abs=CLOSE)


@examples(200)
@given(shares(), st.floats(0.0, 1.0))
def test_radius_grows_with_the_label_and_shrinks_with_a_rival(p: tuple[float, list[float]], share: float) -> None:
    label, rivals = p
    more = label + share * (1 - label - sum(rivals))
    fewer = [rivals[0] * share, *rivals[1:]]
    before = np.nan_to_num(one_radius(label, sums(label, rivals), 1.0))
    assert np.nan_to_num(one_radius(more, sums(more, rivals), 1.0)) >= before - 1e-11
    assert np.nan_to_num(one_radius(label, sums(label, fewer), 1.0)) >= before - 1e-11


def test_radius_grows_with_k() -> None:
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.full(6, 0.7), size=300)
    label, rivals = p[:, 0], np.sort(p[:, 1:], axis=1)
    by_k = [
        np.nan_to_num(radius(GaussianLaw(0.5), label, ProbabilityBounds(label, rivals[:, -k:]).sums()))
        for k in range(1, 6)
    ]
    assert (np.diff(by_k, axis=0) >= -1e-11).all()
    assert all((after > before + 1e-3).sum() > 30 for before, after in pairwise(by_k))


def test_radius_scales_with_sigma() -> None:
    rng = np.random.default_rng(4)
    p = rng.dirichlet(np.ones(4), size=50)
    p_sums = np.cumsum(np.sort(p[:, 1:], axis=1), axis=1)
    unit = radius(GaussianLaw(1.0), p[:, 0], p_sums)
    for sigma in (0.01, 0.3, 7.0):
        assert radius(GaussianLaw(sigma), p[:, 0], p_sums) == pytest.approx(
            sigma * unit, abs=1e-11 * sigma, nan_ok=True
        )


def test_the_label_stays_up_to_the_radius_and_not_beyond() -> None:
    law = GaussianLaw(0.5)
    p_label, p_sums = np.array([0.4, 0.6, 0.99]), np.array([[0.1, 0.3], [0.2, 0.4], [0.001, 0.01]])
    r = radius(law, p_label, p_sums)
    for part in (0.0, 0.5, 1.0):
        assert stays_in_top_k(law, p_label, p_sums, part * r).all()
    assert not stays_in_top_k(law, p_label, p_sums, r + 1e-10).any()


def test_the_shifts_are_each_others_inverse() -> None:
    law = GaussianLaw(0.7)
    p = np.array([1e-9, 0.01, 0.3, 0.5, 0.9])
    assert law.least(law.most(p, 0.4), 0.4) == pytest.approx(p, rel=1e-9)
    assert law.least(p, 0.4) == pytest.approx(1 - law.most(1 - p, 0.4), rel=1e-6)
    assert (law.most(p, 0.4) > p).all()
    assert (law.least(p, 0.4) < p).all()


def test_rows_do_not_disturb_each_other() -> None:
    law = GaussianLaw(1.0)
    p_label, p_sums = np.array([0.6, 0.1, 1 - 1e-10]), np.array([[0.3, 0.35], [0.3, 0.6], [1e-12, 2e-12]])
    together = radius(law, p_label, p_sums)
    alone = [radius(law, p_label[i : i + 1], p_sums[i : i + 1])[0] for i in range(3)]
    assert together == pytest.approx(alone, abs=1e-12, nan_ok=True)
    assert np.isnan(together).tolist() == [False, True, False]
