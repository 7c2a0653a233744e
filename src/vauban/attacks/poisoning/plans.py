"""Which buckets of a training set an attacker touches, from the votes of base classifiers alone. Integers only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vauban.laws.exact import Ints
from vauban.poisoning.partitioning.partition import Partition


def needed_gain(counts: Ints, label: int) -> tuple[int, int]:
    """The rival that needs the least to be ahead of the label, and how much it must gain on it: n_l - n_j + [j > l].

    >>> needed_gain(np.array([40, 35, 35]), 0)
    (1, 6)
    """
    classes = np.arange(len(counts))
    need = counts[label] - counts + (classes > label)
    need[label] = np.iinfo(np.int64).max
    rival = int(need.argmin())
    return rival, int(need[rival])


def bucket_gains(ballots: NDArray[np.integer], label: int, rival: int, partition: Partition) -> Ints:
    """The most that the rival can gain on the label by a change of each bucket [models], by the votes [models]: every base
    classifier trained on it gives 2 if it voted for the label, 0 if it voted for the rival, else 1."""
    gain = 1 + (ballots == label).astype(np.int64) - (ballots == rival)
    total = np.zeros(partition.models, dtype=np.int64)
    for model in range(partition.models):
        total[partition.buckets_of(model)] += gain[model]
    return total


def cheapest_buckets(options: Sequence[Sequence[tuple[int, int]]], need: int) -> list[tuple[int, int]] | None:
    """Choose at most one option (gain, cost) of each bucket, so that gains add up to `need` at the least cost.

    Returns pairs (bucket, option), or None if all gains together are too small. Exact, by dynamic programming over the gain.

    >>> cheapest_buckets([[(1, 1), (2, 4)], [(2, 1)], [(2, 3)]], 3)
    [(0, 0), (1, 0)]
    """
    never = np.iinfo(np.int64).max // 2
    least = np.full(need + 1, never)
    least[0] = 0
    taken = []
    for bucket in options:
        choice, before = np.full(need + 1, -1), least.copy()
        for i, (gain, cost) in enumerate(bucket):
            reached = np.minimum(np.arange(need + 1) + gain, need)
            for start in np.flatnonzero(before < never):
                if before[start] + cost < least[reached[start]]:
                    least[reached[start]], choice[reached[start]] = before[start] + cost, i
        taken.append((choice, before))
    if least[need] >= never:
        return None
    return _traced(options, taken, need)


def _traced(
    options: Sequence[Sequence[tuple[int, int]]], taken: list[tuple[Ints, Ints]], need: int
) -> list[tuple[int, int]]:
    """The choices that lead to the least cost, from the last bucket to the first."""
    chosen, level = [], need
    for bucket in reversed(range(len(options))):
        choice, before = taken[bucket]
        i = int(choice[level])
        if i < 0:
            continue
        chosen.append((bucket, i))
        gain = options[bucket][i][0]
        starts = [level - gain] if level < need else list(range(max(0, need - gain), need + 1))
        level = min((s for s in starts if s >= 0), key=lambda s: int(before[s]))
    return chosen[::-1]
