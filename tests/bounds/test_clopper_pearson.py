"""Clopper-Pearson bounds against tails in exact integers and at 50 digits: close, and never on the wrong side."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from amounts import examples
from exact_binomial import DIGITS, at_least, at_most, rational_at_least, rational_at_most, solve
from hypothesis import example, given
from hypothesis import strategies as st

from vauban.bounds.clopper_pearson import lower_bound, tail_error, upper_bound
from vauban.numerics import TAIL

ALPHAS = (1e-12, 1e-6, 1e-3, 0.05, 0.5)
CLOSE = 1e-9


@st.composite
def polls(draw: st.DrawFn) -> tuple[int, int, float]:
    """Wins, votes and alpha: few votes and many, counts at the ends and anywhere."""
    n = draw(st.one_of(st.integers(1, 60), st.integers(1, 2_000), st.integers(1, 10**6)))
    wins = draw(st.one_of(st.sampled_from([0, min(1, n), n - 1, n]), st.integers(0, n), st.integers(0, min(n, 50))))
    return wins, n, draw(st.floats(-12.0, np.log10(0.5)).map(lambda power: 10.0**power))


@examples(400)
@given(polls())
def test_lower_bound_is_at_most_the_exact_one_and_close(poll: tuple[int, int, float]) -> None:
    wins, n, alpha = poll
    p = float(lower_bound(wins, n, alpha))
    with mpmath.workdps(DIGITS):
        if wins == 0:
            assert p == 0.0
        else:
            assert at_least(wins, n, mpmath.mpf(p)) <= alpha
            assert at_least(wins, n, mpmath.mpf(p) * (1 + mpmath.mpf(CLOSE))) > alpha


# Polls at which the inverse and the tail of SciPy 1.17 err together, found among 900,000 random ones.
ROUNDED_TAILS = [
    (145, 377, 3.769582547734477e-11),
    (8562, 180982, 8.198525931342984e-08),
    (45042, 245504, 2.987663199063132e-08),
    (168, 367, 4.424337496997914e-12),
    (151, 408, 3.9689335079567934e-12),
    (134, 297, 1.1880622944244924e-08),
]


@pytest.mark.parametrize("poll", ROUNDED_TAILS)
def test_lower_bound_does_not_lean_on_a_tail_that_is_rounded_down(poll: tuple[int, int, float]) -> None:
    wins, n, alpha = poll
    with mpmath.workdps(DIGITS):
        assert at_least(wins, n, mpmath.mpf(float(lower_bound(wins, n, alpha)))) <= alpha


@examples(400)
@given(polls())
@example((1, 903021, 0.03991489418940135))
def test_upper_bound_is_at_least_the_exact_one_and_close(poll: tuple[int, int, float]) -> None:
    wins, n, alpha = poll
    p = float(upper_bound(wins, n, alpha))
    with mpmath.workdps(DIGITS):
        if wins == n:
            assert p == 1.0
        else:
            assert at_most(wins, n, mpmath.mpf(p)) <= alpha
            assert at_most(wins, n, mpmath.mpf(p) - mpmath.mpf(CLOSE) * min(1.0, 1e3 * p)) > alpha


@pytest.mark.parametrize("alpha", ALPHAS)
def test_every_count_up_to_sixteen_votes_in_exact_integers(alpha: float) -> None:
    for n in range(1, 17):
        for wins, low, high in zip(
            range(n + 1), lower_bound(range(n + 1), n, alpha), upper_bound(range(n + 1), n, alpha), strict=True
        ):
            assert wins == 0 or rational_at_least(wins, n, low) <= alpha < rational_at_least(wins, n, low * (1 + CLOSE))
            assert wins == n or rational_at_most(wins, n, high) <= alpha < rational_at_most(wins, n, high * (1 - CLOSE))


@pytest.mark.parametrize(
    ("wins", "n", "alpha"),
    [
        (1, 2, 0.5),
        (7, 10, 1e-3),
        (99, 100, 1e-12),
        (60, 100, 0.05),
        (1, 10_000, 1e-12),
        (99_000, 100_000, 1e-3),
        (500_000, 10**6, 1e-3),
        (999_990, 10**6, 1e-9),
    ],
)
def test_bounds_solve_the_tail_equation(wins: int, n: int, alpha: float) -> None:
    with mpmath.workdps(DIGITS):
        low = solve(lambda p: at_least(wins, n, p) <= alpha)
        high = solve(lambda p: at_most(wins, n, p) > alpha)
        assert 0 <= low - float(lower_bound(wins, n, alpha)) <= CLOSE
        assert 0 <= float(upper_bound(wins, n, alpha)) - high <= CLOSE


@pytest.mark.parametrize("alpha", [1e-12, 1e-9, 1e-6, 1e-3, 0.05, 0.5])
@pytest.mark.parametrize("n", [1, 2, 10, 1_000, 100_000, 10**6])
def test_closed_forms_at_the_ends(n: int, alpha: float) -> None:
    with mpmath.workdps(DIGITS):
        root, rest = mpmath.mpf(alpha) ** (mpmath.mpf(1) / n), (1 - mpmath.mpf(alpha)) ** (mpmath.mpf(1) / n)
        none, one, all_ = (float(p) for p in lower_bound([0, 1, n], n, alpha))
        assert none == 0.0
        assert (1 - CLOSE) * (1 - rest) <= one <= 1 - rest
        assert (1 - CLOSE) * root <= all_ <= root
        none, but_one, all_ = (float(p) for p in upper_bound([0, n - 1, n], n, alpha))
        assert 1 - root <= none <= (1 + CLOSE) * (1 - root)
        assert rest <= but_one <= rest + CLOSE
        assert all_ == 1.0


def test_shapes_are_kept_and_repeats_agree() -> None:
    wins = np.array([[3, 0, 10], [3, 10, 7]])
    for bound in (lower_bound, upper_bound):
        both = bound(wins, 10, 0.01)
        assert both.shape == wins.shape
        assert both[0, 0] == both[1, 0] == bound(3, 10, 0.01)
        assert bound(3, 10, 0.01).shape == ()


def test_bounds_rise_with_wins_and_tighten_with_alpha() -> None:
    wins = np.arange(201)
    for bound, sign in ((lower_bound, 1), (upper_bound, -1)):
        assert (np.diff(bound(wins, 200, 1e-3)) > 0).all()
        assert (sign * (bound(wins[1:-1], 200, 1e-2) - bound(wins[1:-1], 200, 1e-3)) > 0).all()


@pytest.mark.parametrize("n", [10**6, 10**7, 10**8, 10**9])
@pytest.mark.parametrize("alpha", [0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 0.999])
def test_lower_bound_allows_for_the_tail_of_very_many_votes(n: int, alpha: float) -> None:
    """Of few wins at an alpha above 1/2 the tail of SciPy 1.17 is off by more than 2^-36."""
    for wins in range(1, 40, 3):
        p = mpmath.mpf(float(lower_bound(wins, n, alpha)))
        with mpmath.workdps(80):
            fewer = mpmath.fsum(mpmath.binomial(n, i) * p**i * (1 - p) ** (n - i) for i in range(wins))
            assert 1 - fewer <= alpha
            assert 1 - fewer > alpha * (1 - 1e-6)


def test_the_allowance_is_that_of_a_few_votes_up_to_a_quarter_of_a_million() -> None:
    assert tail_error(1) == tail_error(2**18) == TAIL
    assert tail_error([2**20, 2**53]).tolist() == [4 * TAIL, 2**35 * TAIL]
