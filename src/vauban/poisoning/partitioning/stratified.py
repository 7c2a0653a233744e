"""Orders samples so that neighbours in the order are alike; parts dealt from it in turn have some of every kind.

The order decides which base classifier learns from which sample, so it must be the same on every processor: all sums are of whole
numbers below 2^53, which floating point adds without rounding, in whatever order a processor adds them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TURNS = 30  # power iterations that turn a direction towards that of the largest variance
_ROWS = 4096  # samples that are computed at once, and of which a direction is computed
_LARGEST = 4096.0  # of the whole numbers that samples are rounded to
_STEPS = 255.0  # whole numbers up to less are multiplied, so that their mean can be told from its neighbours
_FINE = 1024.0  # of the whole numbers that directions and coordinates are rounded to, between two multiplications

Rows = NDArray[np.int64]


def stratified_order(x: NDArray[Any], block: int) -> Rows:
    """The rows of `x` [n, ...] in an order in which each run of `block` samples is alike; inside a run as they come.

    All rows are halved at a multiple of `block`, by their coordinate along a direction of large variance, and so are the halves.
    Samples are rounded to 4096 steps from 0 to the largest magnitude of all, unless they are whole numbers already; what is
    infinite or NaN counts as 0. The order inside a run is that of `x`, so that it says nothing of the samples.

    >>> stratified_order(np.array([[0.0], [9.0], [1.0], [8.0]]), 2).tolist()
    [0, 2, 1, 3]
    """
    flat = x.reshape(len(x), math.prod(x.shape[1:]))
    largest = max((np.abs(_finite(part)).max(initial=0.0) for part in _blocks(flat)), default=0.0)
    runs = list(_runs(flat, largest, np.arange(len(x)), block))
    return np.concatenate(runs, dtype=np.int64)


def _runs(flat: NDArray[Any], largest: float, rows: Rows, block: int) -> Iterator[Rows]:
    """Runs of alike rows, each in increasing order."""
    half = -(-len(rows) // block) // 2 * block
    if half == 0:
        yield rows
        return
    ordered = rows[np.argsort(_coordinates(flat, largest, rows), kind="stable")]
    for side in (ordered[:half], ordered[half:]):
        yield from _runs(flat, largest, np.sort(side), block)


def _coordinates(flat: NDArray[Any], largest: float, rows: Rows) -> NDArray[np.float64]:
    """Coordinates [rows], whole numbers, along a direction of large variance, found from some of the rows by power iteration."""
    some = _whole(flat[rows[:: -(-len(rows) // _ROWS)]], largest)
    some -= np.rint(some.sum(axis=0) / len(some))
    direction = _scaled(np.abs(some).sum(axis=0))
    for _ in range(_TURNS):
        direction = _scaled(_scaled(some @ direction) @ some)
        if not direction.any():  # it was orthogonal to all samples
            direction = _scaled(some[np.abs(some).sum(axis=1).argmax()])
    return np.concatenate([_whole(flat[block], largest) @ direction for block in _blocks(rows)])


def _blocks(some: NDArray[Any]) -> Iterator[NDArray[Any]]:
    return (some[start : start + _ROWS] for start in range(0, len(some), _ROWS))


def _whole(part: NDArray[Any], largest: float) -> NDArray[np.float64]:
    """Samples as whole numbers up to 4096. Those that are such already stay as they are, or are multiplied if they are small."""
    values = _finite(part)
    if largest <= _LARGEST and part.dtype.kind in "bui":
        return values * max(1.0, _STEPS // (largest or 1.0))
    return np.rint(values / (largest or 1.0) * _LARGEST)


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Whole numbers up to 1024, as near to multiples of these as can be."""
    return np.rint(values / (np.abs(values).max(initial=0.0) or 1.0) * _FINE)


def _finite(part: NDArray[Any]) -> NDArray[np.float64]:
    return np.nan_to_num(part.astype(np.float64), copy=False, nan=0.0, posinf=0.0, neginf=0.0)
