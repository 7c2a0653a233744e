"""From tallies to claims: radii end to end, what counts as certified, and which settings are refused."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.stats import beta, norm

from vauban.bounds.clopper_pearson import Floats
from vauban.bounds.simultaneous import default_bounds
from vauban.certificates import Certificates, derive
from vauban.errors import BadInput
from vauban.laws import law
from vauban.laws.from_counts import largest_radius, least_n
from vauban.laws.gaussian import GaussianLaw
from vauban.report.summary import rows as summary_rows

LAW = GaussianLaw(0.5)


def claims(radii: list[float], labels: list[int], truth: list[int] | None, k: int = 1) -> Certificates:
    """Claims with given radii, NaN for undecided; every tally is 10 votes over three classes."""
    r = np.array(radii)
    counts = np.tile([5, 3, 2], (len(radii), 1))
    known = None if truth is None else np.array(truth)
    return replace(derive(counts, labels, LAW), k=k, radius=r, abstained=np.isnan(r), truth=known)


def slow_radius(
    counts: list[int], label: int, k: int, alpha: float, method: str, deviation: float, sigma: float
) -> float:
    """CERTIFY for one tally, from SciPy's beta quantiles and a scalar root for each t."""
    n, classes = sum(counts), len(counts)
    for_label, for_rival = {
        "binocp": (alpha, None),
        "simuem": (alpha / classes, alpha / classes),
        "half": (alpha / 2, alpha / 2 / (classes - 1)),
    }[method]
    wins = counts[label]
    p = max((beta.ppf(for_label, wins, n - wins + 1) if wins else 0.0) - deviation, 0.0)
    others = [votes for i, votes in enumerate(counts) if i != label]
    if for_rival is None:
        rivals = [1 - p] * k
    else:
        tops = [beta.isf(for_rival, votes + 1, n - votes) if votes < n else 1.0 for votes in others]
        rivals = sorted(min(top + deviation, 1.0) for top in tops)[-k:]
    best = float("nan")
    for t in range(1, k + 1):
        total = min(sum(rivals[:t]), 1 - p)
        if t * p > total:
            low, high = norm.ppf(p), norm.ppf(total)
            root = brentq(lambda s, t=t, a=low, b=high: t * norm.cdf(a - s) - norm.cdf(b + s), 0, 40, xtol=1e-14)
            best = np.nanmax([best, sigma * root])
    return float(best)


@pytest.mark.parametrize("method", ["binocp", "simuem", "half"])
@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("deviation", [0.0, 0.01])
def test_radii_agree_with_a_slow_certify(method: str, k: int, deviation: float) -> None:
    rng = np.random.default_rng(14)
    counts = np.array([rng.multinomial(300, q) for q in rng.dirichlet(np.full(5, 0.4), size=30)])
    counts = np.concatenate([counts, [[300, 0, 0, 0, 0], [0, 300, 0, 0, 0], [150, 150, 0, 0, 0], [60] * 5]])
    labels = rng.integers(0, 5, size=len(counts))
    labels[::2] = counts[::2].argmax(axis=1)
    got = derive(counts, labels, LAW, k=k, alpha=0.01, bounds=method, deviation=deviation)
    expected = [
        slow_radius(row, label, k, 0.01, method, deviation, LAW.sigma)
        for row, label in zip(counts.tolist(), labels.tolist(), strict=True)
    ]
    assert got.radius == pytest.approx(expected, abs=1e-8, nan_ok=True)
    assert 5 < np.isnan(expected).sum() < 30


def test_a_unanimous_poll_by_hand() -> None:
    got = derive([[100, 0, 0]], [0], GaussianLaw(0.25), alpha=0.001)
    assert got.radius[0] == pytest.approx(0.25 * norm.ppf(0.001 ** (1 / 100)), abs=1e-10)
    assert got.bounds == "binocp"
    assert (got.k, got.alpha, got.law) == (1, 0.001, GaussianLaw(0.25))
    assert len(got) == 1


def test_a_deviating_sampler_costs_radius() -> None:
    exact, rough = (derive([[990, 10]], [0], LAW, deviation=d).radius[0] for d in (0.0, 1e-3))
    assert 0 < rough < exact
    lost = derive([[990, 10]], [0], LAW, deviation=0.4)
    assert lost.radius[0] < 0.5 * exact


def test_abstaining_is_having_no_radius() -> None:
    got = derive([[90, 10], [50, 50], [10, 90]], [0, 0, 0], LAW)
    assert got.abstained.tolist() == [False, True, True]
    assert np.isnan(got.radius).tolist() == [False, True, True]
    assert got.radius[0] > 0
    assert got.counts.tolist() == [[90, 10], [50, 50], [10, 90]]


def test_the_default_bounds_follow_k() -> None:
    assert [default_bounds(k) for k in (1, 2, 5)] == ["binocp", "simuem", "simuem"]
    counts = [[70, 20, 10]]
    for k in (1, 2):
        chosen = derive(counts, [0], LAW, k=k, bounds=default_bounds(k)).radius[0]
        assert derive(counts, [0], LAW, k=k).radius[0] == chosen
    assert derive(counts, [0], LAW, bounds="simuem").radius[0] != derive(counts, [0], LAW).radius[0]


def test_a_radius_equal_to_r_counts() -> None:
    certs = claims([0.25, 0.5, np.nan, 0.75], [0, 0, 0, 0], [0, 0, 0, 0])
    assert certs.certified(0.5).tolist() == [False, True, False, True]
    assert [certs.accuracy(r) for r in (0.0, 0.25, 0.2500001, 0.5, 0.75, 0.76)] == [0.75, 0.75, 0.5, 0.5, 0.25, 0.0]


def test_the_three_outcomes_are_kept_apart_and_add_up() -> None:
    certs = claims([0.5, 0.5, np.nan, np.nan, 0.25], [0, 1, 0, 2, 0], [0, 0, 0, 0, 0])
    assert certs.accuracy() == pytest.approx(2 / 5)
    assert certs.certified_elsewhere == pytest.approx(1 / 5)
    assert certs.undecided == pytest.approx(2 / 5)
    assert certs.accuracy() + certs.certified_elsewhere + certs.undecided == pytest.approx(1)
    assert certs.certified(0.3).tolist() == [True, False, False, False, False]


def test_a_claim_for_another_label_never_counts_as_certified() -> None:
    counts = [[90, 10], [90, 10]]
    certs = derive(counts, [0, 0], LAW, truth=[0, 1])
    assert certs.certified().tolist() == [True, False]
    assert certs.certified_elsewhere == 0.5
    assert certs.against([1, 1]).certified().tolist() == [False, False]


@pytest.mark.parametrize(
    ("radii", "median"),
    [
        ([0.5], 0.5),
        ([0.1, 0.9], 0.9),
        ([0.1, 0.5, 0.9], 0.5),
        ([0.9, 0.1, 0.5, 0.7], 0.7),
        ([0.9, 0.5, np.nan, np.nan], 0.5),
        ([0.9, 0.5, np.nan, np.nan, np.nan], np.nan),
        ([np.nan], np.nan),
        ([0.3, 0.3, 0.3, np.nan], 0.3),
        ([0.0, 0.0, 3.0, np.nan], 0.0),
    ],
)
def test_the_median_radius_is_the_largest_at_which_half_are_certified(radii: list[float], median: float) -> None:
    certs = claims(radii, [0] * len(radii), [0] * len(radii))
    assert certs.median_radius == pytest.approx(median, nan_ok=True)
    if not np.isnan(median):
        assert certs.accuracy(certs.median_radius) >= 0.5 > certs.accuracy(np.nextafter(median, 1))


def test_median_and_average_are_of_the_radii_as_they_are_written() -> None:
    certs = claims([0.7, 1.0054687123456789, 1 / 3, np.nan], [0] * 4, [0] * 4)
    written = [float(row["radius"] or 0) for row in csv.DictReader(certs.to_csv().splitlines())]
    assert written == [0.699999999, 1.005468712, 0.333333333, 0]
    assert certs.median_radius == written[0]
    assert certs.average_radius == sum(written) / 4
    above = claims([0.30000000000000004], [0], [0])  # written 0.3, whose float is below 0.3
    assert above.to_csv().splitlines()[1] == "0,0,0.300000000,false,0"
    lines = summary_rows(above.summary([0]))
    assert ["median radius", "0.3", ""] in lines
    assert ["average radius", "0.3", ""] in lines
    infinite = claims([np.inf, np.inf, 0.4], [0] * 3, [0] * 3)
    assert infinite.median_radius == np.inf


def test_claims_for_another_label_do_not_help_the_median() -> None:
    assert claims([0.9, 0.5, 0.4], [0, 0, 0], [1, 0, 0]).median_radius == 0.4
    assert np.isnan(claims([0.9, 0.5, 0.4], [0, 0, 0], [1, 1, 0]).median_radius)


def test_clean_accuracy_breaks_ties_to_the_smaller_label() -> None:
    counts = np.array([[4, 4, 2], [4, 4, 2], [3, 3, 4], [3, 3, 4], [0, 5, 5], [10, 0, 0]])
    truth = np.array([0, 1, 0, 1, 2, 2])
    certs = replace(claims([0.1] * 6, [0] * 6, truth.tolist()), counts=counts)
    assert certs.clean_accuracy == pytest.approx(1 / 6)
    assert replace(certs, k=2).clean_accuracy == pytest.approx(4 / 6)


def test_clean_accuracy_agrees_with_sorting() -> None:
    rng = np.random.default_rng(15)
    counts = rng.multinomial(12, np.full(6, 1 / 6), size=300)
    truth = rng.integers(0, 6, size=300)
    for k in (1, 2, 3, 5):
        ranked = [sorted(range(6), key=lambda c, row=row: (-row[c], c))[:k] for row in counts.tolist()]
        expected = np.mean([t in top for t, top in zip(truth.tolist(), ranked, strict=True)])
        certs = replace(claims([0.1] * 300, [0] * 300, truth.tolist(), k=k), counts=counts)
        assert certs.clean_accuracy == pytest.approx(expected)


def test_accuracy_needs_true_labels_and_says_so() -> None:
    certs = claims([0.5], [0], None)
    for ask in (certs.accuracy, certs.certified, certs.accuracy_claim):
        with pytest.raises(BadInput, match="true labels"):
            ask()
    assert certs.undecided == 0.0
    assert certs.against([0]).accuracy(0.5) == 1.0


@pytest.mark.parametrize("truth", [[0, 1], [0.0], [[0]]])
def test_true_labels_of_another_shape_or_kind_are_refused(truth: Any) -> None:
    with pytest.raises(BadInput, match="one whole number each"):
        claims([0.5], [0], None).against(truth)


def test_the_claim_about_the_data_set_subtracts_the_false_claims_it_allows_for() -> None:
    certs = claims([0.5] * 450 + [np.nan] * 50, [0] * 500, [0] * 500)
    assert certs.accuracy_claim(0.5, rho=0.001) == 446 / 500
    assert certs.accuracy_claim(0.5, rho=0.001, method="bernstein") == pytest.approx((450 - 4.98) / 500, abs=1e-4)
    assert certs.accuracy_claim(0.6, rho=0.001) == 0.0
    for rho in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(BadInput, match="rho="):
            certs.accuracy_claim(0.5, rho=rho)


def test_the_average_radius_counts_abstentions_and_wrong_labels_as_zero() -> None:
    certs = claims([0.8, np.nan, 0.4, 0.9], [0, 0, 0, 0], [0, 0, 0, 1])
    assert certs.average_radius == certs.summary([0])["average_radius"] == pytest.approx(1.2 / 4)
    area = np.mean([certs.accuracy(r) for r in np.linspace(0, 1, 1_001)])  # the area below the curve
    assert certs.average_radius == pytest.approx(area, abs=1e-3)
    assert claims([np.inf, 0.4], [0, 0], [1, 0]).average_radius == 0.2
    assert ["average radius", "0.3", ""] in summary_rows(claims([1.0] * 3 + [0.0] * 7, [0] * 10, [0] * 10).summary([0]))
    assert ["average radius", "0.1999", ""] in summary_rows(claims([0.19999, 0.2], [0, 0], [0, 0]).summary([0]))
    infinite = claims([np.inf, 0.4, 0.4], [0, 0, 0], [0, 0, 0])
    assert np.isnan(infinite.average_radius)
    assert ["average radius", "none: a radius is infinite", ""] in summary_rows(infinite.summary([0]))


def test_the_summary_repeats_the_methods() -> None:
    certs = derive([[90, 10], [50, 50], [30, 70]], [0, 0, 1], LAW, alpha=0.01, truth=[0, 0, 0])
    summary = certs.summary([0.0, 0.25], rho=0.01)
    assert summary["inputs"] == 3
    assert summary["votes_per_input"] == 100
    assert (summary["undecided"], summary["certified_elsewhere"]) == (certs.undecided, certs.certified_elsewhere)
    assert summary["certified"] == [
        {"radius": r, "accuracy": certs.accuracy(r), "at_least": certs.accuracy_claim(r, 0.01)} for r in (0.0, 0.25)
    ]
    assert summary["median_radius"] is None


def test_the_least_n_at_one_in_a_thousand() -> None:
    least = [least_n(k, 0.001, 10, bounds, LAW) for bounds in ("binocp", "simuem") for k in (1, 3)]
    assert least == [10, 5, 14, 7]


@pytest.mark.parametrize("bounds", ["binocp", "simuem", "half"])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("deviation", [0.0, 1e-3, 0.05])
def test_below_the_least_n_no_tally_at_all_is_certified(bounds: str, k: int, deviation: float) -> None:
    n = least_n(k, 0.05, 4, bounds, LAW, deviation)
    unanimous = derive([[n, 0, 0, 0]], [0], LAW, k=k, alpha=0.05, bounds=bounds, deviation=deviation)
    assert not unanimous.abstained[0]
    assert unanimous.radius[0] == largest_radius(n, k, 0.05, 4, bounds, LAW, deviation)
    for fewer in range(1, n):
        assert largest_radius(fewer, k, 0.05, 4, bounds, LAW, deviation) is None


def test_too_few_votes_are_refused_with_the_least_that_would_do() -> None:
    for k, bounds, least in ((1, "binocp", 10), (3, "binocp", 5), (1, "simuem", 14), (3, "simuem", 7)):
        counts = np.zeros((1, 10), dtype=int)
        counts[0, 0] = least - 1
        with pytest.raises(BadInput, match=rf"n={least - 1} can certify nothing .* the least is {least}$"):
            derive(counts, [0], LAW, k=k, alpha=0.001, bounds=bounds)
        counts[0, 0] = least
        assert derive(counts, [0], LAW, k=k, alpha=0.001, bounds=bounds).radius[0] > 0


def test_a_sampler_too_far_off_is_refused_whatever_n() -> None:
    with pytest.raises(BadInput, match=r"deviates by 0\.6"):
        derive([[100, 0]], [0], LAW, deviation=0.6)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_alpha_must_be_a_probability_strictly_between(alpha: float) -> None:
    with pytest.raises(BadInput, match="alpha="):
        derive([[100, 0]], [0], LAW, alpha=alpha)


@pytest.mark.parametrize("k", [0, 3, 4, -1])
def test_k_must_be_below_the_number_of_classes(k: int) -> None:
    with pytest.raises(BadInput, match=f"k={k} of 3 classes"):
        derive([[100, 0, 0]], [0], LAW, k=k)


@pytest.mark.parametrize(
    ("counts", "labels", "message"),
    [
        ([[100, 0]], [2], "label 2 of input 0 is outside the classes 0..1"),
        ([[100, 0]], [-1], "label -1"),
        ([[100, 0], [99, 0]], [0, 0], "input 1 has 99 votes where input 0 has 100"),
        ([[0.97, 0.03]], [0], "not their averages"),
        ([[100, 0]], [0.0], "one whole number"),
        ([[100, 0]], [0, 0], "one whole number"),
    ],
)
def test_tallies_that_cannot_be_right_are_refused(counts: ArrayLike, labels: ArrayLike, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        derive(counts, labels, LAW)


def test_unknown_bounds_are_answered_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match="binocp, half, simuem"):
        derive([[100, 0]], [0], LAW, bounds="hoeffding")


@dataclass(frozen=True)
class CountingLaw(GaussianLaw):
    """A Gaussian law that notes how many rows each question about a shift had."""

    asked: list[int] = field(default_factory=list, compare=False)

    def least(self, p: ArrayLike, r: ArrayLike) -> Floats:
        self.asked.append(len(np.asarray(p)))
        return super().least(p, r)


def test_ten_thousand_inputs_take_as_many_questions_as_ten() -> None:
    rng = np.random.default_rng(16)
    counts = rng.multinomial(1_000, rng.dirichlet(np.full(10, 0.3)), size=10_000)
    counts[0] = [1_000] + [0] * 9
    few, many = CountingLaw(0.5), CountingLaw(0.5)
    ten = derive(counts[:10], counts[:10].argmax(axis=1), few, k=3)
    all_ = derive(counts, counts.argmax(axis=1), many, k=3)
    assert few.asked.count(10) == many.asked.count(10_000) <= 100
    assert len(many.asked) == len(few.asked)
    assert all_.radius[:10] == pytest.approx(ten.radius, abs=1e-12, nan_ok=True)
    assert (~all_.abstained).sum() > 5_000


def test_a_sum_of_votes_that_overflows_is_refused() -> None:
    with pytest.raises(BadInput, match="too many votes"):
        derive([[100_000, *[2**62] * 4]], [0], law("gaussian:sigma=0.5"))


def test_conversions_other_than_to_linf_need_values_between_0_and_1() -> None:
    certs = replace(derive([[1000, 0]], [0], law("gaussian:sigma=2")), input_range=None)
    with pytest.raises(BadInput, match=r"\[0,1\]"):
        certs.in_threat("l0", (1, 4, 4))
    implied = certs.in_threat("linf", (1, 4, 4))  # holds for numbers of any size
    assert implied.radius == certs.radius / 4
    assert "L-infinity norm is less than the radius (units of the input, inputs of any size)" in implied.claim
    with pytest.raises(BadInput, match="pictures"):
        derive([[1000, 0]], [0], law("gaussian:sigma=2")).in_threat("patch", (2, 3, 8, 8))


def test_converted_claims_say_that_numbers_stay_between_0_and_1() -> None:
    """One pixel set to 50 is one changed pixel, and no radius in L2 covers it."""
    certs = derive([[100_000, 0]], [0], law("gaussian:sigma=2"))
    for target in ("l0", "patch", "l1"):
        said = certs.in_threat(target, (1, 4, 4))
        assert "and after which all numbers are in [0, 1]" in said.claim
        assert f"these {target} radii are about inputs and attacks whose numbers all are in [0, 1]" in said.notes
    pixels = derive([[100_000, 0]], [0], law("ablation:retained=2,features=16")).in_threat("patch", (1, 4, 4))
    assert "numbers" not in pixels.claim  # whatever the values are
    grid = replace(certs, arithmetic="grid").in_threat("l0", (1, 4, 4))
    assert grid.notes == certs.notes
    assert "another 8-bit picture" in grid.claim


def test_claims_from_bare_counts_say_that_labels_were_fixed_beforehand() -> None:
    words = "labels that were fixed before these votes were cast"
    assert words in derive([[1000, 0]], [0], law("gaussian:sigma=2")).claim
    assert words not in derive([[22, 4]], [0], law("splitting:sigma=0.03")).claim  # exact: a label may be read off
