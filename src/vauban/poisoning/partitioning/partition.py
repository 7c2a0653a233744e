"""Splits a training set by content: which samples each base classifier may see, a function of the set and of nothing else."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.certificates.finite import spread_offsets
from vauban.errors import BadInput
from vauban.specs import Parameter, Spec, choose, read_params

WAYS = ("hash", "pixel-sum", "sort")


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise BadInput(f"{text} is not a whole number above zero")
    return value


PARAMETERS = {
    "partitions": Parameter(_count, required=True, example="1200"),
    "spread": Parameter(_count, default=1, example="16"),
}


@dataclass(frozen=True)
class Partition:
    """How training samples are dealt to base classifiers, by their input alone and never by their label.

    `by`: "hash" (BLAKE2 of shape, type and bytes), "pixel-sum" (the papers' sum of 8-bit values, modulo) or "sort" (the place
    among the sorted distinct inputs, modulo: [Levine2023] Equation 7.7, for label flips only, since a sample more would move the
    others). `spread`: Finite Aggregation [Wang2022]: partitions * spread buckets, as many base classifiers, and each is trained
    on `spread` buckets; 1 is one bucket each.

    >>> Partition(1200, spread=16).models
    19200
    >>> str(Partition(50, by="sort"))
    'sort:partitions=50'
    """

    partitions: int
    by: str = "hash"
    spread: int = 1

    def __post_init__(self) -> None:
        choose("way to partition", self.by, WAYS)
        for name, value in (("partitions", self.partitions), ("spread", self.spread)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadInput(f"{name}={value!r}: a whole number above zero is needed")

    def __str__(self) -> str:
        spread = {"spread": str(self.spread)} if self.spread > 1 else {}
        return str(Spec(self.by, {"partitions": str(self.partitions), **spread}))

    @classmethod
    def from_spec(cls, text: str) -> Partition:
        """Read what `str` wrote.

        >>> Partition.from_spec("hash:partitions=3,spread=2")
        Partition(partitions=3, by='hash', spread=2)
        """
        spec = Spec.parse(text)
        return cls(by=choose("way to partition", spec.name, WAYS), **read_params(spec, PARAMETERS))

    @property
    def models(self) -> int:
        """How many base classifiers there are, as many as buckets."""
        return self.partitions * self.spread

    @property
    def against(self) -> str:
        """What the attacker may do to the training set: "samples" (add and remove them) or only "labels" (flip them)."""
        return "labels" if self.by == "sort" else "samples"

    def buckets(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """The bucket 0..models-1 of every sample [n] of `x` [n, ...]; equal samples share one."""
        rows = _checked(x)
        if self.by == "sort":
            return np.unique(content_keys(rows), return_inverse=True)[1].astype(np.int64) % self.models
        if self.by == "pixel-sum":
            if rows.dtype != np.uint8:
                raise BadInput(f"pixel-sum adds 8-bit values, and the samples are {rows.dtype}: use by=hash")
            return rows.reshape(len(rows), -1).sum(axis=1, dtype=np.int64) % self.models
        words = (int.from_bytes(digest[:8], "little") for digest in _digests(rows))
        return np.fromiter((word % self.models for word in words), np.int64, len(rows))

    def members(self, x: NDArray[Any], y: NDArray[Any]) -> list[NDArray[np.int64]]:
        """For every base classifier, the samples it is trained on: places in `x`, in the order of their content, then label.

        Shuffling (x, y) shuffles the places and changes nothing of what they point to. Equal inputs with different labels are
        a legal multiset, kept in the order of their labels, with a warning.
        """
        rows, labels = _checked(x), checked_labels(x, y)
        keys = content_keys(rows)
        order = np.lexsort((labels, keys))
        same = keys[order][1:] == keys[order][:-1]
        torn = int((same & (labels[order][1:] != labels[order][:-1])).sum())
        if torn:
            warnings.warn(
                f"{torn} training samples repeat another one's input with a different label: both are kept, side by side",
                stacklevel=2,
            )
        buckets = self.buckets(rows)
        by_bucket = order[np.argsort(buckets[order], kind="stable")]
        ends = np.searchsorted(buckets[by_bucket], np.arange(self.models + 1))
        owned = [by_bucket[a:b] for a, b in pairwise(ends)]
        if self.spread == 1:
            return owned
        rank = np.empty(len(rows), dtype=np.int64)
        rank[order] = np.arange(len(rows))
        return [_merged([owned[b] for b in self.buckets_of(model)], rank) for model in range(self.models)]

    def buckets_of(self, model: int) -> list[int]:
        """The buckets that a base classifier is trained on."""
        return [int(b) for b in (model + spread_offsets(self.models, self.spread)) % self.models]


@dataclass(frozen=True, eq=False)
class Parts(Sequence[tuple[NDArray[Any], NDArray[np.int64]]]):
    """The training sets of some base classifiers, cut out of the whole one when they are asked for."""

    x: NDArray[Any]
    y: NDArray[np.int64]
    places: Sequence[NDArray[np.int64]]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return Parts(self.x, self.y, self.places[i])
        return self.x[self.places[i]], self.y[self.places[i]]


def content_keys(x: NDArray[Any]) -> NDArray[Any]:
    """A sortable key [n] for every sample, equal for equal bytes: 8-bit pictures sort by their pixels."""
    flat = np.ascontiguousarray(x, x.dtype.newbyteorder("<")).reshape(len(x), -1)
    octets = flat.view(np.uint8)
    return octets.view(f"S{octets.shape[1]}").reshape(-1)


def set_sha256(x: NDArray[Any], y: NDArray[Any] | None = None) -> str:
    """A hash of the samples as a multiset: their order does not matter. Without `y`, of the unlabelled samples."""
    rows = _checked(x)
    labels = [0] * len(rows) if y is None else [int(label) for label in y]
    pairs = sorted(zip(_digests(rows), labels, strict=True))
    whole = hashlib.sha256(b"unlabelled\n" if y is None else b"labelled\n")
    for digest, label in pairs:
        whole.update(digest + label.to_bytes(8, "little", signed=True))
    return whole.hexdigest()


def checked_labels(x: NDArray[Any], y: NDArray[Any] | None) -> NDArray[np.int64]:
    """Labels int64 [n] for the samples of `x`."""
    if y is None:
        raise BadInput("the training samples have no labels: give one whole number a sample")
    labels = np.asarray(y)
    if labels.shape != (len(x),) or labels.dtype.kind not in "iu":
        raise BadInput(
            f"labels of shape {labels.shape} and type {labels.dtype} for {len(x)} samples: one whole number each is needed"
        )
    return labels.astype(np.int64)


def _checked(x: NDArray[Any]) -> NDArray[Any]:
    rows = np.asarray(x)
    if rows.ndim < 2 or rows.size == 0 or rows.dtype.kind not in "uif":
        raise BadInput(f"training samples of shape {rows.shape} and type {rows.dtype}: numbers [n, ...] are needed")
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        raise BadInput("a training sample holds NaN or infinity: every value must be a finite number")
    return rows


def _digests(rows: NDArray[Any]) -> list[bytes]:
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


def _merged(pieces: Sequence[NDArray[np.int64]], rank: NDArray[np.int64]) -> NDArray[np.int64]:
    joined = np.concatenate(pieces)
    return joined[np.argsort(rank[joined], kind="stable")]


def overlap_by_chance(samples: int, kept: int, flipped: int) -> tuple[float, float]:
    """How likely a base classifier sees a flipped label: drawn at random, and at most by partitions. [Levine2023] F.11, F.12

    `kept` of `samples` labels for each base classifier, `flipped` of them flipped.

    >>> [round(p, 3) for p in overlap_by_chance(60_000, 50, 200)]
    [0.154, 0.167]
    """
    safe = 1.0
    for i in range(kept):
        safe *= max(0, samples - flipped - i) / (samples - i)
    return 1 - safe, min(1.0, flipped * kept / samples)


def described(partition: Partition, sizes: Sequence[int]) -> Mapping[str, Any]:
    """What a manifest keeps of a split: its spec and how large the training sets are."""
    return {
        "spec": str(partition),
        "models": partition.models,
        "smallest": min(sizes),
        "largest": max(sizes),
        "empty": [i for i, size in enumerate(sizes) if size == 0],
    }
