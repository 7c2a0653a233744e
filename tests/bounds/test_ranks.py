"""Rank verification against SciPy's binomial test and against every small tally there is."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from exact_binomial import rational_at_least
from scipy.stats import binomtest

from vauban.bounds.ranks import leaders, least_votes, two_sided_p


def slow_leaders(row: list[int], k: int, alpha: float) -> tuple[list[int], bool]:
    """PREDICT for one row, pair by pair."""
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    for a, b in pairwise(order[: k + 1]):
        if row[a] + row[b] == 0 or binomtest(row[a], row[a] + row[b], 0.5).pvalue > alpha:
            return order[:k], True
    return order[:k], False


def test_p_values_agree_with_scipy() -> None:
    rng = np.random.default_rng(1)
    totals = np.concatenate([rng.integers(1, 100, 150), rng.integers(1, 100_000, 50)])
    wins = rng.binomial(totals, rng.choice([0.5, 0.45, 0.2], size=len(totals)))
    expected = [binomtest(w, t, 0.5).pvalue for w, t in zip(wins.tolist(), totals.tolist(), strict=True)]
    assert two_sided_p(wins, totals) == pytest.approx(expected, rel=1e-9)


def test_p_values_in_exact_integers() -> None:
    for total in range(41):
        for wins, p in enumerate(two_sided_p(np.arange(total + 1), np.full(total + 1, total))):
            exact = min(1, 2 * rational_at_least(max(wins, total - wins), total, 0.5))
            assert float(p) == pytest.approx(float(exact), rel=1e-12)


def test_no_toss_proves_nothing() -> None:
    assert two_sided_p(0, 0) == 1.0
    assert two_sided_p([0, 5, 50], [0, 10, 100]).tolist() == [1.0, 1.0, 1.0]


def test_leaders_agree_with_the_slow_test_on_random_tallies() -> None:
    rng = np.random.default_rng(2)
    checked = decided = 0
    for k, alpha in product((1, 2, 3), (0.3, 0.05, 0.001)):
        p = rng.dirichlet(np.full(5, 0.3), size=40)
        counts = np.array([rng.multinomial(n, q) for n, q in zip(rng.integers(5, 400, size=40), p, strict=True)])
        labels, undecided = leaders(counts, k, alpha)
        assert labels.shape == (40, k)
        for row, got, gave_up in zip(counts.tolist(), labels.tolist(), undecided, strict=True):
            assert (got, bool(gave_up)) == slow_leaders(row, k, alpha)
            checked, decided = checked + 1, decided + (not gave_up)
    assert checked == 360
    assert 90 < decided < 270


def test_ties_and_empty_ranks_are_undecided() -> None:
    counts = np.array([[50, 50, 0], [0, 0, 100], [60, 0, 40], [90, 10, 0], [10, 0, 90], [34, 34, 32]])
    labels, undecided = leaders(counts, 1, 0.001)
    assert undecided.tolist() == [True, False, True, False, False, True]
    assert labels[~undecided].ravel().tolist() == [2, 0, 2]
    labels, undecided = leaders(counts, 2, 0.01)
    assert undecided.tolist() == [True, True, True, False, False, True]
    assert labels[~undecided].tolist() == [[0, 1], [2, 0]]


def test_a_tie_at_the_boundary_of_the_top_k_is_undecided_whatever_leads() -> None:
    for k in (1, 2, 3):
        counts = [[10_000 * 10 ** (k - 1 - i) for i in range(k - 1)] + [500, 500, 1]]
        assert leaders(counts, k, 0.49)[1].tolist() == [True]


def test_the_level_itself_decides() -> None:
    level = 2 * 0.5**11
    assert leaders([[11, 0]], 1, level)[1].tolist() == [False]
    assert leaders([[11, 0]], 1, np.nextafter(level, 0))[1].tolist() == [True]
    assert leaders([[10, 0]], 1, level)[1].tolist() == [True]


def test_least_votes_at_one_in_a_thousand() -> None:
    assert [least_votes(k, 0.001) for k in (1, 2, 3)] == [11, 45, 113]
    ranks = [68, 34, 11, 0]
    assert not leaders([ranks], 3, 0.001)[1][0]
    for i in range(3):
        assert leaders([[v - (i == j) for j, v in enumerate(ranks)]], 3, 0.001)[1][0]


@pytest.mark.parametrize(("k", "alpha"), [(1, 0.05), (1, 0.3), (2, 0.05), (2, 0.3), (3, 0.3)])
def test_no_smaller_tally_at_all_can_be_decided(k: int, alpha: float) -> None:
    least = least_votes(k, alpha)
    rows = np.array([row for row in product(range(least + 1), repeat=k + 1) if sum(row) <= least])
    undecided = leaders(rows, k, alpha)[1]
    assert undecided[rows.sum(axis=1) < least].all()
    assert not undecided[rows.sum(axis=1) == least].all()
