"""Slow references: the least number of changes that turns an election, by trying every election there is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Order = tuple[int, ...]


def ranking(counts: Sequence[int]) -> list[int]:
    """Classes from the first to the last: more votes first, then the smaller class."""
    return sorted(range(len(counts)), key=lambda c: (-counts[c], c))


def run_off(orders: Sequence[Order], classes: int) -> int:
    """The answer of two rounds, as a person would count them: every model's order of preference is given."""
    first, second = ranking([sum(order[0] == c for order in orders) for c in range(classes)])[:2]
    for_first = sum(order.index(first) < order.index(second) for order in orders)
    for_second = len(orders) - for_first
    return min((-for_first, first), (-for_second, second))[1]


def preference_counts(orders: Sequence[Order], classes: int) -> tuple[list[int], list[list[int]]]:
    """Votes per class, and how many models prefer each class to each other one."""
    counts = [sum(order[0] == c for order in orders) for c in range(classes)]
    duels = [
        [sum(order.index(a) < order.index(b) for order in orders) if a != b else 0 for b in range(classes)]
        for a in range(classes)
    ]
    return counts, duels


def all_ballots(models: int, classes: int) -> NDArray[np.int64]:
    """Every way the models can vote [classes^models, models]."""
    return np.array(list(itertools.product(range(classes), repeat=models)))


def changed_masks(one: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which models differ between one election [models] and others [n, models], as bits."""
    return ((others != one) * (1 << np.arange(len(one)))).sum(axis=1)


@lru_cache
def least_buckets(trained_on: tuple[tuple[int, ...], ...]) -> NDArray[np.int64]:
    """For every set of models (as bits), the least number of buckets whose change can change them all.

    `trained_on[model]` are the buckets that a model is trained on; a changed bucket may change every model trained on it.
    """
    models = len(trained_on)
    buckets = sorted({b for owned in trained_on for b in owned})
    reach = {b: sum(1 << i for i, owned in enumerate(trained_on) if b in owned) for b in buckets}
    least = np.full(1 << models, models + 1)
    for size in range(len(buckets), -1, -1):
        for chosen in itertools.combinations(buckets, size):
            covered = 0
            for b in chosen:
                covered |= reach[b]
            least[covered] = size
    for bits in range((1 << models) - 1, -1, -1):  # whatever covers more covers less
        for model in range(models):
            least[bits] = min(least[bits], least[bits | 1 << model])
    return least


def distance(
    one: NDArray[np.int64],
    everything: NDArray[np.int64],
    lost: NDArray[np.bool_],
    trained_on: tuple[tuple[int, ...], ...],
) -> int:
    """The least number of changed buckets that leads from `one` to an election in `everything` where the label is lost."""
    if not lost.any():
        return len(one) + 1
    return int(least_buckets(trained_on)[changed_masks(one, everything[lost])].min())


def in_top(label: int, k: int) -> Callable[[Sequence[int]], bool]:
    """Whether a label is among the k first."""
    return lambda counts: label in ranking(counts)[:k]
