"""Poisons training sets of ensembles: an upper bound on the change that moves an answer, beside the certified lower bound."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.attacks.poisoning.plans import bucket_gains, cheapest_buckets, needed_gain
from vauban.errors import BadInput
from vauban.poisoning.ensemble import Ensemble
from vauban.poisoning.partitioning.partition import OF_ALL_INPUTS, Partition
from vauban.poisoning.partitioning.samples import set_sha256, training_labels
from vauban.poisoning.votes.certificates import derive
from vauban.poisoning.votes.ensemble_votes import EnsembleVotes
from vauban.specs import choose

CHANGES = ("flip", "add", "remove")
_TRIES = 200  # variants of a sample, for each bucket, among which one that falls into the bucket is looked for

TrainingSet = tuple[NDArray[Any], NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Change:
    """A change of a training set: rows relabelled, rows removed, samples added. Its size counts each of them once."""

    relabelled: dict[int, int] = field(default_factory=dict)
    removed: tuple[int, ...] = ()
    added_x: tuple[NDArray[Any], ...] = ()
    added_y: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.relabelled) + len(self.removed) + len(self.added_y)

    def __add__(self, other: Change) -> Change:
        return Change(
            self.relabelled | other.relabelled,
            self.removed + other.removed,
            self.added_x + other.added_x,
            self.added_y + other.added_y,
        )

    def applied(self, x: NDArray[Any], y: NDArray[np.int64], keep: NDArray[np.bool_] | None = None) -> TrainingSet:
        """The changed training set; `keep` [n]: which of the samples that are not removed it holds, all unless given."""
        labels, left = y.copy(), np.ones(len(x), dtype=bool) if keep is None else keep.copy()
        for row, label in self.relabelled.items():
            labels[row] = label
        left[list(self.removed)] = False
        if not self.added_y:
            return x[left], labels[left]
        more = np.stack(self.added_x).astype(x.dtype)
        return np.concatenate([x[left], more]), np.concatenate([labels[left], np.array(self.added_y)])


@dataclass(frozen=True, eq=False)
class Poisoned:
    """What was found for one input. `certified`: no change of fewer than this many moves the answer, by the certificate;
    `change`: one that does, confirmed by training the ensemble anew, or None; `answer`: the answer after it."""

    label: int
    certified: int
    change: Change | None
    answer: int | None

    @property
    def upper(self) -> float:
        """The size of the change that was found, infinity if there is none."""
        return np.inf if self.change is None else len(self.change)


class _World:
    """An ensemble with its training set, on which changes are tried by training anew."""

    def __init__(self, ensemble: Ensemble, x: NDArray[Any], y: ArrayLike):
        self.ensemble, self.x, self.y = ensemble, x, training_labels(x, y)
        if "originals_sha256" in ensemble.manifest["data"]:
            raise BadInput(
                "the parts of this ensemble are made from original pictures (keys=original), and this attack changes scaled "
                "ones: attack an ensemble that was trained without keys=original"
            )
        if set_sha256(x, self.y) != ensemble.manifest["data"]["sha256"]:
            raise BadInput(
                "this is not the training set of the ensemble, whose hash its manifest holds: give the samples that it was "
                "trained on"
            )
        self.partition: Partition = ensemble.partition
        self.buckets = self.partition.buckets(x)
        whole = self.partition.by in OF_ALL_INPUTS or hasattr(ensemble.trainer, "prepare")
        self.separable = self.partition.spread == 1 and not whole

    def votes(self, change: Change, inputs: NDArray[Any], buckets: Sequence[int] | None = None) -> NDArray[np.integer]:
        """The votes [inputs, models] of the ensemble trained on the changed set; `buckets`: of the models of these alone are
        they needed, so that others may be left untrained."""
        keep = np.isin(self.buckets, buckets) if buckets is not None and self.separable else None
        x, y = change.applied(self.x, self.y, keep)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trained = Ensemble.fit(
                x,
                y,
                self.partition,
                self.ensemble.trainer,
                against=self.ensemble.against,
                preprocessing=self.ensemble.manifest["preprocessing"],
            )
        return trained.votes(inputs)


def poison(
    ensemble: Ensemble,
    train_x: NDArray[Any],
    train_y: ArrayLike,
    x: NDArray[Any],
    *,
    change: str | None = None,
    most: int = 64,
    seed: int = 0,
) -> list[Poisoned]:
    """Look for small changes of the training set (train_x, train_y) that move the ensemble's answer on each input of x [m, ...].

    `change`: "flip" relabels samples to the rival class, those of the label nearest to the input first; "add" adds variants of
    the input with the rival's label, which fall into the buckets that are attacked; "remove" removes the nearest samples of the
    label. The default is "flip". Buckets are attacked with 1, 2, 4, … up to `most` changes each, by training anew; the rival is
    the class that needs the fewest votes. Where base classifiers share no samples, the cheapest set of buckets is chosen by what
    each one was found to need. Each answer is confirmed by training the whole ensemble on the changed set.
    """
    world = _World(ensemble, train_x, train_y)
    kind = choose("change of a training set", change or "flip", CHANGES)
    if ensemble.against == "labels" and kind != "flip":
        raise BadInput(f"change={kind}: this ensemble is certified against relabelling alone; use change=flip")
    if most < 1:
        raise BadInput(f"most={most}: at least one change for each bucket is needed")
    ensemble.check_inputs(x)
    random = np.random.default_rng(seed)
    ballots = ensemble.votes(x)
    certified = derive(
        EnsembleVotes.from_arrays(
            {"votes": ballots}, ensemble.num_classes, spread=ensemble.partition.spread, against=ensemble.against
        )
    )
    return [
        _poison_one(world, x[i : i + 1], ballots[i], int(certified.radius[i]) + 1, kind, most, random)
        for i in range(len(x))
    ]


def _poison_one(
    world: _World,
    x: NDArray[Any],
    ballots: NDArray[np.integer],
    certified: int,
    kind: str,
    most: int,
    random: np.random.Generator,
) -> Poisoned:
    counts = np.bincount(ballots, minlength=world.ensemble.num_classes)
    label = int(counts.argmax())
    rival, need = needed_gain(counts, label)
    search = _Search(world, x, ballots, _Changes(world, x[0], label, rival, kind, random), label, rival, most)
    best: Poisoned = Poisoned(label, certified, None, None)
    for candidate in search.by_bucket(need) if world.separable else search.by_prefix():
        if len(candidate) >= best.upper:
            continue
        after = search.answer(candidate)
        if after != label:
            best = Poisoned(label, certified, candidate, after)
    return best


@dataclass(frozen=True)
class _Search:
    """Looks for changes, of at most `most` samples a bucket, that make the ensemble answer `rival` or another in place of `label`
    for the one input x [1, ...], on which its base classifiers cast `ballots` [models]."""

    world: _World
    x: NDArray[Any]
    ballots: NDArray[np.integer]
    changes: _Changes
    label: int
    rival: int
    most: int

    @property
    def gains(self) -> NDArray[Any]:
        """What each bucket could add to the rival's lead at most."""
        return bucket_gains(self.ballots, self.label, self.rival, self.world.partition)

    def answer(self, change: Change) -> int:
        """What the ensemble answers after a change."""
        return int(np.bincount(self.world.votes(change, self.x)[0], minlength=self.world.ensemble.num_classes).argmax())

    @property
    def counts(self) -> list[int]:
        """Numbers of samples to change in a bucket: 1, 2, 4, …"""
        return [2**i for i in range(self.most.bit_length())]

    def by_bucket(self, need: int) -> list[Change]:
        """Try every bucket by itself, all of them in one training; then take the cheapest set that gains enough votes."""
        still = [int(b) for b in np.flatnonzero(self.gains > 0)]
        found: dict[int, list[tuple[int, Change]]] = {b: [] for b in still}
        for count in self.counts:
            if not still:
                break
            tried = {b: self.changes.of(b, count) for b in still}
            votes = self.world.votes(sum(tried.values(), Change()), self.x, still)[0]
            for b, change in tried.items():
                gain = self._lead(int(votes[b])) - self._lead(int(self.ballots[b]))
                if gain > 0:
                    found[b].append((gain, change))
            still = [b for b in still if int(votes[b]) != self.rival and len(tried[b]) == count]
        options = [some for some in found.values() if some]
        chosen = cheapest_buckets([[(gain, len(change)) for gain, change in some] for some in options], need)
        return [] if chosen is None else [sum((options[i][j][1] for i, j in chosen), Change())]

    def by_prefix(self) -> list[Change]:
        """Change the buckets with the largest possible gain together, as few of them as move the answer."""
        order = np.argsort(-self.gains, kind="stable")
        candidates = []
        for count in self.counts:
            low, high = 0, len(order)
            while low < high:
                middle = (low + high) // 2
                moved = self.answer(self._prefix(order[:middle], count)) != self.label
                low, high = (low, middle) if moved else (middle + 1, high)
            candidates.append(self._prefix(order[:low], count))
        return sorted(candidates, key=len)

    def _prefix(self, buckets: NDArray[Any], count: int) -> Change:
        return sum((self.changes.of(int(b), count) for b in buckets), Change())

    def _lead(self, vote: int) -> int:
        """What a vote adds to the rival's lead over the label."""
        return int(vote == self.rival) - int(vote == self.label)


class _Changes:
    """Changes of single buckets, from the most promising on: those of k samples contain those of fewer."""

    def __init__(self, world: _World, x: NDArray[Any], label: int, rival: int, kind: str, random: np.random.Generator):
        self.world, self.x, self.label, self.rival, self.kind, self.random = world, x, label, rival, kind, random
        self._kept: dict[tuple[int, int], Change] = {}
        self._variants: dict[int, list[NDArray[Any]]] = {}

    def of(self, bucket: int, count: int) -> Change:
        """A change of up to `count` samples of a bucket; fewer where it has no more to change."""
        key = bucket, count
        if key not in self._kept:
            self._kept[key] = self._added(bucket, count) if self.kind == "add" else self._near(bucket, count)
        return self._kept[key]

    def _near(self, bucket: int, count: int) -> Change:
        rows = np.flatnonzero(self.world.buckets == bucket)
        labels = self.world.y[rows]
        rows = rows[labels == self.label if self.kind == "remove" else labels != self.rival]
        far = ((self.world.x[rows].astype(float) - self.x.astype(float)) ** 2).reshape(len(rows), -1).sum(axis=1)
        first = rows[np.lexsort((rows, far, self.world.y[rows] != self.label))][:count]
        if self.kind == "remove":
            return Change(removed=tuple(int(row) for row in first))
        return Change(relabelled={int(row): self.rival for row in first})

    def _added(self, bucket: int, count: int) -> Change:
        have = self._variants.setdefault(bucket, [])
        tries = 0
        while len(have) < count and tries < _TRIES * count:
            size = max(64, self.world.partition.models)
            variants = near_variants(self.x, size, self.random)
            tries += -(-size // self.world.partition.models)
            have += list(variants[self.world.partition.buckets(variants) == bucket])
        samples = have[:count]
        return Change(added_x=tuple(samples), added_y=(self.rival,) * len(samples))


def near_variants(x: NDArray[Any], count: int, random: np.random.Generator) -> NDArray[Any]:
    """`count` samples that differ from x by one step in a few numbers, each in others."""
    variants = np.repeat(x.reshape(1, -1), count, axis=0)
    where = random.integers(variants.shape[1], size=(count, 4))
    rows = np.arange(count)[:, None]
    step = 1 if x.dtype.kind in "ui" else 1 / 256
    middle = (128 if x.dtype == np.uint8 else 0.5) if x.dtype.kind != "i" else 0
    variants[rows, where] += np.where(variants[rows, where] < middle, step, -step).astype(x.dtype)
    return variants.reshape(count, *x.shape)
