"""Ways to stop: texts, thresholds of every law, decisions replayed row by row, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from polls import ALPHA, GAUSS, poll, sampled
from scipy.special import ndtr

from vauban.certificates import derive
from vauban.errors import BadInput
from vauban.laws import law
from vauban.laws.gaussian import GaussianLaw
from vauban.laws.topk import probability_needed, radius_of_label
from vauban.stopping import POLICIES, Anytime, AnytimeRule, Fixed, FixedRule, Grid, GridRule, Rule, Target
from vauban.stopping import policy as stop

LAWS = (
    "gaussian:sigma=0.5",
    "laplace:sigma=0.5",
    "uniform:sigma=0.5",
    "splitting:sigma=0.5,sampled=true",
    "fractional:p=1/2,scale=18,sampled=true",
    "ablation:retained=75",
    "discrete:keep=0.2,values=256",
    "flow:sigma=0.01",
    "band:size=4,sampled=true",
    "block:size=12,sampled=true",
)


# ---- texts


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("fixed", Fixed()),
        ("target:radius=0.5", Target(0.5)),
        ("target:radius=3,test=eprocess", Target(3.0, "eprocess")),
        ("grid:step=0.25", Grid(0.25)),
        ("grid:step=0.25,test=eprocess", Grid(0.25, "eprocess")),
        ("anytime", Anytime()),
    ],
)
def test_texts_are_read_and_written_back(text: str, wish: object) -> None:
    assert stop(text) == wish
    assert stop(str(stop(text).spec)) == wish
    assert set(POLICIES) == {"fixed", "target", "grid", "anytime"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("targt:radius=1", "did you mean 'target'"),
        ("target", "needs radius"),
        ("target:radius=0", "above zero"),
        ("target:radius=nan", "cannot be read"),
        ("grid:step=-1", "above zero"),
        ("grid:step=1,test=wald", "known: eprocess, group"),
        ("anytime:n=5", "no parameter 'n'"),
    ],
)
def test_texts_that_say_nothing_are_answered_with_what_would(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        stop(text)


# ---- thresholds


def test_the_gaussian_threshold_is_phi_of_radius_over_sigma() -> None:
    radii = np.array([1e-6, 0.1, 0.25, 0.5, 0.75, 1.2])
    p = probability_needed(GAUSS, radii)
    assert (p >= ndtr(radii / 0.25)).all()
    assert p == pytest.approx(ndtr(radii / 0.25), rel=1e-11)


@pytest.mark.parametrize("spec", LAWS)
@pytest.mark.parametrize("k", [1, 3])
def test_the_threshold_of_every_law_certifies_its_radius_and_hardly_less_does(spec: str, k: int) -> None:
    noise = sampled(spec)
    top = radius_of_label(noise, np.array([0.9999]), k)[0]
    radii = np.unique(np.floor(np.linspace(0, top, 7)) if noise.threat.integer else np.linspace(top / 7, top, 7))
    p = probability_needed(noise, radii, k)
    assert (p > 1 / (k + 1)).all()
    assert (p <= 0.9999 + 1e-9).all()
    slack = 0 if noise.threat.integer else 1e-9 * noise.scale
    assert (radius_of_label(noise, p, k) >= radii - slack).all()
    below = radius_of_label(noise, p * (1 - 1e-7), k)
    assert (np.isnan(below) | (below < radii)).all()
    assert all(a <= b for a, b in pairwise(p))


def test_no_probability_certifies_what_lies_beyond_the_law() -> None:
    assert np.isnan(probability_needed(sampled("uniform:sigma=0.5"), [2.0])).all()
    ablation = sampled("ablation:retained=75")
    assert np.isnan(probability_needed(ablation, [ablation.max_distance + 1])).all()


class Short(GaussianLaw):
    max_distance = 0.3


def test_nor_what_lies_beyond_the_largest_distance_there_is() -> None:
    assert np.isnan(probability_needed(Short(sigma=0.25), [0.2, 0.3, 0.31])).tolist() == [False, False, True]


def test_thresholds_move_up_by_the_deviation() -> None:
    plain, wide = (Target(0.25).rule(GAUSS, n=1_000, alpha=ALPHA, deviation=d) for d in (0.0, 0.01))
    assert isinstance(plain, GridRule)
    assert isinstance(wide, GridRule)
    assert wide.p[0] - plain.p[0] == pytest.approx(0.01, abs=1e-12)
    assert wide.p[0] >= plain.p[0] + 0.01
    assert (wide.least >= plain.least).all()


# ---- decisions


def slow_decision(rule: GridRule, wins: list[int]) -> tuple[float, bool, int]:
    """One row, look by look and radius by radius."""
    passed: set[int] = set()
    for j, count in enumerate(wins):
        passed |= {i for i in range(len(rule.radii)) if count >= rule.least[i][j]}
        reached = 0
        while reached in passed:
            reached += 1
        radius = rule.radii[reached - 1] if reached else float("nan")
        if reached == len(rule.radii) or count <= rule.futile[reached][j] or j + 1 == len(rule.looks):
            return radius, False, j + 1
    return radius, True, len(wins)


@pytest.mark.parametrize("wish", [Target(0.25), Target(0.5, "eprocess"), Grid(0.1), Grid(0.05, "eprocess")])
def test_decisions_are_those_of_a_slow_reading(wish: Target | Grid) -> None:
    rule = wish.rule(GAUSS, n=3_000, alpha=0.01)
    assert isinstance(rule, GridRule)
    wins = np.concatenate(
        [poll(p, list(rule.looks), 40, int(1e6 * p)) for p in (0.0, 0.3, 0.6, 0.8, 0.9, 0.97, 0.99, 1.0)]
    )
    outcomes = set()
    for j in (1, 4, 9, len(rule.looks)):
        got = rule.decide(wins[:, :j])
        for row, radius, going, looks in zip(wins[:, :j].tolist(), got.radius, got.going, got.looks, strict=True):
            assert (str(radius), going, looks) == (str((slow := slow_decision(rule, row))[0]), *slow[1:])
        outcomes |= {*zip(got.going.tolist(), got.certified.tolist(), got.gave_up.tolist(), strict=True)}
    assert {(False, True, False), (False, False, True), (True, False, False)} <= outcomes


def test_a_radius_counts_only_with_every_smaller_one(cases_tried: Callable[[int], None]) -> None:
    rng, looks = np.random.default_rng(8), (2, 4, 6)
    wins = np.array([(a, a + b, a + b + c) for a in range(3) for b in range(3) for c in range(3)])
    jumps = 0
    for _ in range(100):
        least, futile = rng.integers(0, 8, (4, 3)), rng.integers(-1, 5, (4, 3))
        rule = GridRule((1.0, 2.0, 3.0, 4.0), (0.1, 0.2, 0.3, 0.4), looks, least, futile)
        got = rule.decide(wins)
        for row, radius, going, used in zip(wins.tolist(), got.radius, got.going, got.looks, strict=True):
            assert (str(radius), going, used) == (str((slow := slow_decision(rule, row))[0]), *slow[1:])
            jumps += any(row[0] >= least[i][0] for i in (1, 2, 3)) and row[0] < least[0][0]
    assert jumps > 100
    cases_tried(100 * len(wins))


def all_rules() -> dict[str, Rule]:
    return {
        "fixed": Fixed().rule(GAUSS, n=500, alpha=ALPHA),
        "target": Target(0.25).rule(GAUSS, n=500, alpha=ALPHA),
        "grid": Grid(0.1, "eprocess").rule(GAUSS, n=500, alpha=ALPHA),
        "anytime": Anytime().rule(GAUSS, n=None, alpha=ALPHA),
    }


@pytest.mark.parametrize("name", ["fixed", "target", "grid", "anytime"])
def test_a_row_is_decided_by_its_own_looks_alone(name: str) -> None:
    rule = all_rules()[name]
    looks = rule.looks_until(500)
    wins = np.concatenate([poll(p, looks, 6, 3) for p in (0.2, 0.7, 0.9, 0.99)])
    together = rule.decide(wins)
    for i, row in enumerate(wins):
        alone = rule.decide(row[None])
        assert np.array_equal(alone.radius[0], together.radius[i], equal_nan=True)
        assert (alone.going[0], alone.looks[0]) == (together.going[i], together.looks[i])
        used = int(together.looks[i])
        replay = rule.decide(np.where(np.arange(len(looks)) < used, row, -1)[None])
        assert np.array_equal(replay.radius[0], together.radius[i], equal_nan=True)
        assert (replay.going[0], replay.looks[0]) == (together.going[i], used)
        if used > 1:
            assert rule.decide(np.where(np.arange(len(looks)) < used - 1, row, -1)[None]).going[0]


@pytest.mark.parametrize("name", ["fixed", "target", "grid", "anytime"])
def test_before_any_vote_nothing_is_said(name: str) -> None:
    said = all_rules()[name].decide(np.full((3, 1), -1))
    assert said.going.all()
    assert not said.certified.any()
    assert said.looks.tolist() == [0, 0, 0]


def test_fixed_is_what_claims_derive() -> None:
    rule = Fixed().rule(GAUSS, n=1_000, alpha=0.001, deviation=0.01)
    counts = np.array([[1_000, 0], [900, 100], [510, 490], [0, 1_000]])
    expected = derive(counts, np.zeros(4, dtype=int), GAUSS, alpha=0.001, bounds="binocp", deviation=0.01).radius
    assert np.array_equal(rule.decide(counts[:, :1]).radius, expected, equal_nan=True)


def test_anytime_keeps_what_was_earned() -> None:
    rule = Anytime().rule(GAUSS, n=None, alpha=0.001)
    looks = rule.looks_until(10_000)
    good = [n if n <= 1_000 else 1_000 for n in looks]  # every vote won, then every vote lost
    radii = [float(rule.decide(np.array([good[: j + 1]])).radius[0]) for j in range(len(looks))]
    assert all(b >= a for a, b in pairwise(radii) if a == a)
    assert radii[-1] == max(r for r in radii if r == r) > 0.5
    assert rule.decide(np.array([good])).going.all()
    assert looks[:4] == [10, 11, 13, 14]
    assert rule.next_look(10**12) is None


def test_hopeless_inputs_cost_one_look_and_easy_ones_few() -> None:
    rule = Target(0.25).rule(GAUSS, n=100_000, alpha=0.001)
    looks = np.array(rule.looks_until(100_000))
    lost, won = rule.decide(np.zeros((1, len(looks)), dtype=int)), rule.decide(looks[None])
    assert (lost.gave_up[0], lost.looks[0]) == (True, 1)
    assert won.radius[0] == 0.25
    assert looks[won.looks[0] - 1] <= 100


def test_counted_radii_include_zero() -> None:
    noise = sampled("ablation:retained=75")
    rule = Grid(1).rule(noise, n=1_000, alpha=0.001)
    assert isinstance(rule, GridRule)
    assert rule.radii[:3] == (0.0, 1.0, 2.0)
    unanimous = float(FixedRule(noise, 1_000, 0.001).decide([[1_000]]).radius[0])
    assert rule.radii[-1] == unanimous


def test_radii_of_a_grid_are_the_decimal_multiples_of_its_step() -> None:
    rule = Grid(0.1).rule(GAUSS, n=1_000, alpha=0.001)
    assert isinstance(rule, GridRule)
    assert rule.radii == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


# ---- what cannot be


@pytest.mark.parametrize("test", ["group", "eprocess"])
@pytest.mark.parametrize("make", [Target, Grid])
def test_a_radius_out_of_reach_is_refused_with_the_votes_that_would_do(
    make: Callable[..., Target | Grid], test: str
) -> None:
    wish = make(1.0, test)
    with pytest.raises(BadInput, match=r"radius 1 is out of reach of n=10,000 .*: n=[\d,]+ could certify it") as caught:
        wish.rule(GAUSS, n=10_000, alpha=0.001)
    least = int(str(caught.value).split(": n=")[1].split(" ")[0].replace(",", ""))
    assert wish.rule(GAUSS, n=least, alpha=0.001).looks_until(least)[-1] == least
    with pytest.raises(BadInput, match="out of reach"):
        wish.rule(GAUSS, n=least - 1, alpha=0.001)


@pytest.mark.parametrize(
    ("wish", "spec", "n", "message"),
    [
        (Target(5.0), "uniform:sigma=0.5", 1_000, "of any number of votes"),
        (Target(1.5), "ablation:retained=75", 1_000, "is counted, so a whole number is needed"),
        (Grid(0.5), "ablation:retained=75", 1_000, "is counted, so a whole number is needed"),
        (Grid(1e-6), "gaussian:sigma=0.25", 1_000, r"makes 6\d\d,\d\d\d radii up to 0.6.*step=0.001\d\d or more"),
        (Grid(1e-300), "gaussian:sigma=0.25", 1_000, "radii up to 0.6"),
        (Target(float("inf")), "gaussian:sigma=0.25", 1_000, "finite number above zero"),
        (Target(0.1, "wald"), "gaussian:sigma=0.25", 1_000, "known: eprocess, group"),
        (Target(0.1), "gaussian:sigma=0.25", 0, "n=0"),
        (Target(0.1), "gaussian:sigma=0.25", None, "n=None"),
        (Target(0.1), "gaussian:sigma=0.25", 10**9, "use the e-process"),
        (Fixed(), "gaussian:sigma=0.25", None, "n=None"),
        (Anytime(), "gaussian:sigma=0.25", 1_000, "leave n out"),
    ],
)
def test_wishes_that_cannot_be_granted(wish: Target, spec: str, n: int, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        wish.rule(sampled(spec), n=n, alpha=0.001)


@pytest.mark.parametrize("k", [0, -1, 1.5])
def test_k_must_be_a_whole_number(k: int) -> None:
    for wish, n in ((Target(0.1), 100), (Fixed(), 100), (Anytime(), None)):
        with pytest.raises(BadInput, match=f"k={k}"):
            wish.rule(GAUSS, n=n, alpha=0.001, k=k)


@pytest.mark.parametrize(("alpha", "deviation"), [(0.5, 0.0), (0.0, 0.0), (0.001, -0.1), (0.001, 1.0)])
def test_alpha_and_deviation_must_make_sense(alpha: float, deviation: float) -> None:
    for wish, n in ((Target(0.1), 100), (Fixed(), 100), (Anytime(), None)):
        with pytest.raises(BadInput, match="alpha=|deviation="):
            wish.rule(GAUSS, n=n, alpha=alpha, deviation=deviation)


def test_so_much_deviation_that_nothing_can_be_certified() -> None:
    with pytest.raises(BadInput, match="of any number of votes"):
        Target(0.5).rule(GAUSS, n=100_000, alpha=0.001, deviation=0.03)


@pytest.mark.parametrize(
    ("wins", "message"),
    [
        ([[5, 3]], "wins are cumulative"),
        ([[26, 30]], "wins are cumulative"),
        ([[3, 3 + 9]], "wins are cumulative"),
        ([3, 5], "a row per input"),
        ([[0.5, 1.0]], "whole numbers"),
        ([[1] * 9], "there is none after 100 votes"),
    ],
)
def test_wins_that_no_votes_could_make_are_refused(wins: list, message: str) -> None:
    rule = Target(0.1).rule(GAUSS, n=100, alpha=0.001)
    assert rule.looks_until(100)[:2] == [25, 32]
    with pytest.raises(BadInput, match=message):
        rule.decide(wins)


@pytest.mark.parametrize(
    ("text", "spec", "n"),
    [
        ("target:radius=0.25", "gaussian:sigma=0.25", 500),
        ("grid:step=0.05", "gaussian:sigma=0.25", 500),
        ("grid:step=0.05,test=eprocess", "gaussian:sigma=0.25", 500),
        ("anytime", "gaussian:sigma=0.25", None),
        ("anytime", "uniform:sigma=0.25", None),
        ("fixed", "gaussian:sigma=0.25", 100),
    ],
)
def test_going_on_look_by_look_is_the_decision_about_all_looks(text: str, spec: str, n: int | None) -> None:
    rule = stop(text).rule(law(spec), n=n, alpha=0.01)
    rng, seen = np.random.default_rng(3), set()
    looks = rule.looks_until(n or 60)
    assert rule.last_look == n
    for p in np.repeat([0.5, 0.85, 0.9, 0.97, 1.0], 12 if n else 1):
        wins: list[int] = []
        for j, m in enumerate(np.diff([0, *looks])):
            wins.append((wins[-1] if wins else 0) + int(rng.binomial(m, p)))
            assert rule.votes_at(j + 1) == looks[j]
            going = rule.goes_on(wins)
            assert going == bool(rule.decide([wins]).going[0])
            if not going:
                break
        seen.add(len(wins))
    assert len(seen) > 4 or text in ("anytime", "fixed")


def test_votes_that_an_endless_rule_surely_needs_end_at_its_last_look() -> None:
    endless = AnytimeRule(law("gaussian:sigma=0.25"), 0.01)
    assert endless.sure_votes(2_000) == max(endless.looks_until(2_000)) <= 2_000 < endless.next_look(2_000)
    assert endless.sure_votes(5) == 0
    may_stop = AnytimeRule(law("ablation:retained=75,features=784"), 0.01)
    assert may_stop.sure_votes(2_000) == 0
