"""How many answers one poisoning can change in all: a bound for many inputs at once, proven in integers.

Certificates one by one allow the attacker another poisoning for each input. Here one set B of b buckets is changed, and all
inputs are asked afterwards. Rival j is ahead of the label of input x only if the buckets in B give it its lead d_j(x): the sum
over i in B of W_i(x, j) is at least d_j(x), with W and d as in `laws.poisoning.finite` (without shared buckets W is 2, 1 or 0).
If the label leaves the top k, some rival j of R(x) is ahead: all that b buckets could put ahead, but for the k - 1 nearest.
With the scores

    a_i(x) = max over j in R(x) of b W_i(x, j) - d_j(x)

the sum of a_i(x) over B is then at least 0. It is never below low(x), the sum of the b smallest scores of x. So for every weight
0 <= v_x <= 1 / -low(x), whether x changes or not,

    [x changes] <= 1 + v_x * (sum over i in B of a_i(x))

and all m inputs together change at most m + (sum of the b largest of c_i) times, c_i = sum over x of v_x a_i(x). Weights of 0 are
the count one by one. Any weights prove a bound: `best_weights` looks for good ones in floating point, `weighed` evaluates them in
integers. docs/poisoning.md has the derivation at length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.errors import BadInput
from vauban.laws.exact import Ints, leads
from vauban.laws.poisoning.finite import check_spread, chunks, votes_by_bucket
from vauban.laws.poisoning.partition import checked, tally

_ROOM = 2**62  # sums of weighted scores stay below it
_FINEST = 2**45  # weights are multiples of 1 over this, or over less where sums would not fit
_STEPS = 400


@dataclass(frozen=True, eq=False)
class Scores:
    """What one poisoning of `budget` buckets needs: the scores a_i(x) [m, buckets] of the m inputs of numbers `rows`, whose sums
    may or may not reach 0, and the number of `certain` inputs, which any `budget` buckets might change."""

    table: NDArray[np.int64]
    rows: Ints
    certain: int
    budget: int

    @property
    def low(self) -> Ints:
        """The least sum of scores [m] of any `budget` buckets; below 0."""
        return np.partition(self.table, self.budget - 1, axis=1)[:, : self.budget].sum(axis=1)


def collective_scores(
    votes: ArrayLike, num_classes: int, spread: int, label: ArrayLike, budget: int, k: int = 1
) -> Scores:
    """Scores of the inputs that `budget` changed buckets could take out of the top k; `votes` [m, models], `label` [m]."""
    ballots = np.asarray(votes)
    counts, labels = checked(tally(ballots, num_classes), label, k)
    models = ballots.shape[1]
    check_spread(models, spread)
    if budget < 1:
        raise BadInput(f"budget={budget}: a poisoning of one sample or more is needed")
    budget = min(budget, models)
    tables, rows, certain = [], [], 0
    for some in chunks(len(ballots), models * num_classes):
        table, open_ = _chunk_scores(ballots[some], counts[some], labels[some], num_classes, spread, budget, k)
        least = np.partition(table, budget - 1, axis=1)[:, :budget].sum(axis=1)
        certain += int((least >= 0).sum())
        tables.append(table[least < 0])
        rows.append(open_[least < 0] + some.start)
    return Scores(np.concatenate(tables), np.concatenate(rows), certain, budget)


def _chunk_scores(
    ballots: NDArray[np.integer], counts: Ints, labels: Ints, num_classes: int, spread: int, budget: int, k: int
) -> tuple[Ints, Ints]:
    """Scores [some, buckets] and the rows they are of: those with a rival that `budget` buckets could put ahead."""
    by_bucket = votes_by_bucket(ballots, num_classes, spread)
    own, lead = by_bucket[np.arange(len(labels)), labels], leads(counts, labels)
    nearest = np.argsort(lead, axis=1, kind="stable")[:, : k - 1]
    table = np.full(own.shape, np.iinfo(np.int64).min)
    for j in range(num_classes):
        given = spread + own - by_bucket[:, j]
        most = np.partition(given, -budget, axis=1)[:, -budget:].sum(axis=1)
        reached = (most >= lead[:, j]) & (j != labels) & (nearest != j).all(axis=1)
        table[reached] = np.maximum(table[reached], budget * given[reached] - lead[reached, j][:, None])
    open_ = np.flatnonzero(table[:, 0] > np.iinfo(np.int64).min)
    return table[open_], open_


def weighed(scores: Scores, shares: NDArray[np.float64]) -> int:
    """The most inputs that one poisoning changes, as the weights v_x = shares / -low(x) prove it; `shares` [m] in 0..1.

    Weights are rounded down to multiples of 1 / scale, and everything after that is exact.
    """
    inputs, low = len(scores.table), scores.low
    if not inputs:
        return scores.certain
    largest = np.abs(scores.table).max(axis=1)
    scale = _FINEST
    while True:
        whole = np.floor(np.clip(shares, 0, 1) * scale / -low).astype(np.int64)
        whole = np.minimum(whole, scale // -low)
        if sum(int(w) * int(s) for w, s in zip(whole, largest, strict=True)) * scores.budget < _ROOM:
            break
        scale //= 2
    totals = whole @ scores.table
    changed = int(np.partition(totals, -scores.budget)[-scores.budget :].sum())
    return scores.certain + max(0, min(inputs, (inputs * scale + changed) // scale))


def best_weights(scores: Scores, steps: int = _STEPS) -> NDArray[np.float64]:
    """Shares [m] of the largest weights for which `weighed` is small, by projected subgradient steps; floating point is enough,
    since whatever comes out is evaluated in integers."""
    table = (scores.table / -scores.low[:, None]).astype(np.float32)
    inputs, buckets = table.shape
    shares = np.full(inputs, 0.5, dtype=np.float32)
    best, least, reach = shares.copy(), np.inf, 0.3
    since = 0
    for _ in range(steps):
        totals = shares @ table
        chosen = np.zeros(buckets, dtype=np.float32)
        chosen[np.argpartition(totals, buckets - scores.budget)[buckets - scores.budget :]] = 1
        value = float(totals @ chosen)
        if value < least - 1e-6 * inputs:
            best, least, since = shares.copy(), value, 0
        else:
            since += 1
            if since > 10:
                shares, reach, since = best.copy(), reach / 2, 0
                continue
        slope = table @ chosen
        slope[(shares <= 0) & (slope > 0) | (shares >= 1) & (slope < 0)] = 0
        steepest = float(np.linalg.norm(slope))
        if steepest == 0 or reach < 1e-4:
            break
        shares = np.clip(shares - slope * (reach * np.sqrt(inputs) / steepest), 0, 1)
    return best.astype(np.float64)
