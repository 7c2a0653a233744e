"""Tries to break the fractional Lp certificate on small worlds: the real views of every input, every width and divider."""

import functools
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
import torch

from vauban.laws.fractional import FractionalLaw
from vauban.laws.rounded_noise import BITS
from vauban.laws.topk import radius
from vauban.smoothing import Fractional
from vauban.smoothing.splitting import float_bins

PROBABILITIES = np.linspace(0, 1, 41)


class World:
    """Every input on a small grid, `laws` [inputs, views]: the probability of each view, through the smoothing's own code.

    One word stands for each width and divider, with the number of words that give the same.
    """

    def __init__(self, smoothing: Fractional, levels: int, dimensions: int):
        table = smoothing.law.table(levels)
        pairs = [
            (int(start) + i * int(cell), int(cell))
            for k, (start, cell) in enumerate(zip(table.starts[:-1], table.cells, strict=False))
            for i in range(k + 1)
            if table.starts[k + 1] > start
        ]
        pairs.append((2**BITS - 1, 2**BITS - int(table.starts[-1])))
        assert sum(count for _, count in pairs) == 2**BITS
        outcomes = list(product(pairs, repeat=dimensions))
        words = torch.tensor([[word for word, _ in outcome] for outcome in outcomes])
        weights = np.array([np.prod([count / 2**BITS for _, count in outcome]) for outcome in outcomes])
        self.inputs = np.array(list(product(range(levels + 1), repeat=dimensions)))
        views = [smoothing.views(torch.from_numpy(x)[None], words, levels).numpy() for x in self.inputs]
        _, which = np.unique(np.concatenate(views), axis=0, return_inverse=True)
        which = which.reshape(len(self.inputs), -1)
        self.laws = np.stack([np.bincount(row, weights, which.max() + 1) for row in which])
        p = float(smoothing.law.p)
        apart = np.abs(self.inputs[:, None] - self.inputs[None]) / levels
        self.distances = (apart**p).sum(axis=2) ** (1 / p)


@lru_cache(maxsize=32)
def world(
    p: str, scale: float, levels: int, dimensions: int, representation: str = "upper_lower"
) -> tuple[FractionalLaw, World]:
    made = Fractional(p, scale, sampled=True, representation=representation)
    return made.law, World(made, levels, dimensions)


def worst(here: np.ndarray, there: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The most that an event of probability p here can weigh there: views by falling likelihood ratio. [Neyman-Pearson]"""
    new = here == 0
    order = np.argsort(-there[~new] / here[~new], kind="stable")
    x, y = np.cumsum(here[~new][order]), np.cumsum(there[~new][order])
    return np.interp(p, np.append(0, x), there[new].sum() + np.append(0, y))


slow = functools.partial(pytest.param, marks=pytest.mark.slow)
WORLDS = [(p, scale, 10, 1, "upper_lower") for p in ("1/2", "1/3", "3/4", "1") for scale in (1.0, 2.5)]
WORLDS += [("1/2", 1.5, 10, 1, "center"), ("1/2", 2.0, 3, 2, "center")]
WORLDS += [(p, scale, 3, 2, "upper_lower") for p in ("1/2", "1/3", "1") for scale in (1.0, 3.0)]


def shifts_broken() -> tuple[int, int]:
    """Cases tried, and those in which some event escapes the shifts."""
    tried = broken = 0
    for parameters in WORLDS:
        law, small = world(*parameters)
        for (i, here), (j, there) in product(enumerate(small.laws), repeat=2):
            r = small.distances[i, j]
            most, least = worst(here, there, PROBABILITIES), 1 - worst(here, there, 1 - PROBABILITIES)
            tried += 2 * len(PROBABILITIES)
            broken += int((most > law.most(PROBABILITIES, r) + 1e-12).sum())
            broken += int((least < law.least(PROBABILITIES, r) - 1e-12).sum())
    return tried, broken


def claims_broken(law: FractionalLaw, small: World, votes: np.ndarray, classes: int) -> tuple[int, int]:
    """Attacks on the claims for base classifiers `votes` [m, views], from within the radius, and those that succeed.

    Every input, every label, every k; probabilities are exact, so the claims are as large as they get.
    """
    tried = broken = 0
    chances = np.stack([(votes == c) @ small.laws.T for c in range(classes)])  # [classes, m, inputs]
    for i, label in product(range(len(small.inputs)), range(classes)):
        strongest = np.sort(np.delete(chances[:, :, i], label, axis=0), axis=0)
        for k in range(1, classes):
            sums = np.cumsum(strongest[classes - 1 - k :], axis=0)
            claimed = radius(law, chances[label, :, i], np.minimum(sums, 1 - chances[label, :, i]).T)
            for j in range(len(small.inputs)):
                within = small.distances[i, j] < claimed
                ahead = (np.delete(chances[:, :, j], label, axis=0) >= chances[label, :, j] - 1e-12).sum(axis=0)
                tried += int(within.sum())
                broken += int((within & (ahead >= k)).sum())
    return tried, broken


def all_claims_broken() -> tuple[int, int]:
    """Every base classifier with 2 or 3 classes on 1-dimensional worlds, random and worst ones on 2-dimensional ones."""
    total = np.zeros(2, dtype=int)
    for p, scale in (("1/2", 1.0), ("1/2", 1.8), ("1/3", 1.2)):
        law, small = world(p, scale, 2, 1)
        votes = np.array(list(product(range(3), repeat=small.laws.shape[1])))
        total += claims_broken(law, small, votes, 3)
        law, small = world(p, scale, 3, 1)
        votes = np.array(list(product(range(2), repeat=small.laws.shape[1])))
        total += claims_broken(law, small, votes, 2)
    rng = np.random.default_rng(0)
    for p, scale in (("1/2", 1.0), ("1/2", 2.5), ("1/3", 3.0)):
        law, small = world(p, scale, 2, 2)
        views = small.laws.shape[1]
        votes = rng.choice(3, size=(300, views), p=[0.6, 0.2, 0.2])
        ranks = [
            np.argsort(np.argsort(there - here + 1e-9 * rng.random(views))) / views
            for here, there in product(small.laws, repeat=2)
        ]
        cuts = [np.searchsorted([cut, cut + (1 - cut) / 2], rank) for rank in ranks for cut in (0.4, 0.6, 0.8)]
        total += claims_broken(law, small, np.concatenate([votes, cuts]), 3)
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
    most, least = FractionalLaw.most, FractionalLaw.least
    monkeypatch.setattr(FractionalLaw, "most", lambda self, p, r: most(self, p, np.asarray(r) / 1.1))
    monkeypatch.setattr(FractionalLaw, "least", lambda self, p, r: least(self, p, np.asarray(r) / 1.1))
    assert shifts_broken()[1] > 0
    assert all_claims_broken()[1] > 0


@pytest.mark.parametrize("p", ["1/2", "1/3", "1"])
def test_the_shift_is_attained_by_moving_one_coordinate(p: str) -> None:
    law, small = world(p, 1.5, 10, 1)
    some = PROBABILITIES[1:]  # left-over words make no view quite impossible
    for i, j in product(range(11), repeat=2):
        found = worst(small.laws[i], small.laws[j], some)
        assert np.allclose(found, law.most(some, small.distances[i, j]), atol=1e-9)


def test_a_point_at_the_radius_breaks_some_classifier() -> None:
    """Tight: the nearest grid point at or beyond the radius, with the worst events for the label and its rival."""
    law, small = world("1/2", 1.2, 40, 1)
    here, tried = small.laws[0], 0
    for p_a, p_b in [
        (a, b) for a in np.arange(0.3, 1, 0.05) for b in np.arange(0.02, 0.5, 0.06) if b + 0.02 < a < 0.999 - b
    ]:
        r = radius(law, np.array([p_a]), np.array([[p_b]]))[0]
        j = int(np.searchsorted(small.distances[0], r))
        if j < len(small.inputs):
            there = small.laws[j]
            assert 1 - worst(here, there, 1 - p_a) <= worst(here, there, p_b) + 1e-12
            tried += 1
    assert tried > 30


def told_apart_too_often(p: str, scale: float, pad: float) -> tuple[int, int]:
    """Pairs of float32 numbers tried off the grid, and those told apart too often by more than the dividers' spacing.

    The widths are those of the sampler (every 64th, weighed as 64), the dividers 2^6 in a width.
    """
    law = Fractional(p, scale, sampled=True).law
    widths = torch.from_numpy(law.float_widths()[63::64] * pad)[:, None, None]
    u = ((torch.arange(2**6, dtype=torch.float64) + 0.5) / 2**6)[None, :, None]
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.random(20), np.geomspace(1e-30, 1, 20)]).astype(np.float32)
    y = np.minimum(x + rng.exponential(0.01, (3, 40)) ** np.array([[1], [2], [4]]), 1).astype(np.float32)
    y = np.concatenate([np.nextafter(x, np.float32(2)), *y])
    x = np.tile(x, 4)
    here, there = (float_bins(torch.from_numpy(values)[None, None], u, widths) for values in (x, y))
    apart = ((here[0] != there[0]) | (here[1] != there[1])).double().mean(dim=(0, 1)).numpy()
    far = np.abs(x.astype(float) - y.astype(float)) ** float(Fraction(p)) / scale
    return len(x), int((apart > far + 2.0**-6 / scale).sum())


@pytest.mark.parametrize(("p", "scale"), [("1/3", 2.0), slow("1/2", 1.0), slow("1", 1.5)])
def test_off_the_grid_values_are_told_apart_as_seldom_as_the_law_says(
    p: str, scale: float, cases_tried: Callable[[int], None]
) -> None:
    tried, broken = told_apart_too_often(p, scale, 1.0)
    cases_tried(tried)
    assert broken == 0
    assert told_apart_too_often(p, scale, 0.7)[1] > 0
