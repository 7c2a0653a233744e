"""Tries to break the splitting certificate on small worlds: the real views of every input under every divider."""

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from vauban.laws.rounded_noise import BITS
from vauban.laws.splitting import SplittingLaw
from vauban.laws.topk import radius
from vauban.laws.uniform import UniformLaw
from vauban.smoothing import Splitting
from vauban.smoothing.splitting import float_bins

PROBABILITIES = np.linspace(0, 1, 41)


def of_period(period: int, levels: int) -> Splitting:
    """The smoothing whose width is this many steps, and hardly less."""
    made = Splitting(period / levels / (2 * np.sqrt(3)) * (1 - 1e-13), sampled=True)
    assert made.law.period(levels) == period
    return made


class World:
    """Every input on a small grid, `laws` [inputs, views]: the probability of each view, through the smoothing's own code.

    One word stands for each divider, with the number of words that give the same. `coupled`: all coordinates share it.
    """

    def __init__(self, smoothing: Splitting, levels: int, dimensions: int, coupled: bool = False):
        ends = [0, *(int(t) for t in smoothing.law.rounded(levels).thresholds), 2**BITS]
        chances = [(b - a) / 2**BITS for a, b in pairwise(ends)]
        outcomes = (
            [(i,) * dimensions for i in range(len(chances))]
            if coupled
            else list(product(range(len(chances)), repeat=dimensions))
        )
        weights = np.array([chances[o[0]] if coupled else np.prod([chances[i] for i in o]) for o in outcomes])
        words = torch.tensor([[ends[i] for i in outcome] for outcome in outcomes])
        self.inputs = np.array(list(product(range(levels + 1), repeat=dimensions)))
        views = [smoothing.views(torch.from_numpy(x)[None], words, levels).numpy() for x in self.inputs]
        _, which = np.unique(np.concatenate(views), axis=0, return_inverse=True)
        which = which.reshape(len(self.inputs), -1)
        self.laws = np.stack([np.bincount(row, weights, which.max() + 1) for row in which])
        self.distances = np.abs(self.inputs[:, None] - self.inputs[None]).sum(axis=2) / levels


def worst(here: np.ndarray, there: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The most that an event of probability p here can weigh there: views by falling likelihood ratio. [Neyman-Pearson]"""
    new = here == 0
    order = np.argsort(-there[~new] / here[~new], kind="stable")
    x, y = np.cumsum(here[~new][order]), np.cumsum(there[~new][order])
    return np.interp(p, np.append(0, x), there[new].sum() + np.append(0, y))


WORLDS = [(of_period(period, 12), 12, 1, False) for period in (1, 2, 5, 11, 12, 13, 30)]
WORLDS += [(of_period(period, 3), 3, 2, coupled) for period in (1, 2, 3, 4, 7) for coupled in (False, True)]
WORLDS += [(Splitting(sigma, sampled=True), 4, 2, False) for sigma in (0.1, 0.31, 0.8)]


def shifts_broken() -> tuple[int, int]:
    """Cases tried, and those in which some event escapes the shifts."""
    tried = broken = 0
    for smoothing, levels, dimensions, coupled in WORLDS:
        world = World(smoothing, levels, dimensions, coupled)
        for (i, here), (j, there) in product(enumerate(world.laws), repeat=2):
            r = world.distances[i, j]
            most, least = worst(here, there, PROBABILITIES), 1 - worst(here, there, 1 - PROBABILITIES)
            tried += 2 * len(PROBABILITIES)
            broken += int((most > smoothing.law.most(PROBABILITIES, r) + 1e-12).sum())
            broken += int((least < smoothing.law.least(PROBABILITIES, r) - 1e-12).sum())
    return tried, broken


def claims_broken(world: World, law: SplittingLaw, votes: np.ndarray, classes: int) -> tuple[int, int]:
    """Attacks on the claims for base classifiers `votes` [m, views], from within the radius, and those that succeed.

    Every input, every label, every k; probabilities are exact, so the claims are as large as they get.
    """
    tried = broken = 0
    chances = np.stack([(votes == c) @ world.laws.T for c in range(classes)])  # [classes, m, inputs]
    for i, label in product(range(len(world.inputs)), range(classes)):
        rivals = np.delete(chances[:, :, i], label, axis=0)
        strongest = np.sort(rivals, axis=0)
        for k in range(1, classes):
            sums = np.cumsum(strongest[classes - 1 - k :], axis=0)
            claimed = radius(law, chances[label, :, i], np.minimum(sums, 1 - chances[label, :, i]).T)
            for j in range(len(world.inputs)):
                within = world.distances[i, j] < claimed
                ahead = (np.delete(chances[:, :, j], label, axis=0) >= chances[label, :, j] - 1e-12).sum(axis=0)
                tried += int(within.sum())
                broken += int((within & (ahead >= k)).sum())
    return tried, broken


def all_claims_broken() -> tuple[int, int]:
    """Every base classifier with 3 classes on 1-dimensional worlds, random and worst ones with 3 on 2-dimensional ones."""
    total = np.zeros(2, dtype=int)
    for period in (2, 4, 5):
        smoothing = of_period(period, 3)
        world = World(smoothing, 3, 1)
        votes = np.array(list(product(range(3), repeat=world.laws.shape[1])))
        total += claims_broken(world, smoothing.law, votes, 3)
    rng = np.random.default_rng(0)
    for period in (2, 3, 6):
        smoothing = of_period(period, 2)
        world = World(smoothing, 2, 2)
        views = world.laws.shape[1]
        votes = rng.choice(3, size=(300, views), p=[0.6, 0.2, 0.2])
        pairs = [
            np.argsort(np.argsort(there - here + 1e-9 * rng.random(views))) / views
            for here, there in product(world.laws, repeat=2)
        ]
        cuts = [np.searchsorted([cut, cut + (1 - cut) / 2], rank) for rank in pairs for cut in (0.4, 0.6, 0.8)]
        total += claims_broken(world, smoothing.law, np.concatenate([votes, cuts]), 3)
    return int(total[0]), int(total[1])


def test_no_event_escapes_the_shifts(cases_tried: Callable[[int], None]) -> None:
    tried, broken = shifts_broken()
    cases_tried(tried)
    assert tried > 100_000
    assert broken == 0


def test_no_claim_is_broken(cases_tried: Callable[[int], None]) -> None:
    tried, broken = all_claims_broken()
    cases_tried(tried)
    assert tried > 50_000
    assert broken == 0


def test_both_would_be_seen_to_break(monkeypatch: pytest.MonkeyPatch) -> None:
    most, least = UniformLaw.most, UniformLaw.least
    monkeypatch.setattr(UniformLaw, "most", lambda self, p, r: most(self, p, np.asarray(r) / 1.1))
    monkeypatch.setattr(UniformLaw, "least", lambda self, p, r: least(self, p, np.asarray(r) / 1.1))
    assert shifts_broken()[1] > 0
    assert all_claims_broken()[1] > 0


def test_a_period_rounded_down_would_be_seen_to_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the exact form does needs its own radius: with the width of the law, one step less is one too few."""
    period = SplittingLaw.period
    monkeypatch.setattr(SplittingLaw, "period", lambda self, levels: period(self, levels) - 1)
    smoothing = Splitting(0.31, sampled=True)
    world = World(smoothing, 4, 1)
    found = worst(world.laws[0], world.laws[1], PROBABILITIES)
    assert (found > smoothing.law.most(PROBABILITIES, world.distances[0, 1]) + 1e-3).any()


@pytest.mark.parametrize("period", [3, 8, 11])
def test_the_shift_is_attained_by_moving_one_coordinate(period: int) -> None:
    smoothing = of_period(period, 8)
    world = World(smoothing, 8, 1)
    some = PROBABILITIES[1:]  # left-over words make no view quite impossible
    for i, j in product(range(9), repeat=2):
        found = worst(world.laws[i], world.laws[j], some)
        assert np.allclose(found, smoothing.law.most(some, world.distances[i, j]), atol=1e-9)


def told_apart_too_often(pad: float) -> tuple[int, int]:
    """Pairs of float32 numbers tried off the grid, and those that 2^11 dividers tell apart too often by more than 2^-12."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.random(300), np.geomspace(1e-30, 1, 300), np.linspace(0, 1, 300)]).astype(np.float32)
    near = np.nextafter(x, np.float32(2))
    y = np.concatenate([near, np.minimum(x + rng.exponential(0.01, 900).astype(np.float32), 1).astype(np.float32)])
    x = np.concatenate([x, x])
    u = (torch.arange(2**11, dtype=torch.float64) + 0.5)[:, None] / 2**11
    tried = broken = 0
    for width in (2.0**-18 / 3, 0.01, 0.3, 1.7):
        here, there = (float_bins(torch.from_numpy(values)[None], u, width * pad) for values in (x, y))
        apart = ((here[0] != there[0]) | (here[1] != there[1])).double().mean(dim=0).numpy()
        far = np.abs(x.astype(float) - y.astype(float)) / width
        tried += len(x)
        broken += int((apart > np.minimum(far, 1) + 2.0**-11).sum())
    return tried, broken


def test_off_the_grid_values_are_told_apart_as_seldom_as_the_law_says(cases_tried: Callable[[int], None]) -> None:
    tried, broken = told_apart_too_often(1 + 2.0**-26)
    cases_tried(tried)
    assert broken == 0
    assert told_apart_too_often(0.98)[1] > 0


def test_the_padded_width_pays_for_the_rounding_of_positions(cases_tried: Callable[[int], None]) -> None:
    """In exact rationals: two float32 numbers are no further apart in padded widths, as computed, than in the law's."""
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.random(400), np.geomspace(1e-44, 0.999, 400), 1 - np.geomspace(1e-7, 0.5, 200)])
    x = x.astype(np.float32)
    y = np.nextafter(x, np.float32(2))
    broken = {}
    for pad in (1.0, 1 + 2.0**-26):
        broken[pad] = 0
        for width in rng.uniform(0.001, 4, 20):
            near, far = (np.asarray(values, dtype=float) / (width * pad) for values in (x, y))
            broken[pad] += sum(
                Fraction(b) - Fraction(a) > (Fraction(float(v)) - Fraction(float(u))) / Fraction(width)
                for a, b, u, v in zip(near, far, x, y, strict=True)
            )
    cases_tried(20 * len(x))
    assert broken[1 + 2.0**-26] == 0
    assert broken[1.0] > 0
