"""Conversions of radii: their closed forms, their rounding, and what is refused."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from amounts import examples
from hypothesis import example, given
from hypothesis import strategies as st

from vauban.errors import BadInput
from vauban.laws.conversions import convert, implied, targets
from vauban.threats import L0, L0_FEATURES, L1, L2, PATCH, WASSERSTEIN, WASSERSTEIN_L2, Threat, lp

PICTURE = (3, 32, 32)
L1_CLOSED = Threat("l1", "L1 norm", "units of the input", "closed")
HALF, THIRD = lp(Fraction(1, 2)), lp(Fraction(1, 3))


def one(radius: float, source: Threat, target: str, shape=PICTURE, **more) -> float:
    return float(convert(radius, source, target, shape, **more))


@pytest.mark.parametrize(
    ("radius", "source", "target", "expected"),
    [
        (0.5, L2, "l1", 0.5),
        (3.0, L2, "l1", 9.0),
        (0.5, L2, "l0", 0.0),
        (math.sqrt(3), L2, "l0", 0.0),  # the float is below the root: its square is below 3
        (math.nextafter(math.sqrt(3), 2), L2, "l0", 1.0),
        (3.0, L2, "l0", 2.0),  # 9 / 3 = 3 pixels would lie on the border of an open ball
        (3.0, L2, "l0-features", 8.0),
        (6.0, L1, "l0", 1.0),
        (6.0, L1_CLOSED, "l0", 2.0),
        (6.0, L1, "l0-features", 5.0),
        (6.0, L1_CLOSED, "l0-features", 6.0),
        (13.0, L1_CLOSED, "patch", 2.0),
        (7.0, L0_FEATURES, "l0", 2.0),
        (12.0, L0_FEATURES, "patch", 2.0),
        (24.0, L0, "patch", 4.0),
        (25.0, L0, "patch", 5.0),
        (25.0, L0, "l0-features", 25.0),
        (1024.0, L0, "l0-features", 3072.0),
        (0.0, L0, "patch", 0.0),
        (4.0, L1, "l1/2", 16.0),
        (0.25, L1, "l0.5", 0.25),
        (9.0, L1, "l1/3", 729.0),
        (16.0, HALF, "l0-features", 3.0),
        (100.0, HALF, "l0", 3.0),
        (0.5, WASSERSTEIN_L2, "wasserstein", 0.5),
        (3072.0, L1, "linf", 1.0),
        (3072.0**2, HALF, "linf", 1.0),
    ],
)
def test_closed_forms(radius, source, target, expected) -> None:
    assert one(radius, source, target) == expected


def test_l_infinity_is_the_l2_radius_over_the_root_of_the_features() -> None:
    assert one(14.0, L2, "linf", (1, 28, 28)) == 0.5
    assert one(0.5, L2, "linf") == pytest.approx(0.5 / math.sqrt(3072), rel=1e-15)
    (words,) = implied(L2, "linf", (1, 28, 28))
    assert "what the L2 norm radii imply" in words
    assert "divided by 784^(1/2)" in words
    assert "divided by 784^2" in implied(HALF, "linf", (784,))[0]
    assert "divided by 784" in implied(L1, "linf", (784,))[0]
    assert implied(L2, "l0", (784,)) == ()


def test_the_way_to_wasserstein_needs_the_mass() -> None:
    assert one(0.5, L1, "wasserstein", mass=1.0) == 0.25
    assert one(0.5, L1, "wasserstein-l2", mass=128.0) == 0.5 / 256
    assert one(0.5, L1, "wasserstein") == one(0.5, L1, "wasserstein", mass=3072) == pytest.approx(0.5 / 6144)
    assert np.array_equal(convert([0.5, 0.5], L1, "wasserstein", (4,), mass=[1, 2]), [0.25, 0.125])
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(BadInput, match="mass"):
            convert(0.5, L1, "wasserstein", PICTURE, mass=wrong)


@examples(200)
@given(st.floats(1e-6, 1e4), st.integers(1, 4000), st.sampled_from([Fraction(1, 2), Fraction(1, 3), Fraction(2, 3)]))
def test_measured_radii_are_rounded_down_and_by_next_to_nothing(radius, size, p) -> None:
    with mpmath.workdps(60):
        r, exponent = mpmath.mpf(radius), mpmath.mpf(p.numerator) / p.denominator
        truth = {
            ("l1", L2): max(r, r * r),
            (f"l{p}", L1): max(r, r ** (1 / exponent)),
            ("l1", lp(p)): r * mpmath.mpf(size) ** (1 - 1 / exponent),
            ("wasserstein-l2", WASSERSTEIN): r / mpmath.sqrt(2),
            ("wasserstein", L1): r / (2 * size),
            ("linf", L2): r / mpmath.sqrt(size),
            ("linf", L1): r / size,
            ("linf", lp(p)): r / mpmath.mpf(size) ** (1 / exponent),
        }
        for (target, source), exact in truth.items():
            found = mpmath.mpf(one(radius, source, target, (size,)))
            assert found <= exact * (1 + mpmath.mpf(10) ** -50)
            assert found >= exact * (1 - mpmath.mpf(10) ** -15)


@examples(200)
@example(1.0, 1, "closed", "l1/2")
@example(6.25, 1, "closed", "l1/2")
@example(4.0, 2, "open", "l1/2")
@given(
    st.floats(1e-3, 60), st.integers(1, 4), st.sampled_from(["open", "closed"]), st.sampled_from(["l1", "l2", "l1/2"])
)
def test_counts_are_the_largest_that_fit(radius, channels, ball, name) -> None:
    source = Threat(name, "", "", ball)
    exponent = {"l1": 1, "l2": 2, "l1/2": Fraction(1, 2)}[name]
    found = one(radius, source, "l0", (channels, 100, 100))

    def inside(pixels: float) -> bool:
        if exponent == Fraction(1, 2):
            change, limit = Fraction(int(pixels) * channels) ** 2, Fraction(radius)
        else:
            change, limit = Fraction(int(pixels) * channels), Fraction(radius) ** exponent
        return change < limit if ball == "open" else change <= limit

    assert inside(found)
    assert found == 10_000 or not inside(found + 1)


def test_shapes_nan_infinity_and_the_whole_picture() -> None:
    radii = np.array([[1.0, np.nan], [30.0, np.inf]])
    assert np.array_equal(convert(radii, L2, "l0", PICTURE), [[0, np.nan], [299, 1024]], equal_nan=True)
    assert np.array_equal(convert(radii, L2, "l1", PICTURE), [[1, np.nan], [900, np.inf]], equal_nan=True)
    assert convert([], L2, "l1", PICTURE).shape == (0,)
    assert one(1e6, L1, "patch", (3, 4, 9)) == 9  # nothing is left of the picture
    assert one(3 * 4 * 5, L1_CLOSED, "patch", (3, 4, 9)) == 5  # five columns from edge to edge
    assert one(5.0, L0, "patch", (9,)) == 5
    assert one(5.0, L0, "patch", (2, 9)) == 2
    assert math.isnan(one(0.0, L1, "l0"))  # an open ball of radius 0 holds nothing, a closed one the input
    assert one(0.0, L1_CLOSED, "l0") == 0
    assert one(0.0, L1, "l1/2") == 0
    assert one(1e200, L1, "l1/3") == pytest.approx(1.797e308, rel=1e-3)


def test_what_can_be_asked_for() -> None:
    assert targets(L2) == ["l1", "l0", "l0-features", "patch", "linf"]
    assert targets(L1) == ["l0", "l0-features", "patch", "linf", "wasserstein", "wasserstein-l2"]
    assert targets(HALF) == targets(L2)
    assert targets(PATCH) == []
    for source in (L2, L1, L0, L0_FEATURES, HALF, WASSERSTEIN, WASSERSTEIN_L2):
        for target in targets(source):
            assert convert([1.0, 2.0], source, target, PICTURE).shape == (2,)
    for source, target, answer in [
        (L2, "l3", "l1, l0, l0-features, patch"),
        (L2, "l1/2", "l1, l0, l0-features, patch"),
        (L1, "l2", "wasserstein-l2 and lq with 0 < q < 1"),
        (L1, "l3/2", "and lq"),
        (L1, "l1/0", "and lq"),
        (WASSERSTEIN, "l1", "only to: wasserstein-l2"),
        (PATCH, "l0", "nor to any other threat: no conversion of it is known"),
        (L0, "linf", "only to: l0-features, patch"),
        (WASSERSTEIN, "linf", "only to: wasserstein-l2"),
    ]:
        with pytest.raises(BadInput, match=answer):
            convert(1.0, source, target, PICTURE)
    with pytest.raises(BadInput, match="at least 0"):
        convert([1.0, -0.5], L2, "l1", PICTURE)
