"""Small worlds in which every input, every view and every attack can be looked at."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import torch

from vauban.laws.exact import Ballots, ExactLaw
from vauban.smoothing import Smoothing


@dataclass(frozen=True)
class World:
    """Every input on a grid, and the number of each of its views: two views have one number if they are bit for bit the same."""

    law: ExactLaw
    inputs: np.ndarray  # [m, ...shape]
    views: np.ndarray  # [m, views]

    @property
    def steps(self) -> np.ndarray:
        """How far apart inputs are in every coordinate, in steps [m, m, d]."""
        flat = self.inputs.reshape(len(self.inputs), -1).astype(int)
        return np.abs(flat[:, None] - flat[None])

    @property
    def changed(self) -> np.ndarray:
        """In how many of their views two inputs differ [m, m]."""
        return (self.views[:, None] != self.views[None]).sum(axis=2)


def world(smoothing: Smoothing, shape: tuple[int, ...], values: list[int] | None = None) -> World:
    """All inputs of this shape, made into views by the smoothing's own code."""
    law = smoothing.law.for_shape(shape)
    assert isinstance(law, ExactLaw)
    values = list(range(law.levels + 1)) if values is None else values
    inputs = np.array(list(product(values, repeat=int(np.prod(shape)))), dtype=np.uint8).reshape(-1, *shape)
    words = torch.arange(law.views)[:, None]
    made = [smoothing.views(torch.from_numpy(x)[None], words, law.levels).flatten(1).numpy() for x in inputs]
    _, numbers = np.unique(np.concatenate(made).view(np.int32), axis=0, return_inverse=True)
    return World(law, inputs, numbers.reshape(len(inputs), law.views))


def attacked(there: World, inside: np.ndarray, votes: np.ndarray, classes: int, k: int) -> tuple[int, int]:
    """Attacks on the claims about the base classifier `votes` [number of views], and those that succeed.

    `inside(radius)` [m, m] says which inputs lie within each input's radius. Every class is claimed wherever it is in the top k.
    """
    ballots = Ballots(votes[there.views], classes)
    order = np.argsort(-ballots.counts, axis=1, kind="stable")
    ranks = np.argsort(order, axis=1)
    tried = broken = 0
    for label in range(classes):
        radii = there.law.radius(ballots, np.full(len(ballots), label), k)
        assert (np.isnan(radii) == (ranks[:, label] >= k)).all()
        reached = inside <= np.nan_to_num(radii, nan=-1.0)[:, None]
        tried += int(reached.sum())
        broken += int((reached & (ranks[None, :, label] >= k)).sum())
    return tried, broken


def worst_votes(there: World, i: int, j: int, label: int, rng: np.random.Generator, classes: int) -> np.ndarray:
    """A base classifier that likes `label` on views of input i and something else on every view only input j has."""
    votes = rng.integers(0, classes, there.views.max() + 1)
    mine = np.unique(there.views[i])
    liked = rng.random() < 0.5
    votes[mine[rng.random(len(mine)) < rng.uniform(0.4, 1)]] = label
    rival = int((label + 1 + rng.integers(classes - 1)) % classes)
    foreign = np.setdiff1d(there.views[j], there.views[i])
    votes[foreign] = rival if liked else rng.integers(0, classes, len(foreign))
    return votes
