"""The shifts of keep-or-replace against a slow Neyman-Pearson in exact rationals, and the papers' example."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from amounts import examples
from hypothesis import given
from hypothesis import strategies as st

from vauban.certificates import derive
from vauban.errors import BadInput
from vauban.laws import law
from vauban.laws.discrete import MAX_RADIUS, DiscreteLaw, likelihood_regions, trinomials
from vauban.laws.rounded_noise import BITS
from vauban.laws.topk import radius
from vauban.threats import L0_FEATURES

KEEPS = ["0.1", "0.2", "0.35", "0.51", "0.8", "0.9", "0.999", "0.004", "0.3333333333333334"]


def exact_shift(keep: Fraction, values: int, r: int, p: Fraction, largest: bool) -> Fraction:
    """The most (or least) an event of probability p can weigh when r features change, region by region (old, new)."""
    other = (1 - keep) / (values - 1)
    cells = []
    for old, new in itertools.product(range(r + 1), repeat=2):
        neither = r - old - new
        if neither < 0:
            continue
        ways = math.comb(r, old) * math.comb(r - old, new) * (values - 2) ** neither
        cells.append((ways * keep**old * other ** (r - old), ways * keep**new * other ** (r - new)))
    cells = sorted((c for c in cells if c[0]), key=lambda c: c[1] / c[0], reverse=largest)
    left, weight = p, Fraction(0)
    for here, there in cells:
        part = min(left, here)
        weight, left = weight + part / here * there, left - part
    return weight


@pytest.mark.parametrize(("a", "b", "c"), [(1, 1, 1), (3, 0, 7), (1020, 254, 1), (2, 5, 3)])
def test_trinomials_are_powers_of_a_polynomial(a: int, b: int, c: int) -> None:
    power = [1]
    for r in range(1, 12):
        power = [
            sum(factor * power[j - i] for i, factor in enumerate((a, b, c)) if 0 <= j - i < len(power))
            for j in range(len(power) + 2)
        ]
        assert trinomials(a, b, c, r) == power


@examples(400)
@given(st.sampled_from(KEEPS), st.sampled_from([2, 3, 4, 10, 256]), st.integers(0, 7), st.data())
def test_shifts_against_exact_rationals(keep: str, values: int, r: int, data: st.DataObject) -> None:
    if not float(keep) > 1 / values:
        return
    noise, kept = DiscreteLaw(float(keep), values), Fraction(keep)
    p = data.draw(
        st.one_of(
            st.floats(0, 1, allow_subnormal=False),
            st.floats(0, 1e-3, allow_subnormal=False),
            st.floats(0, 1e-3, allow_subnormal=False).map(lambda x: 1 - x),
        )
    )
    corners = likelihood_regions(kept, values, r)
    p = data.draw(st.sampled_from([p, *corners.at_input, *corners.at_attacked]))
    p = float(p)
    true_most = exact_shift(kept, values, r, Fraction(p), largest=True)
    true_least = exact_shift(kept, values, r, Fraction(p), largest=False)
    most, least = Fraction(float(noise.most(p, r))), Fraction(float(noise.least(p, r)))
    tiny = Fraction(1, 10**300)
    assert true_most <= most <= true_most * (1 + Fraction(1, 10**13)) + tiny
    steep = (kept * (values - 1) / (1 - kept)) ** r  # a step of p, near 1, is this much larger in L
    assert true_least * (1 - Fraction(1, 10**13)) - steep / 10**15 - tiny <= least <= true_least


@pytest.mark.parametrize(
    ("keep", "values", "r"), [("0.1", 256, 120), ("0.8", 256, 150), ("0.51", 2, 300), ("0.6", 3, 90)]
)
def test_large_tables_against_exact_rationals(keep: str, values: int, r: int) -> None:
    noise, kept = DiscreteLaw(float(keep), values), Fraction(keep)
    other = (1 - kept) / (values - 1)
    here = [Fraction(1)]
    for _ in range(r):  # the law of (new - old) + r by convolution, in rationals
        parts = (kept, (values - 2) * other, other)
        here = [
            sum((parts[i] * here[j - i] for i in range(3) if 0 <= j - i < len(here)), Fraction(0))
            for j in range(len(here) + 2)
        ]
    for p in (1e-250, 1e-30, 1e-6, 0.01, 0.3, 0.5, 0.9, 0.9999):
        left, weight = Fraction(p), Fraction(0)
        for j in range(2 * r, -1, -1):
            part = min(left, here[j])
            weight, left = weight + part * (kept / other) ** (j - r), left - part
        most = Fraction(float(noise.most(p, r)))
        assert weight <= most <= weight * (1 + Fraction(1, 10**13)) or (weight > 1 - Fraction(1, 10**15) and most == 1)
        low = float(noise.least(p, r))
        assert exact_inverse(here, kept / other, r, low) <= Fraction(p)
        assert low < 1e-200 or exact_inverse(here, kept / other, r, low * (1 + 1e-9)) > Fraction(p) * (
            1 - Fraction(1, 10**12)
        )


def exact_inverse(here: list[Fraction], ratio: Fraction, r: int, p: float) -> Fraction:
    """U(p): what L(x) = p means is U(p) = x."""
    left, weight = Fraction(p), Fraction(0)
    for j in range(2 * r, -1, -1):
        part = min(left, here[j])
        weight, left = weight + part * ratio ** (j - r), left - part
    return weight


@examples(60)
@given(
    st.sampled_from(["0.4", "0.51", "0.8"]), st.sampled_from([3, 256]), st.floats(1e-9, 1 - 1e-9), st.integers(0, 40)
)
def test_shifts_grow_with_r_and_undo_each_other(keep: str, values: int, p: float, r: int) -> None:
    noise = DiscreteLaw(float(keep), values)
    assert noise.most(p, r) <= noise.most(p, r + 1) * (1 + 1e-12)
    assert noise.least(p, r) >= noise.least(p, r + 1) * (1 - 1e-12)
    low = float(noise.least(p, r))
    assert low <= p * (1 + 1e-15) <= float(noise.most(p, r)) * (1 + 1e-12)
    if low > 1e-12:
        assert float(noise.most(low, r)) == pytest.approx(p, rel=1e-6)


def test_ends_and_sizes_beyond_the_table() -> None:
    noise = DiscreteLaw(0.8)
    for r in (0, 1, 5, MAX_RADIUS, MAX_RADIUS + 1, 10**9):
        assert noise.most([0.0, 1.0], r).tolist() == [0.0, 1.0]
        assert noise.least([0.0, 1.0], r).tolist() == [0.0, 1.0]
    assert noise.most(1e-9, MAX_RADIUS + 1) == 1
    assert noise.least(1 - 1e-9, MAX_RADIUS + 1) == 0
    assert noise.most(5e-324, 3) > 0
    assert noise.most(np.full((2, 3), 0.3), np.array([[1], [2]])).shape == (2, 3)
    close = DiscreteLaw(0.5000000000000001, values=2)  # views tell almost nothing: nothing moves
    assert close.least(0.75, 1000) == pytest.approx(0.75, rel=1e-9)


def test_a_unanimous_exact_tally_ends_the_search() -> None:
    assert radius(DiscreteLaw(0.8, features=20), [1.0], [[0.0]])[0] == 20
    assert radius(DiscreteLaw(0.8), [1.0], [[0.0]])[0] == MAX_RADIUS


def test_the_worked_example_of_levine_and_feizi() -> None:
    noise, d = law("discrete:keep=0.1,values=256"), 3 * 224 * 224
    needed = Fraction(6, 10) - Fraction(9, 10) / 255
    assert round(float(needed), 3) == 0.596
    assert noise.least(float(needed) + 1e-12, 1) > 0.5 > noise.least(float(needed) - 1e-12, 1)
    p = np.array([float(needed) - 1e-9, float(needed) + 1e-9])
    assert radius(noise, p, (1 - p)[:, None]).tolist() == [0, 1]
    assert round(noise.information(d), 1) == 50590.4


def test_one_feature_in_closed_form() -> None:
    noise, other = DiscreteLaw(0.8, 256), 0.2 / 255
    assert noise.most(other / 2, 1) == pytest.approx(0.4, rel=1e-13)
    assert noise.most(other + 0.1, 1) == pytest.approx(0.9, rel=1e-13)
    assert noise.least(0.8, 1) == pytest.approx(other, rel=1e-13)
    assert noise.least(0.9, 1) == pytest.approx(other + 0.1, rel=1e-13)


@pytest.mark.parametrize(("classes", "keep"), [(10, 0.8), (1000, 0.8), (10, 0.1), (1000, 0.1)])
def test_radii_from_counts_at_imagenet_size(classes: int, keep: float) -> None:
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.full(classes, 0.05), size=500)
    counts = np.stack([rng.multinomial(100_000, p) for p in shares])
    noise, labels = DiscreteLaw(keep).for_shape((3, 224, 224)), counts.argmax(axis=1)
    certs = derive(counts, labels, noise, k=3)
    assert np.nanmax(certs.radius) >= (keep == 0.1)


@pytest.mark.parametrize(
    ("keep", "values"), [("0.8", 256), ("0.1", 256), ("0.5", 3), ("0.7", 2), ("0.3333333333333334", 3)]
)
def test_the_table_of_words_gives_every_other_value_the_same_share(keep: str, values: int) -> None:
    noise = DiscreteLaw(float(keep), values)
    table = noise.rounded(values - 1)
    edges = [0, *(int(t) for t in table.thresholds), 2**BITS]
    shares = [b - a for a, b in itertools.pairwise(edges)]
    assert len(shares) == values
    assert len(set(shares[1:])) == 1
    missed = abs(Fraction(shares[0], 2**BITS) - Fraction(keep))
    assert missed <= Fraction(table.deviation) <= Fraction(values, 2**BITS)
    assert noise.deviation((3, 224, 224), values - 1) >= 150_528 * missed
    assert noise.deviation((3, 224, 224), values - 1) < 1e-11


def test_texts_and_threat() -> None:
    assert law("discrete:keep=0.8,values=256") == law("discrete:keep=0.8") == DiscreteLaw(0.8)
    assert str(DiscreteLaw(0.8, 3, 12).spec) == "discrete:keep=0.8,values=3,features=12"
    assert DiscreteLaw(0.8).threat == L0_FEATURES
    assert DiscreteLaw(0.8).for_shape((3, 4, 4)).max_distance == 48


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        ("discrete", "discrete:keep=0.8"),
        ("discrete:keep=1", "below 1"),
        ("discrete:keep=0.5,values=2", "above 1/2"),
        ("discrete:keep=0.003", "above 1/256"),
        ("discrete:keep=nan", "above 1/256"),
        ("discrete:keep=0.8,values=1", "2 to"),
        ("discrete:keep=0.8,values=100000", "2 to"),
        ("discrete:keep=0.8,values=2.5", "cannot be read"),
        ("discrete:keep=0.8,features=0", "at least one"),
    ],
)
def test_wrong_texts_are_answered(wrong: str, answer: str) -> None:
    with pytest.raises(BadInput, match=answer):
        law(wrong)


def test_inputs_that_do_not_fit_are_answered() -> None:
    with pytest.raises(BadInput, match="8-bit"):
        DiscreteLaw(0.8).deviation((3, 32, 32), None)
    with pytest.raises(BadInput, match="values=256"):
        DiscreteLaw(0.8, values=3).deviation((3, 32, 32), 255)
    with pytest.raises(BadInput, match="48"):
        DiscreteLaw(0.8, features=12).for_shape((3, 4, 4))
