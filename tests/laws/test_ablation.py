"""Ablation's shifts and radii against exact rationals, its p' on small lattices, and the number of words a choice takes."""

import math
from fractions import Fraction

import numpy as np
import pytest
from amounts import examples
from hypothesis import given
from hypothesis import strategies as st

from vauban.bounds.simultaneous import ProbabilityBounds
from vauban.certificates import derive
from vauban.errors import BadInput
from vauban.laws import law
from vauban.laws.ablation import AblationLaw
from vauban.laws.rounded_noise import BITS
from vauban.laws.subsets import draw_deviation, draws_needed, hit_probability
from vauban.laws.topk import radius
from vauban.threats import L0, L0_FEATURES


def exact_delta(d: int, e: int, r: int) -> Fraction:
    """Delta(r) from binomials."""
    return 1 - Fraction(math.comb(d - r, e) if r <= d else 0, math.comb(d, e))


def exact_radius(d: int, e: int, p_label: Fraction, rivals: list[Fraction]) -> int:
    """[Jia2022] Eq. 7 with p', by trying every r in exact rationals; -1 if not even r = 0 holds. Rivals ascend."""
    whole = math.comb(d, e)
    label = Fraction(math.ceil(p_label * whole), whole)
    floors = [Fraction(math.floor(p * whole), whole) for p in rivals]
    best = -1
    for r in range(d - e + 1):
        delta = exact_delta(d, e, r)
        sums = [min(sum(floors[:t], Fraction(0)), 1 - label) for t in range(1, len(floors) + 1)]
        if not label - delta > min((s + delta) / t for t, s in enumerate(sums, start=1)):
            break
        best = r
    return best


@pytest.mark.parametrize("d", range(2, 14))
def test_the_table_is_delta_rounded_up_in_every_small_world(d: int) -> None:
    for e in range(1, d):
        table = hit_probability(d, e)
        assert table[0] == 0
        assert table[-1] == 1
        for r, delta in enumerate(table):
            true = exact_delta(d, e, r)
            assert true <= Fraction(delta) <= true * (1 + Fraction(1, 10**15))


@pytest.mark.parametrize(("d", "e"), [(784, 45), (784, 783), (3072, 1), (50176, 1000), (150528, 14521)])
def test_the_table_is_delta_rounded_up_at_the_papers_sizes(d: int, e: int) -> None:
    table = hit_probability(d, e)
    for r in {r for r in (1, 2, 3, 8, 16, 33, len(table) // 2, len(table) - 1) if r < len(table)}:
        true = exact_delta(d, e, r)
        assert true <= Fraction(table[r]) <= true * (1 + Fraction(1, 10**15))
    assert (np.diff(table) >= 0).all()
    assert table[-1] == 1


@examples(300)
@given(st.integers(2, 400), st.data())
def test_shifts_against_exact_rationals(d: int, data: st.DataObject) -> None:
    e, r = data.draw(st.integers(1, d - 1)), data.draw(st.integers(0, d))
    p = data.draw(st.floats(0, 1))
    whole, delta, exact = math.comb(d, e), exact_delta(d, e, r), Fraction(p)
    noise = AblationLaw(e, features=d)
    most, least = Fraction(float(noise.most(p, r))), Fraction(float(noise.least(p, r)))
    best_most = min(Fraction(1), Fraction(math.floor(exact * whole), whole) + delta)
    best_least = max(Fraction(0), Fraction(math.ceil(exact * whole), whole) - delta)
    assert best_most <= most <= min(Fraction(1), exact + delta) * (1 + Fraction(1, 10**14))
    assert max(Fraction(0), exact - delta) - Fraction(1, 10**14) <= least <= best_least
    if whole < 10**10 and min(exact * whole % 1, -exact * whole % 1) > Fraction(1, 50):  # clear of the tolerance
        assert most - best_most < Fraction(1, 10**14)
        assert best_least - least < Fraction(1, 10**14)


@examples(200)
@given(st.integers(3, 30), st.integers(1, 3), st.data())
def test_radii_are_those_of_the_theorem(d: int, k: int, data: st.DataObject) -> None:
    e = data.draw(st.integers(1, min(d - 1, 5)))
    whole = math.comb(d, e)
    label = data.draw(st.integers(0, whole))
    rivals = sorted(data.draw(st.lists(st.integers(0, whole - label), min_size=k, max_size=k)))
    slack = Fraction(data.draw(st.sampled_from([0, 3, 9])), 10)  # bounds between multiples, too
    p_label = max(Fraction(0), (label - slack) / whole)
    p_rivals = [min(Fraction(1), (n + slack) / whole) for n in rivals]
    noise = AblationLaw(e, features=d)
    plain = ProbabilityBounds(np.array([float(p_label)]), np.array([[float(p) for p in p_rivals]]))
    sharp = noise.calibrated(plain)
    uncalibrated, found = (float(np.nan_to_num(radius(noise, b.label, b.sums()), nan=-1)[0]) for b in (plain, sharp))
    assert found == exact_radius(d, e, p_label, p_rivals)
    assert uncalibrated <= found
    assert k > 1 or uncalibrated == found


def test_p_prime_enlarges_a_radius_where_the_lattice_is_coarse() -> None:
    noise = AblationLaw(1, features=10)  # probabilities are tenths
    bounds = ProbabilityBounds(np.array([0.71]), np.array([[0.19]]))
    assert radius(noise, bounds.label, bounds.sums())[0] == 3  # 0.8 - 0.3 > 0.1 + 0.3; 0.71 - 0.3 < 0.19 + 0.3
    fine = AblationLaw(10, features=100)  # 1.7e13 outcomes: p' is skipped
    assert float(fine.rounded_up(0.71)) == 0.71
    assert float(fine.rounded_down(0.19)) == 0.19


def test_a_sum_of_floors_certifies_more_than_the_floor_of_a_sum() -> None:
    noise = AblationLaw(1, features=10)
    bounds = ProbabilityBounds(np.array([0.3]), np.array([[0.16, 0.16]]))
    plain = radius(noise, bounds.label, bounds.sums())[0]
    sharper = noise.calibrated(bounds)
    assert sharper.rivals.tolist() == [[0.1, 0.1]]
    assert radius(noise, sharper.label, sharper.sums())[0] >= plain


def test_a_bound_a_hair_above_a_multiple_is_not_taken_for_the_next_one() -> None:
    noise = AblationLaw(1, features=10)
    assert Fraction(0.1) > Fraction(1, 10)
    assert float(noise.rounded_up(0.1)) == 0.1
    assert float(noise.rounded_up(0.1 + 5e-13)) < 0.1 + 1e-12
    assert float(noise.rounded_up(0.1 + 1e-11)) == 0.2
    assert float(noise.rounded_down(0.3)) == 0.3  # 0.3 * 10 is below 3 in binary
    assert float(noise.rounded_down(0.3 - 1e-11)) == 0.2


def test_p_prime_cannot_matter_where_it_is_skipped() -> None:
    for whole in (10**12, 10**15):
        p = np.random.default_rng(0).uniform(size=10_000)
        assert (np.ceil((p - 1e-12) * whole) / whole <= p * (1 + 1e-15)).all()
        assert (np.floor((p + 1e-12) * whole) / whole >= p * (1 - 1e-15)).all()


def test_the_worked_example_of_levine_and_feizi() -> None:
    d, p = 3 * 224 * 224, float(Fraction(6, 10) - Fraction(9, 10) / 255)  # 0.596
    fits = [e for e in range(14500, 14540) if law(f"ablation:retained={e},unit=feature,features={d}").least(p, 1) > 0.5]
    assert max(fits) == 14521
    assert AblationLaw(14521).information(256) == 116168


def test_corollary_1_and_the_inequality_agree_for_top_1() -> None:
    noise = AblationLaw(45, features=784)
    p = np.linspace(0.4, 1, 500)
    radii = radius(noise, p, (1 - p)[:, None])
    deltas = hit_probability(784, 45)
    for one, r in zip(p, radii, strict=True):
        holds = np.flatnonzero(one - deltas > 0.5 + 1e-11)
        assert (np.isnan(r) and len(holds) == 0) or r == holds[-1]
    assert radii[-1] == 11  # Delta(11) < 1/2 <= Delta(12)


@pytest.mark.parametrize("classes", [10, 1000])
def test_radii_from_counts_at_imagenet_size(classes: int) -> None:
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.full(classes, 0.05), size=500)
    counts = np.stack([rng.multinomial(100_000, p) for p in shares])
    noise = law("ablation:retained=1000").for_shape((3, 224, 224))
    labels = counts.argmax(axis=1)
    certs = derive(counts, labels, noise, k=3)
    assert np.nanmax(certs.radius) > 1


def test_units_and_shapes() -> None:
    assert law("ablation:retained=45").threat == L0
    assert law("ablation:retained=45,unit=feature").threat == L0_FEATURES
    assert AblationLaw(45).for_shape((3, 32, 32)).features == 1024
    assert AblationLaw(45, unit="feature").for_shape((3, 32, 32)).features == 3072
    assert AblationLaw(45).for_shape((100,)).features == 100
    assert AblationLaw(45).for_shape((28, 28)).features == 784
    assert AblationLaw(45, features=784).for_shape((1, 28, 28)).max_distance == 739
    assert str(AblationLaw(45, null="mean", features=784, mean=0.1307).spec) == (
        "ablation:retained=45,null=mean,features=784,mean=0.1307"
    )


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        ("ablation", "ablation:retained=45"),
        ("ablation:retained=0", "one or more"),
        ("ablation:retained=4.5", "cannot be read"),
        ("ablation:retained=45,features=45", "hides nothing"),
        ("ablation:retained=45,null=median", "multichannel"),
        ("ablation:retained=45,unit=channel", "feature"),
        ("ablation:retained=45,mean=0.3", "null=mean"),
        ("ablation:retained=45,null=mean,mean=nan", "finite"),
    ],
)
def test_wrong_texts_are_answered(wrong: str, answer: str) -> None:
    with pytest.raises(BadInput, match=answer):
        law(wrong)


def test_sizes_that_are_missing_or_do_not_fit_are_answered() -> None:
    with pytest.raises(BadInput, match="features=784"):
        AblationLaw(45).most(0.5, 1)
    with pytest.raises(BadInput, match="784"):
        AblationLaw(45, features=1000).for_shape((1, 28, 28))
    with pytest.raises(BadInput, match="hides nothing"):
        AblationLaw(1000).for_shape((1, 28, 28))


def too_few(d: int, e: int, m: int) -> Fraction:
    """Probability that m draws with replacement from d hold fewer than e different ones, exactly."""
    held = [Fraction(1)] + [Fraction(0)] * e
    for _ in range(m):
        held = [
            held[i] * Fraction(i, d) * (i < e) + (held[i - 1] * Fraction(d - i + 1, d) if i else 0) + held[i] * (i == e)
            for i in range(e + 1)
        ]
    return sum(held[:e], Fraction(0))


@pytest.mark.parametrize(("d", "e"), [(2, 1), (4, 2), (7, 3), (10, 5), (50, 4), (784, 6)])
def test_the_deviation_covers_too_few_different_draws_and_the_modulo(d: int, e: int) -> None:
    rest, words = 2**BITS % d, 2**BITS
    modulo = (rest * (Fraction(words // d + 1, words) - Fraction(1, d))) * draws_needed(d, e)
    true = too_few(d, e, draws_needed(d, e)) + modulo
    assert true <= Fraction(draw_deviation(d, e))
    assert draw_deviation(d, e) < 1e-15


def test_the_deviation_is_tiny_at_every_size() -> None:
    for d in (2, 3, 10, 33, 100, 784, 1024, 3072, 10_000, 50_176, 150_528):
        for e in sorted({1, 2, 3, 10, 45, 1000, d // 8, d // 3, d // 2}):
            if 1 <= e <= d // 2:
                assert draw_deviation(d, e) < 2e-10
                assert e <= draws_needed(d, e) <= 2 * e + 100
                assert draws_needed(d, e) % 4 == 0
    assert AblationLaw(1000).deviation((3, 224, 224), 255) < 1e-12
    assert AblationLaw(45).deviation((1, 28, 28), None) == AblationLaw(739).deviation((1, 28, 28), 255) < 1e-15
