"""Certificates of Finite Aggregation: base classifiers that share buckets of the training set. Integers only. [Wang2022]

There are partitions * spread buckets and as many base classifiers, each trained on `spread` buckets; so one changed sample
changes one bucket and at most the `spread` base classifiers trained on it. Counts are not enough: every model's vote is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.errors import BadInput
from vauban.laws.exact import Ints, leads
from vauban.laws.poisoning.partition import checked, checked_runoff, finalists, histogram, rivals, tally

_CHUNK = 1 << 24  # numbers in memory at a time


def finite_radius(
    votes: ArrayLike, num_classes: int, spread: int, label: ArrayLike | None = None, k: int = 1, altered: int = 0
) -> Ints:
    """Radius [m] within which `label` (None: the prediction) stays in the top k; `votes` [m, models]. [Wang2022]

    To be ahead of l, rival j must gain d_j = n_l - n_j + [j > l] on it. A changed model gives it at most 2 if it voted l, 0 if it
    voted j, else 1; a changed bucket at most W_b, the sum over the models trained on it; T buckets at most the sum of the T
    largest W_b (a model in two of them is counted twice, which is safe). So j stays behind while that sum is below d_j, and k
    rivals are not all ahead while T is at most the k-th smallest of their radii (for k = 2 `_top_two_radius` is sharper).
    As W_b <= 2 spread, no radius is below floor((d_j - 1) / (2 spread)).

    `altered`: the radii hold also if this many of the models vote otherwise than `votes` says. Each gives a rival at most 2 (two
    rivals together at most 3) beyond what the changed buckets give by the other models, so d_j is smaller by 2 `altered`.
    """
    ballots = np.asarray(votes)
    counts, labels = checked(tally(ballots, num_classes), label, k)
    check_spread(ballots.shape[1], spread)
    radii = np.empty(len(counts), dtype=np.int64)
    for rows in chunks(len(ballots), ballots.shape[1] * num_classes):
        bucket_votes = votes_by_bucket(ballots[rows], num_classes, spread)
        rival_radii = _rival_radii(bucket_votes, counts[rows], labels[rows], spread, altered)
        if k == 2:
            radii[rows] = _top_two_radius(bucket_votes, counts[rows], labels[rows], spread, rival_radii, altered)
        else:
            radii[rows] = np.sort(rivals(rival_radii, labels[rows]), axis=1)[:, k - 1]
    return radii


def finite_runoff_radius(
    votes: ArrayLike, num_classes: int, spread: int, winner: ArrayLike, prefers: NDArray[np.uint8], altered: int = 0
) -> Ints:
    """Radius [m] of Run-Off Election over Finite Aggregation: as `partition.runoff_radius`, with buckets instead of models.

    `prefers` [m, c, ceil(models / 8)]: `numpy.packbits` of whether each model prefers the winner p to class c. (a) p is no
    finalist: the top-2 case of `finite_radius`. (b) p and c are the finalists and c wins: for each c the larger of two radii,
    that of their duel, where a changed model takes at most 2 from p's margin if it prefers p, else 0; and that within which the
    other finalist stays ahead of c. `altered`: as in `finite_radius`, of both rounds.
    """
    ballots = np.asarray(votes)
    models = ballots.shape[-1]
    counts = tally(ballots, num_classes)
    check_spread(models, spread)
    beats = _beats(ballots, np.asarray(winner), np.asarray(prefers), num_classes)
    counts, p, beats = checked_runoff(counts, winner, beats)
    first, second = finalists(counts)
    other = np.where(first == p, second, first)
    radii = np.full(len(counts), models, dtype=np.int64)
    for rows in chunks(len(ballots), models * num_classes):
        bucket_votes, mine, theirs = votes_by_bucket(ballots[rows], num_classes, spread), p[rows], other[rows]
        row = np.arange(len(mine))
        if num_classes > 2:
            rival_radii = _rival_radii(bucket_votes, counts[rows], mine, spread, altered)
            radii[rows] = _top_two_radius(bucket_votes, counts[rows], mine, spread, rival_radii, altered)
        for c in range(num_classes):
            bits = np.unpackbits(prefers[rows, c], axis=1, count=models)
            margin = 2 * beats[rows, c] - models - (c < mine) - 2 * altered
            keeps_duel = _largest_that_fit(2 * _sum_by_bucket(bits, spread), margin, 2 * spread)
            gap = np.where(c == theirs, 0, counts[rows][row, theirs] - counts[rows, c] + (theirs < c)) - 2 * altered
            keeps_out = _largest_that_fit(spread + bucket_votes[row, theirs] - bucket_votes[:, c], gap - 1, 2 * spread)
            safe = np.maximum(keeps_duel, keeps_out)
            radii[rows] = np.where(c == mine, radii[rows], np.minimum(radii[rows], safe))
    return radii


@lru_cache
def spread_offsets(models: int, spread: int) -> Ints:
    """Fixed distinct offsets r [spread]: model i is trained on the buckets i + r (modulo models); the first is 0.

    >>> spread_offsets(1200, 1).tolist()
    [0]
    """
    check_spread(models, spread)
    draw = np.random.Philox(key=0x76617562616E)
    chosen = [0]
    while len(chosen) < spread:
        offset = int(draw.random_raw()) % models
        if offset not in chosen:
            chosen.append(offset)
    offsets = np.array(chosen, dtype=np.int64)
    offsets.flags.writeable = False
    return offsets


def check_spread(models: int, spread: int) -> None:
    """Refuse a spread that does not divide this number of models."""
    if spread < 1 or models % spread:
        raise BadInput(
            f"spread={spread} for {models} models: Finite Aggregation has partitions * spread models; take a divisor"
        )


def _beats(ballots: NDArray[np.integer], winner: Ints, prefers: NDArray[np.uint8], num_classes: int) -> Ints:
    """How many models [m, c] prefer the winner to each class; refuses bits that contradict a model's first-round vote."""
    m, models = ballots.shape
    if prefers.dtype != np.uint8 or prefers.shape != (m, num_classes, -(-models // 8)) or winner.shape != (m,):
        raise BadInput(
            f"second-round votes of shape {prefers.shape}, {prefers.dtype}: packed bits, uint8 [{m}, {num_classes}, "
            f"{-(-models // 8)}], are needed for {models} models"
        )
    beats = np.zeros((m, num_classes), dtype=np.int64)
    for rows in chunks(m, models):
        voted_winner = ballots[rows] == winner[rows, None]
        for c in range(num_classes):
            all_bits = np.unpackbits(prefers[rows, c], axis=1)
            bits = all_bits[:, :models].astype(bool)
            contradiction = (bits & (ballots[rows] == c)) | (~bits & voted_winner & (winner[rows, None] != c))
            if contradiction.any() or all_bits[:, models:].any() or bits[winner[rows] == c].any():
                raise BadInput("second-round votes do not fit the first round: a model prefers what it voted for")
            beats[rows, c] = bits.sum(axis=1)
    return beats


def _sum_by_bucket(values: NDArray[np.uint8], spread: int) -> Ints:
    """For every bucket [..., models], the sum of `values` [..., models] over the models trained on it."""
    models = values.shape[-1]
    total = np.zeros(values.shape, dtype=np.uint8 if spread < 256 else np.uint32)
    for offset in spread_offsets(models, spread):
        total[..., offset:] += values[..., : models - offset]
        total[..., :offset] += values[..., models - offset :]
    return total.astype(np.int64)


def votes_by_bucket(ballots: NDArray[np.integer], num_classes: int, spread: int) -> Ints:
    """How many of the models trained on each bucket vote for each class [m, classes, buckets]."""
    return _sum_by_bucket(np.stack([(ballots == c).astype(np.uint8) for c in range(num_classes)], axis=1), spread)


def _rival_radii(bucket_votes: Ints, counts: Ints, label: Ints, spread: int, altered: int) -> Ints:
    """For every rival [m, c], how many buckets may change while the rival stays behind `label`."""
    own, lead = bucket_votes[np.arange(len(label)), label], leads(counts, label) - 2 * altered
    return np.stack(
        [
            _largest_that_fit(spread + own - bucket_votes[:, j], lead[:, j] - 1, 2 * spread)
            for j in range(counts.shape[1])
        ],
        axis=1,
    )


def _top_two_radius(
    bucket_votes: Ints, counts: Ints, label: Ints, spread: int, rival_radii: Ints, altered: int
) -> Ints:
    """How many buckets [m] may change while `label` stays in the top two: no rivals i and j are both ahead of it.

    While one of them stays behind, they are not both ahead, so the larger of their radii holds. And together they must gain
    d_i + d_j: a changed model gives them at most 3 if it voted for the label, 0 if it voted i or j, else 1.
    """
    lead = leads(counts, label)
    radii = np.full(len(label), bucket_votes.shape[-1], dtype=np.int64)
    for i in range(counts.shape[1]):
        for j in range(i):
            one = np.maximum(rival_radii[:, i], rival_radii[:, j])
            open_ = np.flatnonzero((i != label) & (j != label) & (one < radii))
            if len(open_):
                given = spread + 2 * bucket_votes[open_, label[open_]] - bucket_votes[open_, i] - bucket_votes[open_, j]
                together = lead[open_, i] + lead[open_, j] - 1 - 3 * altered
                both = _largest_that_fit(given, together, 3 * spread)
                radii[open_] = np.minimum(radii[open_], np.maximum(one[open_], both))
    return radii


def _largest_that_fit(weights: Ints, budget: Ints, most: int) -> Ints:
    """How many of the largest `weights` [m, n], each 0..most, add up to at most `budget` [m]; -1 where the budget is negative."""
    bins = histogram(weights, most + 1)
    left, taken, all_fit = budget.copy(), np.zeros(len(budget), dtype=np.int64), budget >= 0
    for weight in range(most, -1, -1):
        room = bins[:, weight] if weight == 0 else np.minimum(bins[:, weight], left // weight)
        fit = np.where(all_fit, room, 0)
        taken += fit
        left -= fit * weight
        all_fit &= fit == bins[:, weight]
    return np.where(budget < 0, -1, taken)


def chunks(rows: int, row_size: int) -> Iterator[slice]:
    """Slices of `rows` rows, each of so few that their numbers fit into memory at a time."""
    step = max(1, _CHUNK // row_size)
    return (slice(i, i + step) for i in range(0, rows, step))
