"""Checks training samples and labels, and identifies samples by their content."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.errors import BadInput
from vauban.validation import check_labels

_AT_ONCE = 1 << 16  # samples that are hashed at once

NO_CLASS = -(2**63)
"""Stands for a label that is no whole number of 64 bits."""


def check_samples(x: NDArray[Any]) -> NDArray[Any]:
    """Numbers [n, ...], or an error that depends on shape and type alone: n may be 0, and a value NaN or infinite."""
    rows = np.asarray(x)
    if rows.ndim < 2 or 0 in rows.shape[1:] or rows.dtype.kind not in "uif":
        column = "; a single column is x.reshape(-1, 1)" if rows.ndim == 1 else ""
        raise BadInput(
            f"training samples of shape {rows.shape} and type {rows.dtype}: numbers [n, ...] are needed{column}"
        )
    return rows


def training_labels(x: NDArray[Any], y: ArrayLike | None) -> NDArray[np.int64]:
    """Labels int64 [n], one for each sample of `x`, of any value; what is no whole number of 64 bits becomes `NO_CLASS`."""
    if y is None:
        raise BadInput("the training samples have no labels: give one whole number a sample")
    labels = np.asarray(y)
    if labels.dtype.kind == "f":  # as soon as one of them is NaN
        whole = np.isfinite(labels) & (labels == np.floor(labels)) & (np.abs(labels) < 2.0**53)
        labels = np.where(whole, np.where(whole, labels, 0).astype(np.int64), NO_CLASS)
    elif labels.dtype.kind == "u":
        labels = np.where(labels < 2**63, labels.astype(np.int64), NO_CLASS)
    return check_labels(labels, len(x), None, of="sample")


def sample_problems(x: NDArray[Any], labels: NDArray[np.int64], num_classes: int) -> dict[int, str]:
    """What is wrong with each sample [n] that nothing can be trained on: its row, and the problem."""
    finite = np.isfinite(x).reshape(len(x), math.prod(x.shape[1:])).all(axis=1) if x.dtype.kind == "f" else None
    problems = {int(i): "a sample holds NaN or infinity" for i in np.flatnonzero(~finite)} if finite is not None else {}
    for i in np.flatnonzero((labels < 0) | (labels >= num_classes)):
        what = "a label that is no whole number" if labels[i] == NO_CLASS else f"the label {labels[i]}"
        problems.setdefault(int(i), f"{what} is outside the classes 0..{num_classes - 1}")
    return problems


def content_keys(x: NDArray[Any]) -> NDArray[Any]:
    """A sortable key [n] for every sample, equal for equal bytes; 8-bit pictures sort by their pixels."""
    octets = _octets(x)
    return octets.view(f"S{octets.shape[1]}").reshape(-1)


def set_sha256(x: NDArray[Any], y: NDArray[Any] | None = None) -> str:
    """A hash of the samples as a multiset, whatever their order; without `y`, of the unlabelled samples."""
    rows = check_samples(x)
    labels = np.zeros(len(rows), np.int64) if y is None else np.asarray(y, np.int64)
    digests = sample_digests(rows)
    order = np.lexsort((labels, digests.view("S32").reshape(-1)))
    pairs = np.concatenate([digests, labels.astype("<i8").view(np.uint8).reshape(-1, 8)], axis=1)
    whole = hashlib.sha256(b"unlabelled\n" if y is None else b"labelled\n")
    for start in range(0, len(order), _AT_ONCE):
        whole.update(pairs[order[start : start + _AT_ONCE]].tobytes())
    return whole.hexdigest()


def sample_digests(rows: NDArray[Any]) -> NDArray[np.uint8]:
    """BLAKE2 of each sample's type, shape and bytes: uint8 [n, 32]."""
    head = f"{rows.dtype.name} {rows.shape[1:]}\n".encode()
    start = hashlib.blake2b(head, digest_size=32, person=b"vauban samples")
    digests = bytearray(32 * len(rows))
    for i, row in enumerate(_octets(rows)):
        hasher = start.copy()
        hasher.update(row.data)
        digests[32 * i : 32 * i + 32] = hasher.digest()
    return np.frombuffer(digests, np.uint8).reshape(-1, 32)


def _octets(rows: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes [n, ...] of every sample."""
    flat = np.ascontiguousarray(rows, rows.dtype.newbyteorder("<")).reshape(len(rows), math.prod(rows.shape[1:]))
    return flat.view(np.uint8)
