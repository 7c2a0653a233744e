"""Choosing after looking: the best of the kept looks errs more often than alpha, and alpha shared by them does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from line_worlds import true_shift
from tally_worlds import Counts, all_tallies, chance, too_often

from vauban.bounds.clopper_pearson import lower_bound
from vauban.certificates import derive
from vauban.laws.from_counts import radii_of_looks
from vauban.laws.gaussian import GaussianLaw
from vauban.stopping.policies import looks_up_to

ALPHA, TRIALS, LAW = 0.05, 20_000, GaussianLaw(0.5)


def any_false(looks: list[int], alpha: float, p: float) -> float:
    """The probability that some look's lower bound is above p, exactly: dynamic programming over the number of wins."""
    alive, lost = np.array([1.0]), 0.0
    for votes in range(1, max(looks) + 1):
        alive = np.append(alive * (1 - p), 0.0) + np.append(0.0, alive * p)
        if votes in looks:
            false = lower_bound(np.arange(votes + 1), votes, alpha) > p
            lost += alive[false].sum()
            alive[false] = 0.0
    return lost


@pytest.mark.parametrize(("n", "p"), [(200, 0.5), (1_000, 0.5), (2_000, 0.5), (1_000, 0.9), (2_000, 0.9)])
def test_the_best_look_breaks_alpha_and_shared_alpha_keeps_it(
    n: int, p: float, cases_tried: Callable[[int], None]
) -> None:
    looks = looks_up_to(n)
    assert any_false(looks, ALPHA, p) > (1.2 if len(looks) == 2 else 1.5) * ALPHA
    assert any_false(looks, ALPHA / len(looks), p) <= ALPHA
    assert any_false(looks[-1:], ALPHA, p) <= ALPHA
    cases_tried(n)


@pytest.mark.parametrize(("p", "k", "bounds"), [((0.5, 0.5), 1, "binocp"), ((0.25,) * 4, 2, "simuem")])
def test_simulated_runs_claim_at_all_looks_no_more_often_wrongly_than_alpha(
    p: tuple[float, ...], k: int, bounds: str
) -> None:
    rng, looks = np.random.default_rng(20), looks_up_to(1_000)
    new = [rng.multinomial(votes, p, size=TRIALS) for votes in np.diff([0, *looks])]
    tables, labels = list(np.cumsum(new, axis=0)), np.zeros(TRIALS, dtype=np.int64)
    true = max(LAW.sigma * true_shift(p, 0, k), 0.0) + 1e-9
    shared, best = radii_of_looks(tables, labels, LAW, k=k, alpha=ALPHA, bounds=bounds)
    assert not too_often(int((shared > true).sum()), TRIALS, ALPHA)
    assert len(np.unique(best[~np.isnan(shared)])) > 1
    full = np.fmax.reduce([derive(t, labels, LAW, k=k, alpha=ALPHA, bounds=bounds).radius for t in tables])
    if bounds == "binocp":
        assert too_often(int((full > true).sum()), TRIALS, ALPHA)
    assert not (shared > full).any()


def false_claims(counts: Counts, p: tuple[float, ...], k: int, alpha: float, bounds: str) -> np.ndarray:
    claims = derive(counts, np.zeros(len(counts), dtype=int), LAW, k=k, alpha=alpha, bounds=bounds)
    return ~claims.abstained & (claims.radius > max(LAW.sigma * true_shift(p, 0, k), 0.0) + 1e-9)


@pytest.mark.parametrize("p", [(1 / 3, 1 / 3, 1 / 3), (0.5, 0.3, 0.2), (0.2, 0.4, 0.4)])
@pytest.mark.parametrize("bounds", ["binocp", "simuem", "half"])
def test_claims_by_the_same_bounds_on_the_same_votes_cost_the_larger_alpha(p: tuple[float, ...], bounds: str) -> None:
    """Over every tally of 40 votes: another k and another alpha together, exactly."""
    counts = all_tallies(40, 3)
    weight = chance(counts, p)
    both = [false_claims(counts, p, k, alpha, bounds) for k, alpha in ((1, 0.05), (2, 0.05), (1, 0.02), (2, 0.02))]
    assert weight[np.any(both, axis=0)].sum() <= 0.05
    mixed = [false_claims(counts, p, k, 0.05, name) for k, name in ((1, "binocp"), (2, "simuem"))]
    assert weight[np.any(mixed, axis=0)].sum() <= 0.1
