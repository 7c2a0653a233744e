"""Exact fractional laws: the list of outcomes, how coordinates go through it, the radius against C.77, texts and refusals."""

import math
from collections import Counter
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from vauban.errors import BadInput
from vauban.laws import law
from vauban.laws.concave import ConcaveLaw
from vauban.laws.designs.law import DesignLaw
from vauban.laws.designs.metrics import Tabulated
from vauban.laws.exact import Ballots, tolerated
from vauban.laws.fractional import ExactFractionalLaw


def built(p: str = "1/2", scale: str = "18", **options: object) -> ExactFractionalLaw:
    return ExactFractionalLaw(Fraction(p), Fraction(scale), **options)


@pytest.mark.parametrize(
    ("scale", "views"),
    [("1", 1000), ("18", 18000), ("2.5", 2500), ("1.0001", 1001), ("1.001", 1001), ("3.1415", 3142), ("0.5", 1000)],
)
def test_the_number_of_views_is_rounded_up_from_the_text(scale: str, views: int) -> None:
    made = law(f"fractional:p=1/2,scale={scale}")
    assert isinstance(made, ExactFractionalLaw)
    assert made.views == views
    outcomes = made.outcomes()
    assert len(outcomes.period) == len(outcomes.divider) == views


@pytest.mark.parametrize(("p", "scale"), [("1/2", "1"), ("1/3", "2.5"), ("2/5", "1.1"), ("1/2", "0.7")])
def test_every_place_of_a_width_is_in_the_list_as_often_as_the_design_says(p: str, scale: str) -> None:
    made = built(p, scale, budget=60, levels=15)
    outcomes = made.outcomes()
    seen = Counter(zip(outcomes.period.tolist(), outcomes.divider.tolist(), strict=True))
    expected = Counter({(j, s): w for j, w in made.design.weights for s in range(j)})
    expected[1, 1] = made.views - expected.total()
    assert seen == expected
    assert seen[1, 1] >= made.views - 60


def c77(p: Fraction, scale: Fraction, counts: np.ndarray, label: int) -> mpmath.mpf:
    """[Levine2023] C.77 from counts of V = B * scale votes, in 50 digits; below 0 where the label is not the winner."""
    total = int(counts.sum())
    gaps = [int(counts[label] - n) - (j < label) for j, n in enumerate(counts) if j != label]
    least = mpmath.mpf(min(gaps)) / total
    if least < 0:
        return mpmath.mpf(-1)
    inside = mpmath.mpf(scale.numerator) / scale.denominator / 2 * least
    return mpmath.power(inside, mpmath.mpf(p.denominator) / p.numerator)


@pytest.mark.parametrize(("p", "scale"), [("1/2", "18"), ("1/3", "9"), ("2/3", "2.5"), ("3/4", "1")])
def test_radii_are_at_least_those_of_the_thesis_and_never_above_the_proof(p: str, scale: str) -> None:
    made = built(p, scale)
    rng = np.random.default_rng(0)
    counts = np.stack([rng.multinomial(made.views, rng.dirichlet([0.3] * 5)) for _ in range(200)])
    labels = counts.argmax(axis=1)
    found = made.radius_of_counts(counts, labels)
    a, b = made.p.numerator, made.p.denominator
    with mpmath.workdps(50):
        for row, label, r in zip(counts, labels, found, strict=True):
            published = c77(made.p, made.scale, row, int(label))
            assert published >= 0
            assert mpmath.mpf(r) >= published * (1 - mpmath.mpf(2) ** -52)
            changed = math.floor(min(int(row[label] - n) - (j < label) for j, n in enumerate(row) if j != label) / 2)
            assert Fraction(float(r)) ** a * 1000**b < (changed + 1) ** b
            assert Fraction(math.nextafter(float(r), math.inf)) ** a * 1000**b >= (changed + 1) ** b
    assert (np.argsort(tolerated(counts, labels), kind="stable") == np.argsort(found, kind="stable")).all()


def test_below_scale_one_an_attack_changes_more_views() -> None:
    """C.1.3.1: the same votes certify less, and more is shown."""
    half, whole = built(scale="1/2"), built(scale="1")
    assert half.views == whole.views
    assert half.rate == 2000
    assert half.radius_tolerating([99]) == pytest.approx(0.05**2)
    assert half.design.separations()[-1] > 980
    n = half.design.separations()
    assert all(int(n[k]) ** 2 * 255 <= 2000**2 * k for k in range(256))
    assert (n >= whole.design.separations() - 20).all()


def test_ballots_and_counts_agree_and_the_largest_radius_is_of_unanimous_votes() -> None:
    made = built(scale="2", budget=60, levels=15)
    votes = np.random.default_rng(0).choice(3, size=(40, 120), p=[0.8, 0.15, 0.05])
    ballots = Ballots(votes, 3)
    assert np.array_equal(made.radius(ballots, [0] * 40), made.radius_of_counts(ballots.counts, [0] * 40))
    assert made.largest_radius(1, 3) == pytest.approx((61 / 60) ** 2, abs=1e-12)
    assert np.isnan(made.radius_of_counts([[0, 120, 0]], [0])).all()
    with pytest.raises(BadInput, match="120 views"):
        made.radius_of_counts([[0, 119, 0]], [0])


def test_the_list_is_always_the_same_and_its_hash_says_when_it_is_not() -> None:
    shape = (1, 4, 4)
    hashes = {
        text: law(f"fractional:p=1/2,{text}").views_hash(shape)
        for text in ("scale=2", "scale=3", "scale=2,offsets=1", "scale=2,coupling=global", "scale=2,coupling=arbitrary")
    }
    hashes["p=1/3"] = law("fractional:p=1/3,scale=2").views_hash(shape)
    assert len(set(hashes.values())) == 6
    assert hashes["scale=2"] == built(scale="2").views_hash(shape)
    assert hashes["scale=2"] == "88062d09f4d5ab06a2d8f6750a39c4c4343ea2e5a34a9f05f7b86dfd402b46da"
    assert hashes["scale=2,coupling=arbitrary"] == "d87d1a1b0d8e13b5921b2ee1fb70183e0326e24ee4a057033208c440949bcba9"


def test_coordinates_go_through_the_whole_list() -> None:
    shape = (2, 3, 3)
    made = built(scale="2", budget=60, levels=15)
    starts = made.starts(shape)
    assert starts.shape == shape
    assert ((starts >= 0) & (starts < 120)).all()
    assert len(np.unique(starts)) > 12
    table = built(scale="2", budget=60, levels=15, coupling="arbitrary").permutations(shape)
    assert table.shape == (120, 18)
    assert (np.sort(table, axis=0) == np.arange(120)[:, None]).all()
    assert len(np.unique(table, axis=1).T) == 18
    with pytest.raises(BadInput, match="take coupling=cyclic"):
        built(coupling="arbitrary").permutations((3, 224, 224))


def test_texts() -> None:
    made = law("fractional:p=1/2,scale=18,offsets=0")
    assert made == built()
    assert made.exact
    assert str(made.spec) == "fractional:p=1/2,scale=18"
    assert law("fractional:p=1/2,scale=18,sampled=false") == made
    assert law("fractional:p=1/2") == built(scale="1")
    text = "fractional:p=1/3,scale=5/2,offsets=3,representation=center_error,coupling=global,budget=500,levels=15"
    assert str(law(text).spec) == text
    assert str(law(str(law("fractional:p=0.25,scale=2.5").spec)).spec) == "fractional:p=1/4,scale=5/2"
    assert (made.threat.name, made.threat.ball) == ("l1/2", "closed")
    assert law("fractional:p=1,scale=3,budget=255").threat.name == "l1"
    assert law("fractional:p=1,scale=3,budget=255").design.weights == ((255, 1),)
    for wrong, answer in [
        ("fractional:scale=9", "needs p"),
        ("fractional:p=0,scale=9", "above 0 and at most 1"),
        ("fractional:p=3/2,scale=9", "above 0 and at most 1"),
        ("fractional:p=1/0,scale=9", "cannot be read"),
        ("fractional:p=0.33333,scale=9", "such as 1/3"),
        ("fractional:p=1/2,scale=0", "above zero"),
        ("fractional:p=1/2,scale=-2", "above zero"),
        ("fractional:p=1/2,scale=inf", "cannot be read"),
        ("fractional:p=1/2,scale=1e9", "make budget or scale smaller"),
        ("fractional:p=1/2,scale=2,coupling=none", "known: arbitrary, cyclic, global"),
        ("fractional:p=1/2,scale=2,representation=upper", "did you mean 'upper_lower'"),
        ("fractional:p=1/2,scale=2,levels=0", "8-bit pictures have 255"),
        ("fractional:p=1/2,scale=2,levels=65535", "1 to 1023 steps"),
        ("fractional:p=1/2,scale=2,budget=0", "one or more"),
        ("fractional:p=1,scale=2", "write budget=1020"),
    ]:
        with pytest.raises(BadInput, match=answer):
            law(wrong)


def test_concave_metrics_of_ones_own() -> None:
    made = ConcaveLaw(Tabulated.of(lambda z: min(4 * z, 1), 20), Fraction(3), budget=40, levels=20)
    assert isinstance(made, DesignLaw)
    assert (made.threat.name, made.threat.ball) == ("concave", "closed")
    assert "sum of g(|change|) over all numbers is at most" in made.threat.sentence()
    assert made.views == 120
    assert made.design.weights == ((5, 8),)
    assert made.error == 0.0
    assert made.radius_tolerating([[3, 79]]).shape == (1, 2)
    assert float(made.radius_tolerating(79)) == math.nextafter(2, 0)
    assert str(made.spec) == f"concave:g={made.g.hash},scale=3,budget=40,levels=20"
    other = ConcaveLaw(Tabulated.of(lambda z: min(5 * z, 1), 20), Fraction(3), budget=40, levels=20)
    assert not made.same_views(other)
    assert made.views_hash((3,)) != other.views_hash((3,))
    below = ConcaveLaw(made.g, Fraction(1, 2), budget=40, levels=20)
    assert (below.views, below.rate) == (40, 80)
    assert (below.design.separations() <= np.minimum(np.arange(21) * 16, 40)).all()
    assert below.error < 0.2
    with pytest.raises(BadInput, match=r"make it in Python with vauban.Concave\(g\)"):
        ConcaveLaw.from_spec(made.spec)
    with pytest.raises(BadInput, match="21 values: levels=10 needs 11"):
        ConcaveLaw(made.g, levels=10)


def test_a_power_given_as_a_function_is_the_fractional_law() -> None:
    mine, theirs = ConcaveLaw(Tabulated.of(lambda z: z**0.5, 255)), built(scale="1")
    assert mine.error == pytest.approx(theirs.error, abs=0.001)
    assert mine.radius_tolerating([100, 700]) ** 2 == pytest.approx(theirs.radius_tolerating([100, 700]), rel=1e-9)
