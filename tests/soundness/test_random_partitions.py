"""Thousands of random classifiers of the line: no move inside a certified radius may ever drop the label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from amounts import few_then_all
from line_worlds import Floats, interval_mass
from scipy.special import ndtri

from vauban.bounds.simultaneous import ProbabilityBounds
from vauban.laws.gaussian import GaussianLaw
from vauban.laws.topk import radius

SIGMA = 0.5
PARTS = (-1 + 1e-9, -0.7, -0.3, 0.1, 0.5, 0.9, 0.999, 1 - 1e-9)


@dataclass(frozen=True)
class Partitions:
    """Rows of cuts [m, s - 1] of the line, in sigmas, and the class of each of the s slices [m, s]."""

    cuts: Floats
    classes: np.ndarray
    num_classes: int

    def probabilities(self, shift: Floats) -> Floats:
        """Class probabilities [m, c] with row i moved by shift[i] sigmas."""
        ends = np.full((len(self.cuts), 1), np.inf)
        edges = np.concatenate([-ends, self.cuts, ends], axis=1) - shift[:, None]
        mass = interval_mass(edges[:, :-1], edges[:, 1:])
        return np.stack([np.where(self.classes == c, mass, 0.0).sum(axis=1) for c in range(self.num_classes)], axis=1)


def random_slices(rows: int, slices: int, num_classes: int, rng: np.random.Generator) -> Partitions:
    """Cuts anywhere, a random class in every slice, every class somewhere."""
    cuts = np.sort(rng.normal(scale=rng.uniform(0.3, 2.0, size=(rows, 1)), size=(rows, slices - 1)), axis=1)
    once = np.tile(np.arange(num_classes), (rows, 1))
    more = rng.integers(0, num_classes, size=(rows, slices - num_classes))
    return Partitions(cuts, rng.permuted(np.concatenate([once, more], axis=1), axis=1), num_classes)


def random_intervals(rows: int, num_classes: int, rng: np.random.Generator) -> Partitions:
    """One interval per class in random order, of random mass: half-lines are the worst events, so these come close."""
    mass = rng.dirichlet(np.full(num_classes, 0.8), size=rows)
    cuts = ndtri(np.clip(np.cumsum(mass, axis=1)[:, :-1], 1e-12, 1 - 1e-12))
    classes = rng.permuted(np.tile(np.arange(num_classes), (rows, 1)), axis=1)
    return Partitions(np.sort(cuts, axis=1), classes, num_classes)


def broken(worlds: Partitions, certify: Callable[[Floats, Floats], Floats]) -> tuple[int, int]:
    """Radii that a move inside them disproves, and radii tried, for every class as label and every k."""
    failures = tried = 0
    p = worlds.probabilities(np.zeros(len(worlds.cuts)))
    for label in range(worlds.num_classes):
        rivals = np.sort(np.delete(p, label, axis=1), axis=1)
        for k in range(1, worlds.num_classes):
            bounds = ProbabilityBounds(p[:, label], rivals[:, -k:])
            r = certify(bounds.label, bounds.sums())
            sure = ~np.isnan(r)
            lost = np.zeros(len(r), dtype=bool)
            for part in PARTS:
                moved = worlds.probabilities(np.where(sure, part * r / SIGMA, 0.0))
                ahead = np.delete(moved, label, axis=1) >= moved[:, label : label + 1]
                lost |= ahead.sum(axis=1) >= k
            failures, tried = failures + int((lost & sure).sum()), tried + int(sure.sum())
    return failures, tried


def all_worlds(rows: int = 800) -> list[Partitions]:
    rng = np.random.default_rng(6)
    some = [random_slices(rows, slices, c, rng) for slices in (6, 12, 40) for c in (2, 3, 5)]
    return some + [random_intervals(rows * 3 // 2, c, rng) for c in (2, 3, 4, 6)]


@pytest.mark.parametrize("rows", few_then_all(200, 800))
def test_no_move_inside_the_radius_drops_the_label(rows: int) -> None:
    counted = np.sum([broken(w, lambda p, s: radius(GaussianLaw(SIGMA), p, s)) for w in all_worlds(rows)], axis=0)
    assert counted[0] == 0
    assert counted[1] > 75 * rows


@pytest.mark.parametrize("fault", ["one percent more", "one rival too many", "rivals not added up"])
def test_a_wrong_radius_is_noticed(fault: str) -> None:
    law = GaussianLaw(SIGMA)
    faulty: dict[str, Callable[[Floats, Floats], Floats]] = {
        "one percent more": lambda p, s: 1.01 * radius(law, p, s),
        "one rival too many": lambda p, s: radius(law, p, np.concatenate([s, s[:, -1:]], axis=1)),
        "rivals not added up": lambda p, s: radius(law, p, np.diff(s, axis=1, prepend=0.0)),
    }
    assert sum(broken(worlds, faulty[fault])[0] for worlds in all_worlds(400)[-4:]) > 250
