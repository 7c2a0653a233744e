"""Assigns training samples to base classifiers by their content."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.data.originals import Originals
from vauban.errors import BadInput
from vauban.laws.poisoning.finite import spread_offsets
from vauban.poisoning.partitioning.samples import check_samples, content_keys, sample_digests, training_labels
from vauban.poisoning.partitioning.stratified import stratified_order
from vauban.specs import Parameter, Spec, choose, read_params

METHODS = ("hash", "pixel-sum", "sort", "stratified")
OF_ALL_INPUTS = ("sort", "stratified")
"""Ways in which a sample's part depends on all inputs. One sample more moves others, so they are against label flips only."""

TrainingSet = tuple[NDArray[Any], NDArray[np.int64]]
"""Inputs [n, ...] and labels [n] of one base classifier."""


def read_count(text: str) -> int:
    """Read a whole number from 1."""
    value = int(text)
    if value < 1:
        raise BadInput(f"{text} is not a whole number from 1")
    return value


PARAMETERS = {
    "partitions": Parameter(read_count, required=True, example="1200"),
    "spread": Parameter(read_count, default=1, example="16"),
}


@dataclass(frozen=True)
class Partition:
    """Assigns each training sample to base classifiers by its input alone, never by its label.

    `by` is "hash" (BLAKE2 of shape, type and bytes), "pixel-sum" (the papers' sum of 8-bit values, modulo the number of
    buckets), "sort" (the rank among the sorted distinct inputs, modulo: [Levine2023] Equation 7.7) or "stratified" (the rank in
    an order in which neighbours are alike, modulo, so that each bucket has some samples of every kind: `stratified_order`). The
    last two are against label flips only, since one sample more would move the others. `spread` is that of Finite Aggregation
    [Wang2022]: partitions * spread buckets, as many base classifiers, each trained on `spread` buckets.

    >>> Partition(1200, spread=16).models
    19200
    >>> str(Partition(50, by="sort"))
    'sort:partitions=50'
    """

    partitions: int
    by: str = "hash"
    spread: int = 1

    def __post_init__(self) -> None:
        choose("way to partition", self.by, METHODS)
        for name, value in (("partitions", self.partitions), ("spread", self.spread)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadInput(f"{name}={value!r}: a whole number above zero is needed")

    def __str__(self) -> str:
        spread = {"spread": str(self.spread)} if self.spread > 1 else {}
        return str(Spec(self.by, {"partitions": str(self.partitions), **spread}))

    @classmethod
    def from_spec(cls, text: str) -> Partition:
        """The partition that `str` describes.

        >>> Partition.from_spec("hash:partitions=3,spread=2")
        Partition(partitions=3, by='hash', spread=2)
        """
        spec = Spec.parse(text)
        return cls(by=choose("way to partition", spec.name, METHODS), **read_params(spec, PARAMETERS))

    @property
    def models(self) -> int:
        """The number of base classifiers, which is the number of buckets."""
        return self.partitions * self.spread

    @property
    def against(self) -> str:
        """What the attacker may change: "samples" (add and remove them) or only "labels" (flip them)."""
        return "labels" if self.by in OF_ALL_INPUTS else "samples"

    def buckets(self, x: NDArray[Any], originals: Originals | None = None) -> NDArray[np.int64]:
        """The bucket 0..models-1 of every sample [n] of `x` [n, ...]; equal samples share one.

        `originals`: keys of the pictures that `x` are scaled copies of; samples are then told apart by these alone.
        """
        rows = check_samples(x)
        if self.by in OF_ALL_INPUTS:
            keys = content_keys(rows) if originals is None else originals.place
            _, first, place = np.unique(keys, return_index=True, return_inverse=True)
            if self.by == "stratified":
                place = _stratified_places(rows[first], self.models)[place]
            return place.astype(np.int64) % self.models
        if self.by == "pixel-sum":
            if originals is not None:
                return originals.total % self.models
            if rows.dtype != np.uint8:
                raise BadInput(f"pixel-sum adds 8-bit values, and the samples are {rows.dtype}: use by=hash")
            return rows.sum(axis=tuple(range(1, rows.ndim)), dtype=np.int64) % self.models
        digests = sample_digests(rows) if originals is None else originals.digest
        words = np.ascontiguousarray(digests[:, :8]).view("<u8").reshape(-1)
        return (words % np.uint64(self.models)).astype(np.int64)

    def members(self, x: NDArray[Any], y: NDArray[Any], originals: Originals | None = None) -> list[NDArray[np.int64]]:
        """The rows of `x` that each base classifier is trained on, sorted by content, then by label.

        Shuffling (x, y) permutes the row numbers and changes no training set. Equal inputs with different labels are
        kept, sorted by label, with a warning. `originals`: as in `buckets`.
        """
        rows, labels = check_samples(x), training_labels(x, y)
        keys = content_keys(rows)
        order = np.lexsort((labels, keys))
        if originals is not None and len(originals.place) != len(rows):
            raise BadInput(f"{len(originals.place)} keys of originals for {len(rows)} inputs: one each is needed")
        conflicting = _in_conflict(keys if originals is None else originals.place, labels)
        if conflicting:
            warnings.warn(
                f"{conflicting} training samples share their input with others of another label: all are kept, side by side",
                stacklevel=2,
            )
        buckets = self.buckets(rows, originals)
        by_bucket = order[np.argsort(buckets[order], kind="stable")]
        ends = np.searchsorted(buckets[by_bucket], np.arange(self.models + 1))
        in_bucket = [by_bucket[a:b] for a, b in pairwise(ends)]
        if self.spread == 1:
            return in_bucket
        rank = np.empty(len(rows), dtype=np.int64)
        rank[order] = np.arange(len(rows))
        return [_merged([in_bucket[b] for b in self.buckets_of(model)], rank) for model in range(self.models)]

    def buckets_of(self, model: int) -> list[int]:
        """The buckets that a base classifier is trained on."""
        return [int(b) for b in (model + spread_offsets(self.models, self.spread)) % self.models]


@dataclass(frozen=True, eq=False)
class TrainingSets(Sequence[TrainingSet]):
    """The training sets of some base classifiers; each is copied out of (x, y) when it is indexed."""

    x: NDArray[Any]
    y: NDArray[np.int64]
    rows: Sequence[NDArray[np.int64]]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return TrainingSets(self.x, self.y, self.rows[i])
        return self.x[self.rows[i]], self.y[self.rows[i]]


def _in_conflict(inputs: NDArray[Any], labels: NDArray[np.int64]) -> int:
    """How many samples have an input, by these keys, that stands there with different labels."""
    _, place, copies = np.unique(inputs, return_inverse=True, return_counts=True)
    by_label = np.lexsort((labels, place))
    ordered = labels[by_label]
    ends = np.cumsum(copies)
    return int(copies[ordered[ends - 1] != ordered[ends - copies]].sum())


def _stratified_places(distinct: NDArray[Any], buckets: int) -> NDArray[np.int64]:
    """The place of each of these inputs in the stratified order, in whose runs they stand as their hashes are ordered."""
    by_hash = np.argsort(sample_digests(distinct).view("S32").reshape(-1), kind="stable")
    places = np.empty(len(distinct), dtype=np.int64)
    places[by_hash[stratified_order(distinct[by_hash], buckets)]] = np.arange(len(distinct))
    return places


def _merged(pieces: Sequence[NDArray[np.int64]], rank: NDArray[np.int64]) -> NDArray[np.int64]:
    joined = np.concatenate(pieces)
    return joined[np.argsort(rank[joined], kind="stable")]


def overlap_by_chance(samples: int, kept: int, flipped: int) -> tuple[float, float]:
    """Probability that a base classifier sees a flipped label: with random subsets, and at most with partitions.

    A base classifier has `kept` of `samples` labels, and `flipped` of them are flipped. [Levine2023] F.11, F.12

    >>> [round(p, 3) for p in overlap_by_chance(60_000, 50, 200)]
    [0.154, 0.167]
    """
    safe = 1.0
    for i in range(kept):
        safe *= max(0, samples - flipped - i) / (samples - i)
    return 1 - safe, min(1.0, flipped * kept / samples)


def describe_partition(partition: Partition, sizes: Sequence[int], failed: Iterable[int] = ()) -> Mapping[str, Any]:
    """The manifest's entry for a partition: its spec, the sizes of the training sets, and those that cannot be trained on."""
    return {
        "spec": str(partition),
        "models": partition.models,
        "smallest": min(sizes),
        "largest": max(sizes),
        "empty": [i for i, size in enumerate(sizes) if size == 0],
        "failed": sorted(failed),
    }
