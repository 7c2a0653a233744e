"""Variable-width splitting: its shift, the law of its widths, and the tables that sample them."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from amounts import examples
from hypothesis import given
from hypothesis import strategies as st

from vauban.errors import BadInput
from vauban.laws import law
from vauban.laws.fractional import WIDTH_BITS, FractionalLaw
from vauban.laws.rounded_noise import BITS
from vauban.laws.topk import radius

fractions = st.builds(lambda a, b: Fraction(min(a, b), max(a, b)), st.integers(1, 12), st.integers(1, 12))


def built(p: Fraction | str, scale: float, **options: str) -> FractionalLaw:
    return FractionalLaw(Fraction(p), scale, sampled=True, **options)


def g(z: mpmath.mpf, p: Fraction, scale: float) -> mpmath.mpf:
    """|z|^p / scale, to many digits."""
    return mpmath.power(z, mpmath.mpf(p.numerator) / p.denominator) / mpmath.mpf(scale)


@given(
    event=st.floats(0, 1, allow_subnormal=False),
    r=st.floats(1e-200, 2) | st.just(0.0) | st.floats(-12, 12).map(lambda e: 10.0**e),
    p=fractions,
    scale=st.floats(1, 40),
)
@examples(400)
def test_shifts_are_those_of_the_corollary_and_err_on_the_safe_side(
    event: float, r: float, p: Fraction, scale: float
) -> None:
    with mpmath.workdps(60):
        moved = g(mpmath.mpf(r), p, scale)
        most, least = min(1, event + moved), max(0, event - moved)
        assert -2e-16 * most <= mpmath.mpf(float(built(p, scale).most(event, r))) - most <= 1e-12
        assert -2e-16 * least <= least - mpmath.mpf(float(built(p, scale).least(event, r))) <= 1e-12


@pytest.mark.parametrize("p", ["1", "1/2", "1/3", "2/3", "1/10"])
def test_radii_are_in_lp_units(p: str) -> None:
    rng = np.random.default_rng(0)
    p_a = rng.uniform(0.3, 1, 300)
    p_b = np.minimum(p_a, 1 - p_a) * rng.uniform(0, 0.9, 300)
    formula = (9 * (p_a - p_b) / 2) ** (1 / float(Fraction(p)))  # C.4
    found = radius(built(p, 9), p_a, p_b[:, None])
    assert np.allclose(found, formula, rtol=1e-9, atol=1e-10)
    assert (found <= formula).all()


def test_p_of_one_is_splitting_of_that_width() -> None:
    r, event = np.linspace(0, 5, 50), np.linspace(0, 1, 20)[:, None]
    width = 4.0
    splitting = law(f"splitting:sigma={width / 2 / 3**0.5},sampled=true")
    assert np.allclose(built("1", width).most(event, r), splitting.most(event, r), rtol=1e-12)
    assert built("1", width).threat == splitting.threat


@pytest.mark.parametrize(("p", "scale"), [("1/2", 1.0), ("1/3", 18.0), ("4/5", 2.5)])
def test_the_law_of_the_width_tells_apart_with_probability_g(p: str, scale: float) -> None:
    """Theorem 4.2-a by numerical integration of the density in Corollary 4.1."""
    with mpmath.workdps(40):
        power = mpmath.mpf(Fraction(p).numerator) / Fraction(p).denominator

        def density(z: mpmath.mpf) -> mpmath.mpf:
            return power * (1 - power) * z ** (power - 1) / scale

        for z in (0.01, 0.3, 0.99):
            inside = mpmath.quad(density, [0, z])
            beyond = z * mpmath.quad(lambda t: density(t) / t, [z, 1]) + z * power / scale
            assert abs(inside + beyond - g(mpmath.mpf(z), Fraction(p), scale)) < 1e-11


@pytest.mark.parametrize("levels", [4, 255])
@pytest.mark.parametrize(
    ("p", "scale"), [("1/2", 1.0), ("1/2", 18.0), ("1/3", 9.0), ("1/10", 1.5), ("1", 1.0), ("1", 3.0)]
)
def test_the_table_never_tells_apart_more_than_g_and_hardly_less(p: str, scale: float, levels: int) -> None:
    table = built(p, scale).table(levels)
    cells = [int(e - s) // j for j, (s, e) in enumerate(zip(table.starts, table.starts[1:], strict=False), start=1)]
    assert len(cells) == levels
    for j, (cell, start, end) in enumerate(zip(cells, table.starts, table.starts[1:], strict=False), start=1):
        assert cell * j == end - start
        assert cell in (0, table.cells[j - 1])
    with mpmath.workdps(60):
        for k in range(levels + 1):
            apart = mpmath.mpf(sum(min(j, k) * cell for j, cell in enumerate(cells, start=1))) / 2**BITS
            assert 0 <= g(mpmath.mpf(k) / levels, Fraction(p), scale) - apart <= mpmath.mpf(levels + 1) ** 2 / 2**BITS
    assert np.array_equal(table.widths.thresholds, table.starts[1:])
    assert built(p, scale).deviation((3, 32, 32), levels) == 0.0


@pytest.mark.parametrize(("p", "scale"), [("1/2", 1.0), ("1/3", 18.0), ("9/10", 7.5), ("1/50", 2.0), ("1", 3.0)])
def test_widths_off_the_grid_tell_apart_at_most_g_and_hardly_less(p: str, scale: float) -> None:
    widths = built(p, scale).float_widths()
    assert widths.shape == (2**WIDTH_BITS,)
    assert (widths > 0).all()
    assert (np.diff(widths[np.isfinite(widths)]) >= 0).all()
    exponent = float(Fraction(p))
    for z in (1e-30, 1e-9, 1e-3, 0.04, 0.5, 1.0):
        apart = np.minimum(z / widths, 1).sum() / 2**WIDTH_BITS
        assert apart <= z**exponent / scale * (1 - 2.0**-28 * exponent / 2)  # what rounding x / width may cost
        assert apart >= z**exponent / scale - 3 * 2.0**-WIDTH_BITS
    assert built(p, scale).deviation((10,), None) == 10 * 2.0**-47


def test_texts() -> None:
    assert law("fractional:p=1/2,scale=9,sampled=true") == built("1/2", 9.0)
    assert law("fractional:p=0.25,scale=9,sampled=true").spec.params["p"] == "1/4"
    text = "fractional:p=1/3,scale=18.0,sampled=true,representation=center"
    assert str(law(text).spec) == text
    threat = built("1/2", 9).threat
    assert (threat.name, threat.ball) == ("l1/2", "open")
    assert "L1/2 quasi-norm" in threat.sentence()
    for wrong, answer in [
        ("fractional:scale=9,sampled=true", "needs p"),
        ("fractional:p=1/2,sampled=true", "needs scale"),
        ("fractional:p=0,scale=9,sampled=true", "above 0 and at most 1"),
        ("fractional:p=3/2,scale=9,sampled=true", "above 0 and at most 1"),
        ("fractional:p=1/0,scale=9,sampled=true", "cannot be read"),
        ("fractional:p=half,scale=9,sampled=true", "fractional:p=1/2,scale=9"),
        ("fractional:p=1/2,scale=0.5,sampled=true", "at least 1"),
        ("fractional:p=1/2,scale=inf,sampled=true", "finite"),
        ("fractional:p=1/2,scale=9,sampled=true,representation=upper", "did you mean 'upper_lower'"),
    ]:
        with pytest.raises(BadInput, match=answer):
            law(wrong)
    with pytest.raises(BadInput, match="ExactFractionalLaw is the exact one"):
        FractionalLaw(Fraction(1, 2), 9.0, sampled=False)
