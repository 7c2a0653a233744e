"""The e-process against its definition, integrated at 30 digits, and against 20,000 polls stopped at the worst moment."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from amounts import examples
from hypothesis import given
from hypothesis import strategies as st
from tally_worlds import too_often

from vauban.bounds import eprocess
from vauban.bounds.eprocess import boundaries, least_votes, log_e, lower_bound
from vauban.errors import BadInput

DIGITS = 30


def defined(wins: int, votes: int, p: float) -> mpmath.mpf:
    """log of the mean likelihood ratio over q > p. With q = cos(x)^2 the prior is even over 0 <= x < arccos(sqrt p)."""
    with mpmath.workdps(DIGITS):
        base, losses = mpmath.mpf(p), votes - wins
        end = mpmath.acos(mpmath.sqrt(base))
        peak = mpmath.acos(mpmath.sqrt(mpmath.mpf(wins) / votes))
        width = 1 / mpmath.sqrt(votes)
        cuts = [peak + j * width for j in (-40, -20, -10, -5, -2, 0, 2, 5, 10, 20, 40)]
        at = [mpmath.mpf(0), *sorted(c for c in cuts if 0 < c < end), end]

        def ratio(x: mpmath.mpf) -> mpmath.mpf:
            won = 2 * wins * mpmath.log(mpmath.cos(x)) - wins * mpmath.log(base)
            lost = losses * (2 * mpmath.log(mpmath.sin(x)) - mpmath.log(1 - base)) if losses and x else mpmath.mpf(0)
            return mpmath.exp(won + lost) if x or not losses else mpmath.mpf(0)

        return mpmath.log(mpmath.quad(ratio, at) / end)


@st.composite
def polls(draw: st.DrawFn) -> tuple[int, int, float]:
    votes = draw(st.one_of(st.integers(1, 30), st.integers(1, 2_000), st.integers(1, 10**9)))
    wins = draw(st.one_of(st.sampled_from([0, votes // 2, votes - 1, votes]), st.integers(0, votes)))
    spread = math.sqrt((wins + 1) * (votes - wins + 1) / votes**3)
    near = wins / votes - draw(st.floats(-3, 12)) * spread
    return wins, votes, draw(st.sampled_from([min(max(near, 1e-9), 1 - 1e-9), draw(st.floats(0.001, 0.999))]))


@pytest.mark.slow
@examples(50)
@given(polls())
def test_never_more_than_the_definition_and_close_where_it_matters(poll: tuple[int, int, float]) -> None:
    wins, votes, p = poll
    got, exact = float(log_e(wins, votes, p)), defined(wins, votes, p)
    assert got <= exact
    if exact > -3:
        assert got >= exact - 1e-6 - 1e-13 * votes * math.log(votes + 1)


def test_a_wrong_prior_would_be_noticed() -> None:
    with mpmath.workdps(DIGITS):
        untruncated = defined(7, 9, 0.3) + mpmath.log(2 * mpmath.acos(mpmath.sqrt(mpmath.mpf(0.3))) / mpmath.pi)
    assert abs(float(untruncated) - float(log_e(7, 9, 0.3))) > 0.1


def test_one_more_vote_leaves_the_mean_as_it_is_under_p_and_lowers_it_below() -> None:
    t = np.repeat(np.arange(1, 80), 81)
    wins = np.tile(np.arange(81), 79)
    t, wins = t[wins <= t], wins[wins <= t]
    for p in (0.05, 0.5, 0.8413, 0.99):
        here = np.exp(log_e(wins, t, p))
        won, lost = np.exp(log_e(wins + 1, t + 1, p)), np.exp(log_e(wins, t + 1, p))
        assert p * won + (1 - p) * lost == pytest.approx(here, rel=1e-7)
        assert (0.9 * p * won + (1 - 0.9 * p) * lost < here).all()
    first = np.exp(log_e([0, 1], 1, 0.7))
    assert 0.3 * first[0] + 0.7 * first[1] == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.49])
def test_what_is_rejected_is_an_interval_that_ends_at_the_lower_bound(alpha: float) -> None:
    p = np.concatenate([np.geomspace(1e-9, 0.01, 150), np.linspace(0.01, 1, 1_200, endpoint=False)])
    for t in (1, 2, 3, 5, 10, 40, 300):
        wins = np.unique(np.linspace(0, t, 41).astype(int))
        rejected = log_e(wins[:, None], t, p) >= -math.log(alpha)
        bound = lower_bound(wins, t, alpha)
        assert np.array_equal(rejected, (p <= bound[:, None]) & (wins > 0)[:, None])


def test_close_to_the_share_of_wins_there_is_never_evidence_worth_two() -> None:
    for t in (1, 2, 3, 7, 50, 1_000):
        for wins in range(1, t + 1, max(1, t // 25)):
            p = np.linspace((wins - 0.5) / t, 1, 400, endpoint=False)
            assert (log_e(wins, t, p) <= math.log(2)).all()


@examples(25)
@given(polls(), st.sampled_from([1e-9, 1e-3, 0.05, 0.4]))
def test_lower_bound_is_rejected_itself_and_hardly_anything_above_is(
    poll: tuple[int, int, float], alpha: float
) -> None:
    wins, votes, _ = poll
    bound = float(lower_bound(wins, votes, alpha))
    if wins == 0:
        assert bound == 0.0
        return
    assert 0 < bound < wins / votes
    assert defined(wins, votes, bound) >= -math.log(alpha)
    above = bound + 1e-6 * min(bound, 1 - bound)
    assert defined(wins, votes, above) < -math.log(alpha) + 1e-13 * votes * math.log(votes + 1)


def test_a_bad_root_cannot_make_the_bound_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = lower_bound([60, 99, 1], 100, 0.001)
    monkeypatch.setattr(eprocess, "_NEWTON_STEPS", 0)
    assert (lower_bound([60, 99, 1], 100, 0.001) <= honest * (1 + 1e-9)).all()
    monkeypatch.setattr(eprocess, "expit", lambda x: np.full_like(x, 0.999))
    monkeypatch.setattr(eprocess, "_NEWTON_STEPS", 1)
    assert (lower_bound([60, 99, 1], 100, 0.001) <= honest * (1 + 1e-9)).all()


def test_shapes_broadcast_and_rows_do_not_depend_on_each_other() -> None:
    wins = np.array([[3, 10], [8, 0]])
    together = lower_bound(wins, [10, 12], 0.01)
    assert together.shape == (2, 2)
    for i, j in np.ndindex(2, 2):
        assert together[i, j] == lower_bound(wins[i, j], [10, 12][j], 0.01)
    assert lower_bound(np.zeros((0,), dtype=int), 5, 0.01).shape == (0,)


@pytest.mark.parametrize("p", [0.3, 0.5, 0.9772498680518208, 0.999])
def test_boundaries_are_the_least_wins_with_enough_evidence(p: float) -> None:
    looks = np.array([1, 10, 100, 1_000, 100_000])
    for votes, least in zip(looks, boundaries(p, looks, 0.001), strict=True):
        assert least > votes or log_e(least, votes, p) >= math.log(1000)
        assert log_e(least - 1, votes, p) < math.log(1000)
    n = least_votes(p, 0.001)
    assert boundaries(p, [n - 1, n], 0.001).tolist() == [n, n]


def rejected_at_some_vote(p: float, alpha: float, trials: int, votes: int, true: float) -> int:
    """How many of the polls have E_t >= 1/alpha after any vote at all."""
    rng = np.random.default_rng(5)
    wins = np.zeros(trials, dtype=np.int64)
    ever = np.zeros(trials, dtype=bool)
    for least in boundaries(p, np.arange(1, votes + 1), alpha):
        wins += rng.random(trials) < true
        ever |= wins >= least
    return int(ever.sum())


@pytest.mark.parametrize("p", [0.5, 0.8413447460685429, 0.98])
def test_whoever_looks_after_every_vote_is_wrong_with_probability_at_most_alpha(p: float) -> None:
    trials = 20_000
    wrong = rejected_at_some_vote(p, 0.05, trials, 1_500, p)
    assert not too_often(wrong, trials, 0.05)
    assert wrong > 0.015 * trials
    assert rejected_at_some_vote(p, 0.05, trials, 300, p * 0.97) < wrong


def test_the_simulation_notices_a_test_that_forgets_to_correct_for_looking() -> None:
    assert too_often(rejected_at_some_vote(0.5, 0.3, 20_000, 1_500, 0.5), 20_000, 0.05)


@pytest.mark.parametrize(
    "call", [lambda a: lower_bound(1, 2, a), lambda a: boundaries(0.5, [9], a), lambda a: least_votes(0.5, a)]
)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, -1.0, float("nan")])
def test_alpha_must_be_below_one_half(call: object, alpha: float) -> None:
    with pytest.raises(BadInput, match="between 0 and 1/2"):
        call(alpha)  # type: ignore[operator]


@pytest.mark.parametrize(("wins", "votes"), [(-1, 5), (6, 5), (0, 0)])
def test_polls_that_cannot_be_are_refused(wins: int, votes: int) -> None:
    with pytest.raises(BadInput, match="wins must lie between"):
        log_e(wins, votes, 0.5)


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_p_must_be_a_probability_below_one(p: float) -> None:
    with pytest.raises(BadInput, match="below 1"):
        log_e(1, 2, p)
