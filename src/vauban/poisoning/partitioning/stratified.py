"""Orders samples so that neighbours in the order are alike; parts dealt from it in turn have some of every kind."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TURNS = 30  # power iterations that turn a direction towards that of the largest variance
_ROWS = 4096  # samples that are computed at once, and of which a direction is computed

Rows = NDArray[np.int64]


def stratified_order(x: NDArray[Any], block: int) -> Rows:
    """The rows of `x` [n, ...] in an order in which each run of `block` samples is alike; inside a run as they come.

    All rows are halved at a multiple of `block`, by their coordinate along a direction of large variance, and so are the halves.
    What is infinite or NaN counts as 0. The order inside a run is that of `x`, so that it says nothing of the samples.

    >>> stratified_order(np.array([[0.0], [9.0], [1.0], [8.0]]), 2).tolist()
    [0, 2, 1, 3]
    """
    runs = list(_runs(x.reshape(len(x), math.prod(x.shape[1:])), np.arange(len(x)), block))
    return np.concatenate(runs, dtype=np.int64)


def _runs(flat: NDArray[Any], rows: Rows, block: int) -> Iterator[Rows]:
    """Runs of alike rows, each in increasing order."""
    half = -(-len(rows) // block) // 2 * block
    if half == 0:
        yield rows
        return
    ordered = rows[np.argsort(_coordinates(flat, rows), kind="stable")]
    for side in (ordered[:half], ordered[half:]):
        yield from _runs(flat, np.sort(side), block)


def _coordinates(flat: NDArray[Any], rows: Rows) -> NDArray[np.float64]:
    """Coordinates [rows] along a direction of large variance, computed from some of the rows by power iteration."""
    some = _finite(flat[rows[:: -(-len(rows) // _ROWS)]])
    scale = np.abs(some).max() or 1.0
    some = some / scale
    some -= some.mean(axis=0)
    direction = some.std(axis=0)
    for _ in range(_TURNS):
        direction = direction / (np.abs(direction).max() or 1.0)
        direction = (some @ direction) @ some
    direction = direction / (np.abs(direction).max() or 1.0) / scale
    parts = [_finite(flat[rows[start : start + _ROWS]]) @ direction for start in range(0, len(rows), _ROWS)]
    return np.concatenate(parts)


def _finite(part: NDArray[Any]) -> NDArray[np.float64]:
    return np.nan_to_num(part.astype(np.float64), copy=False, nan=0.0, posinf=0.0, neginf=0.0)
