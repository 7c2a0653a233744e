"""All tallies of a small poll with their exact probabilities, and large samples of tallies of a bigger one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy
from scipy.stats import binom

Counts = NDArray[np.int64]


def all_tallies(n: int, classes: int) -> Counts:
    """Every way to split n votes over the classes [number of ways, classes]."""
    bars = np.array(list(combinations(range(n + classes - 1), classes - 1))).reshape(-1, classes - 1)
    edges = np.concatenate([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), n + classes - 1)], axis=1)
    return np.diff(edges, axis=1) - 1


def chance(counts: Counts, p: Sequence[float]) -> NDArray[np.float64]:
    """The multinomial probability of each tally [m]."""
    n = counts.sum(axis=1)
    return np.exp(gammaln(n + 1) - gammaln(counts + 1).sum(axis=1) + xlogy(counts, np.array(p)).sum(axis=1))


def too_often(failures: int, trials: int, allowed: float) -> bool:
    """Whether so many failures would come up less than once in a million where each has the allowed probability."""
    return bool(binom.sf(failures - 1, trials, allowed) < 1e-6)


def notices_twice(trials: int, allowed: float) -> bool:
    """Whether `too_often` finds twice the allowed rate out, but for one time in a thousand."""
    least = next(f for f in range(trials + 1) if too_often(f, trials, allowed))
    return bool(binom.sf(least - 1, trials, 2 * allowed) > 0.999)
