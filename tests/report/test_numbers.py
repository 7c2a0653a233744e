"""Printed numbers are never better than the ones they stand for."""

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vauban.bounds.clopper_pearson import lower_bound, upper_bound
from vauban.certificates import Certificates, derive
from vauban.cli import plan as plans
from vauban.errors import BadInput
from vauban.laws.gaussian import GaussianLaw
from vauban.planning import CertifyPlan, RadiusTest
from vauban.report.attack_tables import rows as attack_rows
from vauban.report.curve import figure
from vauban.report.numbers import (
    asked_radius,
    confidence,
    mean_radius,
    needed_probability,
    percent,
    rounded_up,
    short_distance,
    short_radius,
    total,
)
from vauban.report.summary import headers, rows


def claims(radii: list[float], alpha: float = 0.001) -> Certificates:
    certs = derive(np.tile([1_000, 0], (len(radii), 1)), [0] * len(radii), GaussianLaw(0.5), alpha=alpha)
    return replace(certs, radius=np.array(radii), abstained=np.isnan(radii))


@example(138.46067)
@example(0.30000000000000004)
@given(st.floats(1e-12, 1e9))
def test_radii_are_rounded_down_and_by_little(radius: float) -> None:
    assert Fraction(short_radius(radius)) <= Fraction(radius) < Fraction(short_radius(radius)) + Fraction(radius) / 999
    assert float(asked_radius(radius)) <= radius
    assert float(asked_radius(radius)) == radius or Fraction(radius) - Fraction(asked_radius(radius)) <= Fraction(
        1, 10**9
    )


@example(138.46067)
@example(0.1)
@example(0.9999999999999999)
@given(st.floats(1e-12, 1e9))
def test_means_are_rounded_down_and_distances_of_attacks_up(value: float) -> None:
    little = Fraction(value) / 999
    assert float(Fraction(mean_radius(value))) <= value < Fraction(mean_radius(value)) + little
    assert value <= float(Fraction(short_distance(value))) < value + little


@given(st.integers(0, 10**6), st.integers(1, 10**4))
def test_the_mean_of_whole_numbers_is_not_cut_below_itself(total: int, inputs: int) -> None:
    shown = Fraction(mean_radius(total / inputs))
    assert shown <= Fraction(total, inputs)
    assert shown == Fraction(total, inputs) or 10**4 % inputs


def test_radii_that_were_asked_for_are_shown_as_they_were_written() -> None:
    assert [asked_radius(r) for r in (0.0, 0.3, 0.25, 1.0, 138.46067, 1e6)] == [
        "0",
        "0.3",
        "0.25",
        "1",
        "138.46067",
        "1000000",
    ]


def test_a_table_shows_no_radius_that_is_too_large() -> None:
    lines = dict(line[:2] for line in rows(claims([138.46067, 138.46067]).summary([138.46067])))
    assert lines["median radius"] == "138.4606"
    assert lines["certified at radius 138.46067"] == "100.00 %"


def test_shares_of_counts_are_rounded_down_exactly() -> None:
    for inputs in (*range(1, 130), 500, 999, 9_999, 10_000, 9_999_991):
        for count in {*range(min(inputs, 130) + 1), inputs - 1, inputs, inputs // 2, inputs // 7}:
            hundredths = 10_000 * count // inputs
            assert percent(count / inputs) == f"{hundredths // 100}.{hundredths % 100:02d} %"


@example(1 - 2.0**-53)
@example(0.9999999999999)
@example(0.29)
@given(st.floats(0, 1))
def test_no_share_is_shown_larger(fraction: float) -> None:
    shown = Fraction(percent(fraction).removesuffix(" %")) / 100
    assert float(shown) <= fraction < shown + Fraction(10_001, 10**8)
    assert percent(fraction) != "100.00 %" or fraction == 1


@pytest.mark.parametrize(
    ("failure", "shown"),
    [
        (0.001, "0.999"),
        (0.05, "0.95"),
        (0.07, "0.93"),
        (1e-6, "0.999999"),
        (1e-7, "1 - 1e-07"),
        (1e-20, "1 - 1e-20"),
        (1e-200, "1 - 1e-200"),
        (0.0012345678, "1 - 0.0012345678"),
    ],
)
def test_a_confidence_is_exact_and_never_one(failure: float, shown: str) -> None:
    assert confidence(failure) == shown
    certs = claims([1.0], alpha=0.01)
    assert f"with probability at least {shown}, the label" in replace(certs, alpha=failure).claim
    assert headers(certs.summary([0.0], rho=failure))[-1] == f"proven at {shown}"
    legend = figure([certs], rho=failure).axes[0].get_legend()
    assert legend is not None
    assert legend.get_title().get_text().endswith(f"with confidence {shown}")


def test_what_is_needed_is_rounded_up() -> None:
    assert [rounded_up(x, 3) for x in (0.0012301, 12.0, 1.0001)] == ["0.00124", "12", "1.01"]
    for p in (0.5, 0.8413447460685429, 0.999999999, 1 - 2.0**-53):
        text = needed_probability(p)
        shown = 1 - Fraction(text.removeprefix("1 - ")) if text.startswith("1 - ") else Fraction(text)
        assert Fraction(p) <= shown < 1


def test_failures_add_up_exactly() -> None:
    assert [total(0.001, 0.001), total(0.1, 0.2), total(1e-20), total(0.001, 1e-20)] == [
        "0.002",
        "0.3",
        "1e-20",
        "0.00100000000000000001",
    ]


@pytest.mark.parametrize("alpha", [9e-201, 1e-250, 1e-300, 5e-324])
def test_an_alpha_too_small_for_tails_is_refused(alpha: float) -> None:
    with pytest.raises(BadInput, match=f"alpha={alpha}: at least 1e-200 is needed"):
        derive([[1_000, 0]], [0], GaussianLaw(0.5), alpha=alpha)
    with pytest.raises(BadInput, match=f"rho={alpha}: at least 1e-200"):
        claims([1.0]).accuracy_claim(0.0, rho=alpha)


def tail(wins: int, n: int, p: float) -> mpmath.mpf:
    """The probability of so many wins or more, in 40 digits."""
    with mpmath.workdps(40):
        term = mpmath.binomial(n, wins) * mpmath.mpf(p) ** wins * (1 - mpmath.mpf(p)) ** (n - wins)
        added = term
        for k in range(wins + 1, n + 1):
            term *= mpmath.mpf(n - k + 1) / k * mpmath.mpf(p) / (1 - mpmath.mpf(p))
            added += term
        return added


def test_the_least_alpha_still_has_tails_when_it_is_shared_by_many() -> None:
    """1e-200 shared by a billion: bounds hold in exact arithmetic. (At 1e-250 some would be wrong, by a factor of a million.)"""
    alpha = 1e-200 / 1e9
    for n in (50, 200, 1_000, 5_000, 10**4, 10**6):
        for lost in (0, 1, 3, 10, 30, 36, 37, 38, 39, 40, 45):
            assert tail(n - lost, n, float(lower_bound(n - lost, n, alpha))) <= alpha
            assert tail(n - lost, n, float(1 - upper_bound(lost, n, alpha))) <= alpha * (1 + 1e-9)  # 1 - p is rounded


def test_a_plan_shows_radii_as_asked_for_and_needed_probabilities_below_one() -> None:
    made = CertifyPlan(
        method="sequential",
        smoothing="gaussian:sigma=0.5",
        threat="",
        k=1,
        alpha=0.001,
        bounds="binocp",
        stop="grid:step=0.3",
        n=100,
        inputs=1,
        largest_radius=0.3,
        votes=100,
        votes_per_second=1.0,
        looks=[10, 100],
        tests=[RadiusTest(0.3, 1 - 1e-9, [10, 99], 10)],
    )
    assert plans._tests(made)[0][0].startswith("radius 0.3: probability above 1 - 9.99e-10;")


def test_the_table_of_attacks_rounds_distances_up() -> None:
    found = {"curve": [], "median_distance": 0.50001, "median_gap": 0.20001, "found": 1, "attacked": 1, "views": 1}
    summary = found | {"wrong_already": 0, "only_abstentions": 0, "abstentions": 0}
    lines = {line[0]: line[-1] for line in attack_rows(SimpleNamespace(certs=()), summary)}  # type: ignore[arg-type]
    assert lines["median distance where a change was found"] == "0.5001"
    assert lines["median gap, distance less radius"] == "0.2001"
