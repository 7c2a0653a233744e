"""The Laplace shifts against a slow reference, the radii against the paper's formulas."""

from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from amounts import examples
from hypothesis import given
from hypothesis import strategies as st

from vauban.errors import BadInput
from vauban.laws import law
from vauban.laws.laplace import LaplaceLaw
from vauban.laws.rounded_noise import BITS
from vauban.laws.topk import radius

SIGMA = 0.5
B = SIGMA / np.sqrt(2)
TINY = 1e-300  # what numbers that are not normal may lose
probabilities = st.one_of(
    st.floats(0, 1), st.floats(-80, 0).map(lambda e: 10.0**e), st.floats(-15, 0).map(lambda e: 1 - 10.0**e)
)


def cdf(z: mpmath.mpf) -> mpmath.mpf:
    return mpmath.exp(z) / 2 if z < 0 else 1 - mpmath.exp(-z) / 2


def quantile(p: mpmath.mpf) -> mpmath.mpf:
    return mpmath.log(2 * p) if p < 0.5 else -mpmath.log(2 * (1 - p))


def shifted(p: float, x: mpmath.mpf, sign: int) -> mpmath.mpf:
    """F(F^-1(p) + sign x) for scale 1, by the definition alone."""
    return mpmath.mpf(p) if p in (0, 1) else cdf(quantile(mpmath.mpf(p)) + sign * x)


@given(p=probabilities, r=st.floats(0, 8), sigma=st.floats(0.05, 4))
@examples(400)
def test_exact_shifts_are_those_of_the_definition_and_err_on_the_safe_side(p: float, r: float, sigma: float) -> None:
    with mpmath.workdps(150):
        x = mpmath.mpf(r) * mpmath.sqrt(2) / mpmath.mpf(sigma)
        for got, true, sign in (
            (LaplaceLaw(sigma).most(p, r), shifted(p, x, 1), 1),
            (LaplaceLaw(sigma).least(p, r), shifted(p, x, -1), -1),
        ):
            error = sign * (mpmath.mpf(float(got)) - true)
            assert -4e-16 * true - TINY <= error <= 1e-12 * true + TINY


@given(p=probabilities, r=st.floats(0, 8))
@examples(200)
def test_the_weaker_bounds_are_their_inequalities_and_never_beat_the_exact_one(p: float, r: float) -> None:
    exact, theorem1, lecuyer = (LaplaceLaw(SIGMA, bound) for bound in ("exact", "theorem1", "lecuyer"))
    with mpmath.workdps(150):
        e = mpmath.exp(mpmath.mpf(r) * mpmath.sqrt(2) / mpmath.mpf(SIGMA))
        grown, shrunk = min(1, e * mpmath.mpf(p)), mpmath.mpf(p) / e
        either = max(shrunk, 1 - e * (1 - mpmath.mpf(p)))
        for got, true in (
            (theorem1.most(p, r), grown),
            (lecuyer.most(p, r), grown),
            (lecuyer.least(p, r), shrunk),
        ):
            assert abs(mpmath.mpf(float(got)) - true) <= 1e-12 * true + TINY
        assert either - 1e-12 <= mpmath.mpf(float(theorem1.least(p, r))) <= either * (1 + 1e-15) + TINY
    assert exact.most(p, r) <= theorem1.most(p, r) * (1 + 1e-14)
    assert exact.least(p, r) * (1 + 1e-14) >= theorem1.least(p, r) >= lecuyer.least(p, r)


@given(p=probabilities, a=st.floats(0, 3), b=st.floats(0, 3))
@examples(200)
def test_moving_twice_is_moving_as_far(p: float, a: float, b: float) -> None:
    noise = LaplaceLaw(SIGMA)
    assert noise.most(noise.most(p, a), b) == pytest.approx(noise.most(p, a + b), rel=1e-9)
    assert noise.least(noise.least(p, a), b) == pytest.approx(noise.least(p, a + b), rel=1e-6, abs=1e-12)


def test_the_least_of_the_three_pieces_would_be_unsound() -> None:
    p, decay = np.array([0.01, 0.9]), np.exp(-1.0)
    pieces = np.stack([p / decay, 1 - decay / (4 * p), 1 - decay * (1 - p)])
    assert (pieces.min(axis=0) < LaplaceLaw(SIGMA).most(p, B) - 0.001).any()


def test_shifts_stay_probabilities_at_the_ends() -> None:
    ps, rs = np.array([0.0, 1e-320, 1e-300, 0.5, 1 - 1e-16, 1.0]), np.array([0.0, 1e-9, 1.0, 250.0, 1e6])
    for bound in ("exact", "theorem1", "lecuyer"):
        noise = LaplaceLaw(SIGMA, bound)
        most, least = noise.most(ps[:, None], rs), noise.least(ps[:, None], rs)
        assert np.isfinite(most).all()
        assert (most <= 1).all()
        assert (most >= ps[:, None] * (1 - 1e-15)).all()
        assert (least >= 0).all()
        assert (least <= ps[:, None] * (1 + 1e-15)).all()
    assert (LaplaceLaw(SIGMA).most(0.0, rs) == 0).all()
    assert (LaplaceLaw(SIGMA).least(1.0, rs) == 1).all()


def pairs(seed: int, count: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p_a = rng.uniform(0.02, 0.9999, count)
    return p_a, np.minimum(p_a, 1 - p_a) * rng.uniform(0.01, 0.99, count)


def test_two_classes_are_theorem_2() -> None:
    p = np.linspace(0.501, 0.999999, 400)
    formula = -B * np.log(2 * (1 - p))
    for bound in ("exact", "theorem1"):
        found = radius(LaplaceLaw(SIGMA, bound), p, (1 - p)[:, None])
        assert np.allclose(found, formula, atol=1e-9)
        assert (found <= formula).all()


def test_top_class_radii_are_those_of_the_paper() -> None:
    p_a, p_b = pairs(0)
    privacy, complement = B / 2 * np.log(p_a / p_b), -B * np.log(1 - p_a + p_b)
    for bound, formula in (("lecuyer", privacy), ("theorem1", np.maximum(privacy, complement))):
        found = radius(LaplaceLaw(SIGMA, bound), p_a, p_b[:, None])
        assert np.allclose(found, formula, rtol=1e-9, atol=1e-11)
        assert (found <= formula).all()
    better = ((1 - p_a) ** 2 / p_a <= p_b) & (p_b <= p_a)  # Figure 4, its two roots written out
    assert np.array_equal(better, complement >= privacy)
    assert 50 < better.sum() < 250


def test_exact_radii_are_never_smaller() -> None:
    p_a, p_b = pairs(1, 2000)
    radii = [radius(LaplaceLaw(SIGMA, bound), p_a, p_b[:, None]) for bound in ("exact", "theorem1", "lecuyer")]
    assert (radii[0] >= radii[1] - 1e-11).all()
    assert (radii[1] >= radii[2] - 1e-11).all()
    assert (radii[0] > 1.1 * radii[1]).any()
    sums = np.sort(np.random.default_rng(2).uniform(0, 1, (2000, 3)), axis=1).cumsum(axis=1)
    sums = np.minimum(sums / 4, (1 - p_a)[:, None])
    tops = [np.nan_to_num(radius(LaplaceLaw(SIGMA, b), p_a, sums)) for b in ("exact", "theorem1", "lecuyer")]
    assert (tops[0] >= tops[1] - 1e-11).all()
    assert (tops[1] >= tops[2] - 1e-11).all()


def test_the_table_on_the_grid_is_the_rounded_law_within_its_deviation() -> None:
    levels, sigma = 15, 0.4
    table = LaplaceLaw(sigma).rounded(levels)
    ends = [0, *(int(t) for t in table.thresholds), 2**BITS]
    with mpmath.workdps(150):
        step = mpmath.sqrt(2) / (mpmath.mpf(sigma) * levels)
        ideal = [cdf((v + 0.5) * step) - cdf((v - 0.5) * step) for v in range(-table.offset, table.offset + 1)]
        made = [mpmath.mpf(b - a) / 2**BITS for a, b in pairwise(ends)]
        outside = 2 * (1 - cdf((table.offset + 0.5) * step))
        variation = (sum(abs(p - q) for p, q in zip(ideal, made, strict=True)) + outside) / 2
        assert variation <= table.deviation < 2 * variation + 1e-18
    assert LaplaceLaw(sigma).deviation((3, 2), levels) == 6 * table.deviation
    assert LaplaceLaw(sigma).deviation((3, 2), None) == 0.0


def test_texts() -> None:
    assert law("laplace:sigma=0.5,bound=theorem1") == LaplaceLaw(0.5, "theorem1")
    assert str(law("laplace:sigma=0.5,bound=exact").spec) == "laplace:sigma=0.5"
    assert str(LaplaceLaw(0.5, "lecuyer").spec) == "laplace:sigma=0.5,bound=lecuyer"
    for wrong, answer in [
        ("laplace", "needs sigma"),
        ("laplace:sigma=0", "above zero"),
        ("laplace:sigma=0.5,bound=exakt", "did you mean 'exact'"),
        ("laplace:sigma=0.5,bounds=exact", "did you mean 'bound'"),
    ]:
        with pytest.raises(BadInput, match=answer):
            law(wrong)
    with pytest.raises(BadInput, match="above zero"):
        LaplaceLaw(float("inf"))
    with pytest.raises(BadInput, match="larger"):
        LaplaceLaw(1e-4).rounded(255)
    assert Fraction(LaplaceLaw(0.25).scale) == Fraction(1, 4)
    assert LaplaceLaw(0.5).threat.name == "l1"
    assert LaplaceLaw(0.5).threat.ball == "open"
