"""Exact certificates for each position of a patch: untouched votes stay, touched ones may become anything."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vauban.laws.exact import Ballots, Ints
from vauban.laws.patches.regions import Regions

MAX_VIEWS = 10**6  # below 2^24, so that float32 counts them exactly, in any order
_CHUNK = 2**22  # numbers in memory at a time: 16 MB of float32

Counts = NDArray[np.float32]


def stays(untouched: Counts, touched: Counts, labels: Ints, k: int, sets: bool) -> NDArray[np.bool_]:
    """Whether each label [m] stays in the top k at each patch position [p], whatever touched views vote: [m, p].

    `untouched` [m, p, classes]: votes of views a patch there does not touch; `touched` [p]: how many views it touches. Ties
    go to the smaller index, so a rival j needs max(0, n_l + [j > l] - n_j) touched votes to get ahead. In the worst case no
    touched view votes for the label. If each view casts one vote, the label stays iff the k rivals that need least together need
    more than `touched` votes. If a view votes for a set (`sets`), its vote may go to all rivals at once: the label stays iff the
    k-th smallest need exceeds `touched`.
    """
    rows, classes = np.arange(len(labels)), untouched.shape[2]
    later = (np.arange(classes) > labels[:, None]).astype(np.float32)
    need = np.maximum(untouched[rows, :, labels][:, :, None] + later[:, None, :] - untouched, 0)
    need[rows, :, labels] = np.inf
    if k == 1:
        return need.min(axis=2) > touched
    least = np.partition(need, k - 1, axis=2)[:, :, :k]
    return (least[:, :, k - 1] if sets else least.sum(axis=2, dtype=np.float64)) > touched


def stands(
    ballots: Ballots, labels: Ints, k: int, regions: Regions, count: int, patch: tuple[int, int]
) -> NDArray[np.bool_]:
    """Whether each label [m] stays in the top k for every position of a patch of this height and width in the picture.

    Views keep `count` of the regions; their order is that of `chosen`. Exact: False only if, for some position, some
    votes of the views touched there push the label out.
    """
    classes, size = ballots.num_classes, ballots.votes.shape[1]
    stand = np.ones(len(ballots), dtype=bool)
    step = max(1, _CHUNK // (size * classes))
    for first in range(0, len(ballots), step):
        rows = slice(first, first + step)
        votes = ballots.votes[rows] if ballots.sets else ballots.votes[rows, :, None] == np.arange(classes)
        for untouched, touched in _untouched(votes.astype(np.float32), regions, count, patch):
            stand[rows] &= stays(untouched, touched, labels[rows], k, ballots.sets).all(axis=1)
    return stand


def _untouched(votes: Counts, regions: Regions, count: int, patch: tuple[int, int]) -> Iterator[tuple[Counts, Counts]]:
    """Untouched votes [m, p, classes] and numbers of touched views [p] from votes [m, views, classes], in chunks of positions p.

    With one region per view, touched votes are summed along one axis and then the other.
    """
    (m, views, classes), (down, right) = votes.shape, _worst_positions(regions, patch)
    if count > 1:
        touched = (down[:, None, :, None] & right[None, :, None, :]).reshape(len(down) * len(right), -1)
        step = max(1, _CHUNK // max(views, m * classes))
        for first in range(0, len(touched), step):
            untouched = (~touched_views(touched[first : first + step], count)).astype(np.float32)
            yield untouched @ votes, views - untouched.sum(axis=1)
        return
    by_top, by_left = down.astype(np.float32), right.astype(np.float32)
    by_region = votes.reshape(m, by_top.shape[1], -1)
    total = votes.sum(axis=1)[:, None, :]
    step = max(1, _CHUNK // (m * max(by_left.shape) * classes))
    for first in range(0, len(by_top), step):
        chunk = by_top[first : first + step]
        by_column = (chunk @ by_region).reshape(m, len(chunk), by_left.shape[1], classes)
        lost = (by_left @ by_column).reshape(m, -1, classes)
        yield total - lost, np.multiply.outer(chunk.sum(axis=1), by_left.sum(axis=1)).ravel()


@lru_cache(maxsize=256)
def _worst_positions(regions: Regions, patch: tuple[int, int]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which tops and lefts a patch touches, [p, tops] and [q, lefts], at positions whose touched set is in no larger one."""
    return tuple(maximal(touched) for touched in regions.touched_by_axis(patch))  # type: ignore[return-value]


def maximal(sets: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The distinct rows of `sets` [n, items] that are in no other row: a patch that touches more views can change more votes."""
    distinct = np.unique(sets, axis=0)
    missing = distinct.astype(np.int64) @ (~distinct).astype(np.int64).T  # items of row i that row j lacks
    subset = missing == 0
    return distinct[subset.sum(axis=1) == 1]


@lru_cache(maxsize=8)
def chosen(regions: int, count: int) -> NDArray[np.int32]:
    """Which `count` of the regions each view keeps [views, count], in lexicographic order.

    >>> chosen(3, 2).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    flat = itertools.chain.from_iterable(itertools.combinations(range(regions), count))
    return np.fromiter(flat, dtype=np.int32, count=math.comb(regions, count) * count).reshape(-1, count)


def touched_views(touched: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
    """Which views [p, views] keep one of the touched regions [p, regions]."""
    if count == 1:
        return touched
    views = np.zeros((len(touched), math.comb(touched.shape[1], count)), dtype=bool)
    for kept in chosen(touched.shape[1], count).T:
        views |= touched[:, kept]
    return views
