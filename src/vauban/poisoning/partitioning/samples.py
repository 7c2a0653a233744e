"""Checks training samples and labels, and identifies samples by their content."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.errors import BadInput
from vauban.validation import check_labels


def check_samples(x: NDArray[Any]) -> NDArray[Any]:
    """Finite numbers [n, ...], or an error."""
    rows = np.asarray(x)
    if rows.ndim < 2 or rows.size == 0 or rows.dtype.kind not in "uif":
        raise BadInput(f"training samples of shape {rows.shape} and type {rows.dtype}: numbers [n, ...] are needed")
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        raise BadInput("a training sample holds NaN or infinity: every value must be a finite number")
    return rows


def training_labels(x: NDArray[Any], y: ArrayLike | None, num_classes: int | None = None) -> NDArray[np.int64]:
    """Labels int64 [n], one for each sample of `x`, and each one of the classes if their number is given."""
    if y is None:
        raise BadInput("the training samples have no labels: give one whole number a sample")
    return check_labels(y, len(x), num_classes, of="sample")


def content_keys(x: NDArray[Any]) -> NDArray[Any]:
    """A sortable key [n] for every sample, equal for equal bytes; 8-bit pictures sort by their pixels."""
    flat = np.ascontiguousarray(x, x.dtype.newbyteorder("<")).reshape(len(x), -1)
    octets = flat.view(np.uint8)
    return octets.view(f"S{octets.shape[1]}").reshape(-1)


def set_sha256(x: NDArray[Any], y: NDArray[Any] | None = None) -> str:
    """A hash of the samples as a multiset, whatever their order; without `y`, of the unlabelled samples."""
    rows = check_samples(x)
    labels = [0] * len(rows) if y is None else [int(label) for label in y]
    pairs = sorted(zip(sample_digests(rows), labels, strict=True))
    whole = hashlib.sha256(b"unlabelled\n" if y is None else b"labelled\n")
    for digest, label in pairs:
        whole.update(digest + label.to_bytes(8, "little", signed=True))
    return whole.hexdigest()


def sample_digests(rows: NDArray[Any]) -> list[bytes]:
    """BLAKE2 of each sample's type, shape and bytes."""
    head = f"{rows.dtype.name} {rows.shape[1:]}\n".encode()
    octets = np.ascontiguousarray(rows, rows.dtype.newbyteorder("<")).reshape(len(rows), -1).view(np.uint8)
    start = hashlib.blake2b(head, digest_size=32, person=b"vauban samples")
    digests = []
    for row in octets:
        hasher = start.copy()
        hasher.update(row.data)
        digests.append(hasher.digest())
    return digests
