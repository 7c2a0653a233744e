"""The shifts of uniform and splitting noise in exact rationals, their radii, and their tables on the grid."""

import math
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
from vauban.laws.rounded_noise import BITS
from vauban.laws.splitting import SplittingLaw
from vauban.laws.topk import radius
from vauban.laws.uniform import UniformLaw

LAMBDA = 0.5 * math.sqrt(3)


@given(p=st.floats(0, 1, allow_subnormal=False), r=st.floats(1e-200, 20) | st.just(0.0), sigma=st.floats(0.01, 5))
@examples(400)
def test_shifts_are_those_of_the_theorem_and_err_on_the_safe_side(p: float, r: float, sigma: float) -> None:
    with mpmath.workdps(60):
        moved = mpmath.mpf(r) / (2 * mpmath.sqrt(3) * mpmath.mpf(sigma))
        most, least = min(1, p + moved), max(0, p - moved)
        for noise in (UniformLaw(sigma), SplittingLaw(sigma, sampled=True)):
            assert -2e-16 * most <= mpmath.mpf(float(noise.most(p, r))) - most <= 1e-14
            assert -2e-16 * least <= least - mpmath.mpf(float(noise.least(p, r))) <= 1e-14


def test_radii_are_half_the_gap_times_the_width() -> None:
    rng = np.random.default_rng(0)
    p_a = rng.uniform(0.05, 1, 500)
    p_b = np.minimum(p_a, 1 - p_a) * rng.uniform(0, 0.99, 500)
    for text in ("uniform:sigma=0.5", "splitting:sigma=0.5,sampled=true"):
        found = radius(law(text), p_a, p_b[:, None])
        assert np.allclose(found, (p_a - p_b) * LAMBDA, atol=1e-11)
        assert (found <= (p_a - p_b) * LAMBDA).all()
    top2 = radius(law("uniform:sigma=0.5"), np.array([0.5]), np.array([[0.2, 0.5]]))
    assert top2[0] == pytest.approx(2 * LAMBDA * max((0.5 - 0.2) / 2, (0.5 - 0.5 / 2) / 1.5), abs=1e-11)


def weights(thresholds: np.ndarray) -> list[int]:
    ends = [0, *(int(t) for t in thresholds), 2**BITS]
    return [b - a for a, b in pairwise(ends)]


@pytest.mark.parametrize(("sigma", "levels"), [(0.5, 15), (0.02, 255), (1.3, 255), (0.001, 900)])
def test_rounding_uniform_noise_to_the_grid_costs_nothing(sigma: float, levels: int) -> None:
    table = UniformLaw(sigma).rounded(levels)
    made = np.array(weights(table.thresholds), dtype=object)
    assert made.sum() == 2**BITS
    with mpmath.workdps(60):
        width = 2 * mpmath.sqrt(3) * mpmath.mpf(sigma) * levels
        for steps in range(1, min(len(made), 40)):
            here, there = np.append(made, [0] * steps), np.append([0] * steps, made)
            variation = mpmath.mpf(int(abs(here - there).sum())) / 2 ** (BITS + 1)
            assert variation <= min(steps / width, 1) + 2 * table.deviation
            assert variation >= steps / width - 2 * table.deviation or steps > width - 1
        ideal = [_cell(v, width) for v in range(-table.offset, table.offset + 1)]
        distance = sum(abs(p - mpmath.mpf(w) / 2**BITS) for p, w in zip(ideal, made, strict=True)) / 2
        assert distance <= table.deviation < 1e-15
    assert UniformLaw(sigma).deviation((2, 5), levels) == 10 * table.deviation


def _cell(value: int, width: mpmath.mpf) -> mpmath.mpf:
    low, high = max(value - 0.5, -width / 2), min(value + 0.5, width / 2)
    return max(high - low, mpmath.mpf(0)) / width


@given(sigma=st.floats(1e-4, 50), levels=st.sampled_from([1, 3, 15, 255]))
@examples(200)
def test_the_period_is_the_width_rounded_up_to_whole_steps(sigma: float, levels: int) -> None:
    with mpmath.workdps(60):
        assert SplittingLaw(sigma, sampled=True).period(levels) == int(
            mpmath.ceil(2 * mpmath.sqrt(3) * mpmath.mpf(sigma) * levels)
        )


@pytest.mark.parametrize(
    ("sigma", "levels"), [(0.5, 255), (0.1, 255), (0.001, 255), (0.2887, 1), (0.4, 4), (30.0, 255)]
)
def test_no_divider_is_likelier_than_the_law_says(sigma: float, levels: int) -> None:
    noise = SplittingLaw(sigma, sampled=True)
    period = noise.period(levels)
    made = weights(noise.rounded(levels).thresholds)
    dividers = made[:-1]
    assert len(dividers) == min(period, levels)
    assert all(
        Fraction(1, period) - Fraction(1, 2**BITS) <= Fraction(w, 2**BITS) <= Fraction(1, period) for w in dividers
    )
    assert made[-1] > 0
    assert (
        period > levels or made[-1] <= period
    )  # with no place beyond the levels, only left-over words tell nothing apart
    assert noise.deviation((3, 32, 32), levels) == 0.0
    assert noise.deviation((3, 32, 32), None) == 3072 * 2.0**-52


def test_texts() -> None:
    assert law("uniform:sigma=0.5") == UniformLaw(0.5)
    assert law("splitting:sigma=0.5,sampled=true") == SplittingLaw(0.5, sampled=True)
    assert str(SplittingLaw(0.25, sampled=True).spec) == "splitting:sigma=0.25,sampled=true"
    assert UniformLaw(0.5) != SplittingLaw(0.5, sampled=True)
    for wrong, answer in [
        ("uniform", "needs sigma"),
        ("uniform:sigma=-1", "above zero"),
        ("uniform:sigma=nan", "above zero"),
        ("uniform:sampled=true", "no parameter 'sampled'"),
        ("splitting:sampled=true", "needs sigma"),
        ("splitting:sigma=0.5,sampled=yes", "neither true nor false"),
    ]:
        with pytest.raises(BadInput, match=answer):
            law(wrong)
    with pytest.raises(BadInput, match="narrower"):
        UniformLaw(0.001).rounded(255)
    assert {UniformLaw(1.0).threat.name, SplittingLaw(1.0, sampled=True).threat.name} == {"l1"}
    assert UniformLaw(1.0).threat.ball == "open"
