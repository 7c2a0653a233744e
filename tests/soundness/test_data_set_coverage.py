"""Claims about a whole data set, over thousands of simulated data sets whose true accuracy is known at every radius."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from amounts import some_slow
from scipy.special import ndtri
from tally_worlds import all_tallies, notices_twice, too_often

from vauban.certificates import Certificates, derive
from vauban.laws.gaussian import GaussianLaw

LAW = GaussianLaw(0.5)
ALPHA, RHO, VOTES = 0.05, 0.05, 179
DATA_SETS = 3_000
RADII = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)

WORLDS = {
    "all on the border": np.full(67, 0.5),
    "half easy, half on the border": np.repeat([0.99, 0.5], 50),
    "all a little short of a radius": np.repeat([0.5, 0.579, 0.691, 0.841, 0.933], 12),
}


@lru_cache
def every_claim() -> Certificates:
    """The claims for label 1 of two, in the order of its votes 0..n."""
    counts = all_tallies(VOTES, 2)
    assert counts[:, 0].tolist() == list(range(VOTES + 1))
    return derive(counts[:, ::-1], np.ones(VOTES + 1, dtype=int), LAW, alpha=ALPHA)


def data_set(wins: np.ndarray) -> Certificates:
    """The claims of a data set in which input i got wins[i] votes for its true label."""
    table = every_claim()
    assert table.truth is not None
    return replace(
        table,
        label=table.label[wins],
        radius=table.radius[wins],
        abstained=table.abstained[wins],
        counts=table.counts[wins],
        truth=table.truth[wins],
    )


def false_floors(world: str, method: str, at_once: bool, rho: float = RHO) -> int:
    """Data sets with a floor over the true certified accuracy: at any of the radii, or at the one where most fail."""
    p = WORLDS[world]
    true = np.array([(LAW.sigma * ndtri(p) >= max(r, 1e-12)).mean() for r in RADII])
    wins = np.random.default_rng(12).binomial(VOTES, p, size=(DATA_SETS, len(p)))
    floors = np.array([[data_set(row).accuracy_claim(r, rho, method) for r in RADII] for row in wins])
    wrong = floors > true + 1e-12
    return int(wrong.any(axis=1).sum()) if at_once else int(wrong.sum(axis=0).max())


@pytest.mark.parametrize("world", some_slow(WORLDS, quick={0, 1}))
def test_the_binomial_floor_holds_at_all_radii_at_once(world: str) -> None:
    assert not too_often(false_floors(world, "binomial", at_once=True), DATA_SETS, RHO)


@pytest.mark.parametrize("world", some_slow(WORLDS, quick={2}))
def test_the_bernstein_floor_holds_at_each_radius(world: str) -> None:
    assert not too_often(false_floors(world, "bernstein", at_once=False), DATA_SETS, RHO)


@pytest.mark.parametrize("method", ["binomial", "bernstein"])
def test_floors_for_too_large_a_rho_are_noticed(method: str) -> None:
    assert notices_twice(DATA_SETS, RHO)
    rho = {"binomial": 3 * RHO, "bernstein": 0.9}[method]
    assert too_often(false_floors("all on the border", method, at_once=False, rho=rho), DATA_SETS, RHO)


def test_claims_without_a_floor_would_be_false_nearly_always() -> None:
    wins = np.random.default_rng(13).binomial(VOTES, WORLDS["all on the border"], size=(200, 67))
    assert np.mean([data_set(row).accuracy() > 0 for row in wins]) > 0.9
