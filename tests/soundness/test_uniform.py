"""Tries to break the uniform certificate: every event, every direction, on small grids, with the table that is sampled."""

from collections.abc import Callable
from itertools import pairwise, product

import numpy as np
import pytest

from vauban.laws.rounded_noise import BITS
from vauban.laws.topk import radius
from vauban.laws.uniform import UniformLaw

PROBABILITIES = np.linspace(0, 1, 101)
WORLDS = [(0.3, 6, 1, 25), (1.0, 5, 1, 25), (0.07, 60, 1, 25), (0.2, 4, 2, 4), (0.37, 5, 2, 4), (0.05, 7, 2, 3)]


def noise(law: UniformLaw, levels: int) -> np.ndarray:
    """Probabilities of the steps -offset..offset, as the sampler has them."""
    ends = [0, *(int(t) for t in law.rounded(levels).thresholds), 2**BITS]
    return np.array([(b - a) / 2**BITS for a, b in pairwise(ends)])


def spread(cells: np.ndarray, steps: tuple[int, ...], reach: int) -> np.ndarray:
    """Probabilities of every view of an input moved by `steps`, one per coordinate, none larger than `reach`."""
    views = np.ones(1)
    for step in steps:
        line = np.zeros(len(cells) + 2 * reach)
        line[reach + step : reach + step + len(cells)] = cells
        views = np.outer(views, line).ravel()
    return views


def worst(here: np.ndarray, there: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The most that an event of probability p here can weigh there: views by falling likelihood ratio. [Neyman-Pearson]"""
    new = here == 0
    order = np.argsort(-there[~new] / here[~new], kind="stable")
    x, y = np.cumsum(here[~new][order]), np.cumsum(there[~new][order])
    return np.interp(p, np.append(0, x), there[new].sum() + np.append(0, y))


def shifts_broken() -> tuple[int, int]:
    """Cases tried, and those in which some event escapes the shifts."""
    tried = broken = 0
    for sigma, levels, dimensions, reach in WORLDS:
        law = UniformLaw(sigma)
        cells = noise(law, levels)
        here = spread(cells, (0,) * dimensions, reach)
        for steps in product(range(-reach, reach + 1), repeat=dimensions):
            there, r = spread(cells, steps, reach), sum(map(abs, steps)) / levels
            tried += 2 * len(PROBABILITIES)
            broken += int((worst(here, there, PROBABILITIES) > law.most(PROBABILITIES, r) + 1e-12).sum())
            broken += int((1 - worst(here, there, 1 - PROBABILITIES) < law.least(PROBABILITIES, r) - 1e-12).sum())
    return tried, broken


def claims_broken() -> tuple[int, int]:
    """Attacks from within the radius on base classifiers made to break top-1 and top-k claims, and those that succeed."""
    tried = broken = 0
    rng = np.random.default_rng(0)
    shares = [[0.6, 0.3], [0.9, 0.1], [0.45, 0.2, 0.15], [0.3, 0.1, 0.1, 0.1], [0.2, 0.3, 0.1]]
    shares += [list(rng.dirichlet([6.0, 1, 1, 1])[:3]) for _ in range(12)]
    for sigma, levels, dimensions, reach in [(0.2, 160, 1, 60), (0.2, 20, 2, 7)]:
        law = UniformLaw(sigma)
        cells = noise(law, levels)
        unmoved = spread(cells, (0,) * dimensions, reach)
        for (p_label, *rivals), size in product(shares, (0.1, 0.4, 1.0)):
            target = tuple(int(rng.choice([-1, 1])) * max(round(size * reach), 1) for _ in range(dimensions))
            classes = striped(unmoved, spread(cells, target, reach), p_label, rivals)
            here = np.bincount(classes, unmoved, len(rivals) + 2)
            strongest = np.sort(here[1:])
            sums = [np.minimum(np.cumsum(strongest[-k:]), 1 - here[0]) for k in range(1, len(rivals) + 1)]
            radii = [radius(law, here[:1], sum_[None])[0] for sum_ in sums]
            for steps in product(range(-reach, reach + 1), repeat=dimensions):
                r = sum(map(abs, steps)) / levels
                if not any(r < claimed for claimed in radii):
                    continue
                votes = np.bincount(classes, spread(cells, steps, reach), len(rivals) + 2)
                ahead = (votes[1:] >= votes[0]).sum()
                tried += sum(r < claimed for claimed in radii)
                broken += sum(r < claimed and ahead >= k for k, claimed in enumerate(radii, start=1))
    return tried, broken


def striped(here: np.ndarray, there: np.ndarray, p_label: float, rivals: list[float]) -> np.ndarray:
    """A base classifier [views] made for one perturbation: the label has what falls most, the rivals share what rises."""
    ratio = np.where(here > 0, there / np.where(here > 0, here, 1), np.where(there > 0, np.inf, 1.0))
    order = np.argsort(ratio, kind="stable")
    weight = np.cumsum(here[order])
    classes = np.full(len(here), len(rivals) + 1)
    classes[order[weight <= p_label]] = 0
    taken = np.zeros((2, len(rivals)))
    for view in order[weight > 1 - sum(rivals)][::-1]:
        owed = np.array(rivals) - taken[0] if here[view] > 0 else -taken[1]
        hungriest = int(np.argmax(owed))
        classes[view] = hungriest + 1
        taken[:, hungriest] += here[view], there[view]
    return classes


def test_no_event_escapes_the_shifts(cases_tried: Callable[[int], None]) -> None:
    tried, broken = shifts_broken()
    cases_tried(tried)
    assert tried > 50_000
    assert broken == 0


def test_no_claim_is_broken(cases_tried: Callable[[int], None]) -> None:
    tried, broken = claims_broken()
    cases_tried(tried)
    assert tried > 2_000
    assert broken == 0


def test_both_would_be_seen_to_break(monkeypatch: pytest.MonkeyPatch) -> None:
    most, least = UniformLaw.most, UniformLaw.least
    monkeypatch.setattr(UniformLaw, "most", lambda self, p, r: most(self, p, np.asarray(r) / 1.1))
    monkeypatch.setattr(UniformLaw, "least", lambda self, p, r: least(self, p, np.asarray(r) / 1.1))
    assert shifts_broken()[1] > 0
    assert claims_broken()[1] > 0


def test_the_shift_is_attained_on_the_grid() -> None:
    """For every event but those lighter than the outermost cell, which rounding leaves unsharp, and their complements."""
    attained = 0
    for sigma, levels, _, reach in WORLDS[:3]:
        law = UniformLaw(sigma)
        cells = noise(law, levels)
        for step in range(min(reach, int(law.width * levels - 1)) + 1):
            found = worst(spread(cells, (0,), reach), spread(cells, (step,), reach), PROBABILITIES)
            claimed = law.most(PROBABILITIES, step / levels)
            sharp = (cells[0] <= PROBABILITIES) & (claimed <= 1 - cells[0])
            assert np.allclose(found[sharp], claimed[sharp], atol=1e-12)
            attained += int(sharp.sum())
    assert attained > 1_000


def test_a_step_beyond_the_radius_breaks_some_classifier() -> None:
    """Tight for two rivals: the first grid point at or beyond the radius, with the worst events for both."""
    law, levels, reach = UniformLaw(0.3), 50, 55
    cells = noise(law, levels)
    here = spread(cells, (0,), reach)
    cases = [
        (a, b) for a in np.arange(0.1, 1, 0.05) for b in np.arange(0.02, 1, 0.06) if a > b + 0.01 and a + b < 0.999
    ]
    for p_a, p_b in cases:
        r = radius(law, np.array([p_a]), np.array([[p_b]]))[0]
        step = int(np.ceil(r * levels))
        there = spread(cells, (step,), reach)
        assert 1 - worst(here, there, 1 - p_a) <= worst(here, there, p_b) + 1e-12
    assert len(cases) > 50


def test_noise_that_is_not_independent_is_no_certificate() -> None:
    """[Levine2023] Proposition 3.1: with the same noise on both coordinates, an L1 step of 0.4 turns 1 into 0."""
    law = UniformLaw(0.5 / np.sqrt(3))
    noise = np.linspace(-0.5, 0.5, 1001)
    here, there = ((x1 + noise > 0.4 + x2 + noise).mean() for x1, x2 in ((0.8, 0.2), (0.6, 0.4)))
    assert (here, there) == (1.0, 0.0)
    assert there < law.least(here, 0.4) == pytest.approx(0.6)
    grid = noise[:, None], noise[None, :]
    apart = [(x1 + grid[0] > 0.4 + x2 + grid[1]).mean() for x1, x2 in ((0.8, 0.2), (0.6, 0.4))]
    assert apart[1] >= law.least(apart[0], 0.4)
