"""How often claims are false, counted: exactly over every tally of small polls, by simulation of bigger ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from line_worlds import true_shift
from tally_worlds import Counts, all_tallies, chance, notices_twice, too_often

from vauban.bounds.clopper_pearson import lower_bound, upper_bound
from vauban.bounds.ranks import leaders
from vauban.bounds.simultaneous import probability_bounds
from vauban.certificates import derive
from vauban.laws.gaussian import GaussianLaw

ALPHA = 0.05
TRIALS = 20_000
METHODS = ("binocp", "simuem", "half")
LAW = GaussianLaw(0.5)

SMALL = [  # votes, probabilities (label 0), k
    (37, (0.5, 0.5), 1),
    (30, (0.45, 0.55), 1),
    (179, (0.5, 0.5), 1),
    (60, (0.9, 0.1), 1),
    (40, (0.5, 0.3, 0.2), 1),
    (40, (1 / 3, 1 / 3, 1 / 3), 1),
    (40, (1 / 3, 1 / 3, 1 / 3), 2),
    (40, (0.2, 0.4, 0.4), 2),
    (20, (0.25, 0.25, 0.25, 0.25), 2),
    (20, (0.1, 0.3, 0.3, 0.3), 3),
    (20, (0.7, 0.1, 0.1, 0.1), 3),
]
BIG = [
    (179, (0.5, 0.5), 1),
    (1_000, (0.501, 0.499), 1),
    (300, (0.4, 0.3, 0.2, 0.05, 0.05), 2),
    (500, (0.1,) * 10, 3),
    (500, (0.25, 0.25, 0.25, 0.25, 0.0), 3),
    (2_000, (0.96, 0.01, 0.01, 0.01, 0.01), 3),
]


def simulated(n: int, p: Sequence[float], seed: int) -> Counts:
    return np.random.default_rng(seed).multinomial(n, p, size=TRIALS)


def bounds_fail(counts: Counts, p: Sequence[float], k: int, method: str, alpha: float = ALPHA) -> np.ndarray:
    """Where the label's probability is under its bound, or a rival's, or a sum of rivals', is over it."""
    bounds = probability_bounds(counts, np.zeros(len(counts), dtype=int), k=k, alpha=alpha, method=method)
    rivals = np.sort(p[1:])[-k:]
    return (
        (bounds.label > p[0])
        | (bounds.rivals < rivals * (1 - 1e-12)).any(axis=1)
        | (bounds.sums() < np.cumsum(rivals) * (1 - 1e-12)).any(axis=1)
    )


def claims_fail(counts: Counts, p: Sequence[float], k: int, method: str, alpha: float = ALPHA) -> np.ndarray:
    """Where the claimed radius is larger than what the worst classifier with these probabilities survives."""
    claims = derive(counts, np.zeros(len(counts), dtype=int), LAW, k=k, alpha=alpha, bounds=method)
    return ~claims.abstained & (claims.radius > max(LAW.sigma * true_shift(p, 0, k), 0.0) + 1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("n", "p", "k"), SMALL)
def test_over_all_small_tallies_bounds_and_radii_fail_with_probability_at_most_alpha(
    method: str, n: int, p: Sequence[float], k: int
) -> None:
    counts = all_tallies(n, len(p))
    weight = chance(counts, p)
    assert weight.sum() == pytest.approx(1, abs=1e-9)
    wrong_bounds, wrong_claims = bounds_fail(counts, p, k, method), claims_fail(counts, p, k, method)
    assert weight[wrong_bounds].sum() <= ALPHA
    assert weight[wrong_claims].sum() <= ALPHA
    assert not (wrong_claims & ~wrong_bounds).any()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("n", "p", "k"), [BIG[0], BIG[-1], *(pytest.param(*one, marks=pytest.mark.slow) for one in BIG[1:-1])]
)
def test_over_many_big_tallies_bounds_and_radii_fail_no_more_often_than_alpha(
    method: str, n: int, p: Sequence[float], k: int
) -> None:
    counts = simulated(n, p, seed=7)
    assert not too_often(int(bounds_fail(counts, p, k, method).sum()), TRIALS, ALPHA)
    assert not too_often(int(claims_fail(counts, p, k, method).sum()), TRIALS, ALPHA)


def own_bounds_fail(counts: Counts, p: Sequence[float], for_label: float, for_rival: float) -> np.ndarray:
    """Where the label's bound fails or that of any rival, the weak ones included."""
    n = int(counts[0].sum())
    low, high = lower_bound(counts[:, 0], n, for_label), upper_bound(counts[:, 1:], n, for_rival)
    return (low > p[0]) | (high < np.array(p[1:])).any(axis=1)


@pytest.mark.parametrize(("n", "p"), [(n, p) for n, p, _ in BIG])
def test_every_class_has_a_bound_that_holds_not_only_the_k_strongest(n: int, p: Sequence[float]) -> None:
    counts, classes = simulated(n, p, seed=8), len(p)
    for shares in ((ALPHA / classes, ALPHA / classes), (ALPHA / 2, ALPHA / 2 / (classes - 1))):
        assert not too_often(int(own_bounds_fail(counts, p, *shares).sum()), TRIALS, ALPHA)


def test_the_simulation_would_notice_twice_the_allowed_rate() -> None:
    assert notices_twice(TRIALS, ALPHA)
    n, p, k = BIG[0]
    counts = simulated(n, p, seed=7)
    assert too_often(int(claims_fail(counts, p, k, "binocp", alpha=2 * ALPHA).sum()), TRIALS, ALPHA)
    assert too_often(int(bounds_fail(counts, p, k, "binocp", alpha=2 * ALPHA).sum()), TRIALS, ALPHA)


def test_bounds_that_do_not_share_alpha_are_noticed() -> None:
    n, p, _ = BIG[3]
    counts = simulated(n, p, seed=8)
    assert too_often(int(own_bounds_fail(counts, p, ALPHA, ALPHA).sum()), TRIALS, ALPHA)
    assert too_often(int(own_bounds_fail(counts, p, 2 * ALPHA / 10, 2 * ALPHA / 10).sum()), TRIALS, ALPHA)


def test_the_guarantee_is_nearly_used_up_somewhere() -> None:
    n, p, k = SMALL[2]
    counts = all_tallies(n, 2)
    assert 0.0495 < chance(counts, p)[claims_fail(counts, p, k, "binocp")].sum() <= ALPHA


PREDICTED = [  # votes, probabilities, k
    (37, (0.5, 0.5), 1),
    (60, (0.45, 0.55), 1),
    (40, (1 / 3, 1 / 3, 1 / 3), 1),
    (40, (1 / 3, 1 / 3, 1 / 3), 2),
    (60, (0.4, 0.4, 0.2), 1),
    (60, (0.8, 0.1, 0.1), 2),
    (60, (0.45, 0.45, 0.1), 2),
    (24, (0.4, 0.4, 0.1, 0.1), 1),
    (24, (0.7, 0.1, 0.1, 0.1), 2),
]


def predictions_fail(counts: Counts, p: Sequence[float], k: int, alpha: float = ALPHA) -> np.ndarray:
    """Where a set is returned with a label outside it at least as probable as one inside: a tie makes any set wrong."""
    labels, undecided = leaders(counts, k, alpha)
    inside = np.zeros(counts.shape, dtype=bool)
    np.put_along_axis(inside, labels, True, axis=1)
    least_inside = np.where(inside, p, np.inf).min(axis=1)
    most_outside = np.where(inside, -np.inf, p).max(axis=1)
    return ~undecided & (most_outside >= least_inside)


@pytest.mark.parametrize(("n", "p", "k"), PREDICTED)
def test_over_all_small_tallies_predictions_are_wrong_with_probability_at_most_alpha(
    n: int, p: Sequence[float], k: int
) -> None:
    counts = all_tallies(n, len(p))
    assert chance(counts, p)[predictions_fail(counts, p, k)].sum() <= ALPHA


@pytest.mark.parametrize(
    ("n", "p", "k"),
    [
        (500, (0.5, 0.5), 1),
        (500, (0.21, 0.2, 0.2, 0.2, 0.19), 1),
        (500, (0.4, 0.2, 0.2, 0.1, 0.1), 2),
        (2_000, (0.6, 0.25, 0.05, 0.05, 0.05), 3),
        (2_000, (0.6, 0.25, 0.051, 0.0495, 0.0495), 3),
    ],
)
def test_over_many_big_tallies_predictions_are_wrong_no_more_often_than_alpha(
    n: int, p: Sequence[float], k: int
) -> None:
    assert not too_often(int(predictions_fail(simulated(n, p, seed=9), p, k).sum()), TRIALS, ALPHA)


def test_predictions_at_twice_the_level_are_noticed() -> None:
    counts = all_tallies(60, 3)
    p = (0.5, 0.5, 0.0)
    assert chance(counts, p)[predictions_fail(counts, p, 1)].sum() <= ALPHA
    assert chance(counts, p)[predictions_fail(counts, p, 1, 2 * ALPHA)].sum() > ALPHA


@pytest.mark.parametrize("n0", [1, 10, 101])
@pytest.mark.parametrize("p", [(0.5, 0.5), (0.51, 0.49), (0.4, 0.3, 0.3), (0.6, 0.2, 0.2)])
def test_a_label_chosen_by_votes_that_are_not_counted_keeps_alpha(n0: int, p: Sequence[float]) -> None:
    rng = np.random.default_rng(10)
    labels = rng.multinomial(n0, p, size=TRIALS).argmax(axis=1)
    claims = derive(rng.multinomial(179, p, size=TRIALS), labels, LAW, alpha=ALPHA)
    true = np.array([max(LAW.sigma * true_shift(p, label, 1), 0.0) for label in range(len(p))])[labels]
    assert not too_often(int((~claims.abstained & (claims.radius > true + 1e-9)).sum()), TRIALS, ALPHA)


def test_a_label_chosen_by_the_counted_votes_breaks_alpha_and_half_of_it_mends_that() -> None:
    counts = all_tallies(40, 2)
    weight = chance(counts, (0.5, 0.5))
    false = [~derive(counts, counts.argmax(axis=1), LAW, alpha=alpha).abstained for alpha in (ALPHA, ALPHA / 2)]
    assert weight[false[0]].sum() == pytest.approx(0.0807, abs=1e-4)
    assert weight[false[1]].sum() <= ALPHA
    sampled = np.random.default_rng(11).multinomial(40, (0.5, 0.5), size=TRIALS)
    claimed = ~derive(sampled, sampled.argmax(axis=1), LAW, alpha=ALPHA).abstained
    assert too_often(int(claimed.sum()), TRIALS, ALPHA)


def test_doublings_of_n_keep_their_alphas_and_a_number_chosen_after_looking_does_not(
    cases_tried: Callable[[int], None],
) -> None:
    """Why a run is extended to 2, 4, 8, … times its n only: exact probabilities of any false claim about p = 1/2."""
    n, alpha, p = 25, 0.02, 0.5

    def any_false(looks: set[int]) -> float:
        """That some look's lower bound is above p: dynamic programming over the number of wins."""
        alive, lost = np.array([1.0]), 0.0
        for votes in range(1, max(looks) + 1):
            alive = np.append(alive * (1 - p), 0.0) + np.append(0.0, alive * p)
            if votes in looks:
                bounds = lower_bound(np.arange(votes + 1), votes, alpha)
                lost += alive[bounds >= p].sum()
                alive[bounds >= p] = 0.0
        return lost

    for j in range(5):
        assert any_false({n * 2**i for i in range(j + 1)}) <= (j + 1) * alpha
    assert any_false({n, *range(n + 1, 16 * n)}) > 2 * alpha  # one free choice costs more than two alphas
    cases_tried(16 * n)
