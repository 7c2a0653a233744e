"""The slow reference for one poisoning against many inputs: every set of buckets, every vote of the models trained on them."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
from numpy.typing import NDArray

from vauban.laws.poisoning.finite import spread_offsets


@cache
def _assignments(models: int, classes: int) -> NDArray[np.int64]:
    """All votes [classes ** models, models]."""
    return np.array(list(itertools.product(range(classes), repeat=models)), dtype=np.int64)


def in_top(votes: NDArray[np.integer], label: int, k: int, classes: int) -> NDArray[np.bool_]:
    """Whether the label is in the top k of each election [n, models]: classes sorted by votes, ties to the smaller index."""
    counts = (votes[:, :, None] == np.arange(classes)).sum(axis=1)
    order = np.argsort(-counts, axis=1, kind="stable")[:, :k]
    return (order == label).any(axis=1)


def most_changed(votes: NDArray[np.integer], classes: int, spread: int, labels: list[int], budget: int, k: int) -> int:
    """The most labels that leave the top k after one change of at most `budget` buckets; `votes` [inputs, models]."""
    models = votes.shape[1]
    trained_on = [{int(b) for b in (i + spread_offsets(models, spread)) % models} for i in range(models)]
    most = 0
    for buckets in itertools.combinations(range(models), min(budget, models)):
        changed = [i for i in range(models) if trained_on[i] & set(buckets)]
        free = _assignments(len(changed), classes)
        broken = 0
        for own, label in zip(votes, labels, strict=True):
            election = np.repeat(own[None], len(free), axis=0)
            election[:, changed] = free
            broken += not in_top(election, label, k, classes).all()
        most = max(most, broken)
    return most


def world(random: np.random.Generator, spread: int) -> tuple[NDArray[np.int64], int, int, int]:
    """Votes [inputs, models], the number of classes, k and a budget.

    Every second world has a few dissenting models an input and a budget that only just suffices where none of them is chosen.
    """
    classes = int(random.integers(2, 4))
    near = bool(random.integers(2))
    models = (
        int(random.integers(5, 8) if near else random.integers(3, 7)) if spread == 1 else 2 * int(random.integers(2, 4))
    )
    inputs, k = int(random.integers(4, 12) if near else random.integers(2, 8)), int(random.integers(1, classes))
    label = random.integers(classes, size=(inputs, 1))
    if near:
        rank = random.random((inputs, models)).argsort(axis=1)
        loyal = rank >= random.integers(1, max(2, models // 2), size=(inputs, 1))
    else:
        loyal = random.random((inputs, models)) < random.uniform(0.3, 0.95)
    votes = np.where(loyal, label, random.integers(classes, size=(inputs, models)))
    if spread == 2:
        return votes, classes, k, int(random.integers(1, 3))
    return votes, classes, k, max(1, models // 2 - int(random.integers(2))) if near else int(random.integers(1, 4))
