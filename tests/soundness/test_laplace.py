"""Tries to break the Laplace certificate: every event, every direction, on small grids, with the table that is sampled."""

from collections.abc import Callable, Iterator
from itertools import pairwise, product

import numpy as np
import pytest
from amounts import few_then_all
from scipy import stats

from vauban.laws.laplace import LaplaceLaw
from vauban.laws.rounded_noise import BITS
from vauban.laws.topk import radius

PROBABILITIES = np.concatenate(
    [np.geomspace(1e-9, 0.02, 25), np.linspace(0.03, 0.97, 48), 1 - np.geomspace(1e-9, 0.02, 25)]
)


def noise(law: LaplaceLaw, levels: int) -> np.ndarray:
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


def worlds() -> Iterator[tuple[LaplaceLaw, int, tuple[int, ...]]]:
    """A law, the levels of a grid, and a perturbation in steps."""
    for sigma, levels in [(0.3, 6), (1.0, 5), (0.2, 60)]:
        for step in range(-25, 26):
            yield LaplaceLaw(sigma), levels, (step,)
    for sigma, levels in [(0.2, 4), (0.6, 3)]:
        for steps in product(range(-4, 5), repeat=2):
            yield LaplaceLaw(sigma), levels, steps


def shifts_broken() -> tuple[int, int]:
    """Cases tried, and those in which some event escapes the shifts, when the table deviates as little as it says."""
    tried = broken = 0
    for law, levels, steps in worlds():
        cells, reach = noise(law, levels), max(map(abs, steps))
        here, there = spread(cells, (0,) * len(steps), reach), spread(cells, steps, reach)
        most, r = worst(here, there, PROBABILITIES), sum(map(abs, steps)) / levels
        least = 1 - worst(here, there, 1 - PROBABILITIES)
        off = law.deviation((len(steps),), levels) + 1e-15  # in probability, and what sums of floats lose
        tried += 2 * len(PROBABILITIES)
        broken += int((most > law.most(PROBABILITIES + off, r) + off + 1e-13).sum())
        broken += int((least < law.least(PROBABILITIES - off, r) - off - 1e-13).sum())
    return tried, broken


def striped(here: np.ndarray, there: np.ndarray, p_label: float, rivals: list[float]) -> np.ndarray:
    """A base classifier [views] made for one perturbation: the label has what falls most, the rivals share what rises."""
    order = np.argsort(there / np.maximum(here, 1e-300), kind="stable")
    weight = np.cumsum(here[order])
    classes = np.full(len(here), len(rivals) + 1)
    classes[order[weight <= p_label]] = 0
    rising = order[weight > 1 - sum(rivals)][::-1]
    taken = np.zeros(len(rivals))
    for view in rising:
        hungriest = int(np.argmax(np.array(rivals) - taken))
        classes[view], taken[hungriest] = hungriest + 1, taken[hungriest] + here[view]
    return classes


def claims_broken(bound: str, every: int) -> tuple[int, int]:
    """Attacks on claims for classifiers made to break them, from within the radius, and those that succeed."""
    tried = broken = 0
    rng = np.random.default_rng(0)
    shares = [[0.6, 0.3], [0.9, 0.1], [0.45, 0.2, 0.15], [0.3, 0.1, 0.1, 0.1], [0.2, 0.3, 0.1]]
    shares += [list(rng.dirichlet([6.0, 1, 1, 1])[:3]) for _ in range(12)]
    shares = shares[::every]
    for levels, dimensions, reach in [(160, 1, 100), (8, 2, 6)]:
        law = LaplaceLaw(0.25, bound)
        cells = noise(law, levels)
        attacks = list(product(range(-reach, reach + 1), repeat=dimensions))
        for (p_label, *rivals), size in product(shares, (0.1, 0.3, 0.6)):
            target = tuple(int(rng.choice([-1, 1])) * max(round(size * reach), 1) for _ in range(dimensions))
            unmoved = spread(cells, (0,) * dimensions, reach)
            classes = striped(unmoved, spread(cells, target, reach), p_label, rivals)
            here = np.bincount(classes, unmoved, len(rivals) + 2)
            strongest = np.sort(here[1:])
            sums = [np.minimum(np.cumsum(strongest[-k:]), 1 - here[0]) for k in range(1, len(rivals) + 1)]
            radii = [radius(law, here[:1], sum_[None])[0] for sum_ in sums]
            for steps in attacks:
                r = sum(map(abs, steps)) / levels
                if not any(r < claimed for claimed in radii):
                    continue
                votes = np.bincount(classes, spread(cells, steps, reach), len(rivals) + 2)
                ahead = (votes[1:] >= votes[0]).sum()
                tried += sum(r < claimed for claimed in radii)
                broken += sum(r < claimed and ahead >= k for k, claimed in enumerate(radii, start=1))
    return tried, broken


def test_no_event_escapes_the_shifts(cases_tried: Callable[[int], None]) -> None:
    tried, broken = shifts_broken()
    cases_tried(tried)
    assert tried > 50_000
    assert broken == 0


@pytest.mark.parametrize("every", few_then_all(4, 1))
@pytest.mark.parametrize("bound", ["exact", "theorem1", "lecuyer"])
def test_no_claim_is_broken(bound: str, every: int, cases_tried: Callable[[int], None]) -> None:
    tried, broken = claims_broken(bound, every)
    cases_tried(tried)
    assert tried > 2_000 / every
    assert broken == 0


def test_both_would_be_seen_to_break(monkeypatch: pytest.MonkeyPatch) -> None:
    most, least = LaplaceLaw.most, LaplaceLaw.least
    monkeypatch.setattr(LaplaceLaw, "most", lambda self, p, r: most(self, p, np.asarray(r) / 1.1))
    monkeypatch.setattr(LaplaceLaw, "least", lambda self, p, r: least(self, p, np.asarray(r) / 1.1))
    assert shifts_broken()[1] > 0
    assert claims_broken("exact", every=4)[1] > 0


def test_the_least_of_the_three_pieces_would_be_seen_to_break(monkeypatch: pytest.MonkeyPatch) -> None:
    def least_piece(self: LaplaceLaw, p: np.ndarray, r: float) -> np.ndarray:
        decay = np.exp(-r * np.sqrt(2) / self.sigma)
        return np.minimum(np.minimum(p / decay, 1 - decay / (4 * p)), 1 - decay * (1 - p))

    monkeypatch.setattr(LaplaceLaw, "most", least_piece)
    assert shifts_broken()[1] > 0


def test_the_radius_is_tight() -> None:
    """Two half-lines, in the continuous world: a millionth further, the label loses."""
    law, scale = LaplaceLaw(0.5), 0.5 / np.sqrt(2)
    rng = np.random.default_rng(0)
    p_a = rng.uniform(0.05, 0.999, 500)
    p_b = np.minimum(p_a, 1 - p_a) * rng.uniform(0.05, 0.99, 500)
    cdf, quantile = stats.laplace(scale=scale).cdf, stats.laplace(scale=scale).ppf
    r = radius(law, p_a, p_b[:, None])
    for stretch, stays in ((1 - 1e-6, True), (1 + 1e-6, False)):
        label, rival = cdf(quantile(p_a) - r * stretch), 1 - cdf(quantile(1 - p_b) - r * stretch)
        assert np.array_equal(label > rival, np.full(500, stays))
