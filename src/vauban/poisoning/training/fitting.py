"""Trains the base classifiers of an ensemble: says what they depend on, learns what they share, takes up what is missing."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from vauban import __version__
from vauban.errors import BadInput
from vauban.poisoning.manifest_file import SCHEMA
from vauban.poisoning.partitioning.partition import (
    Partition,
    Parts,
    checked_labels,
    content_keys,
    described,
    set_sha256,
)
from vauban.poisoning.training.preprocessing import named, preprocess
from vauban.poisoning.training.ray_jobs import fit_on, reached
from vauban.poisoning.training.trainer import SklearnTrainer, Tick, Trainer, told_spec
from vauban.poisoning.training.weights_folder import KIND, SavedGroup, WeightsFolder, fingerprints
from vauban.poisoning.votes.ensemble_votes import THREATS
from vauban.runs.folder import locked
from vauban.specs import choose

ROWS = 512
IN_MEMORY_ONLY = (
    "models of another library cannot be kept in a folder, since Vauban loads no pickles: leave the folder out and keep "
    "their votes, numpy.savez(path, votes=ensemble.votes(x), labels=y, num_classes=…)"
)


@dataclass(frozen=True)
class InMemoryGroup:
    """Base classifiers that are kept in memory: weights, or models of another library."""

    numbers: list[int]
    kept: Any

    def weights(self) -> Any:
        """What the trainer made."""
        return self.kept

    @property
    def fingerprints(self) -> list[str]:
        """The hash of each one's weights; of other libraries' models nothing is known."""
        return fingerprints(self.kept) if isinstance(self.kept, dict) else ["unknown"] * len(self.numbers)


def trained(
    x: NDArray[Any],
    y: ArrayLike | None,
    partition: Partition,
    trainer: Trainer,
    *,
    against: str | None,
    preprocessing: str,
    folder: Path | None,
    source: dict[str, Any],
    tick: Tick | None,
    began: Callable[[int, int], None] | None,
    learns: Callable[[int], Tick] | None,
    on: str,
) -> tuple[dict[str, Any], list[SavedGroup | InMemoryGroup]]:
    """The manifest and the base classifiers of `Ensemble.fit`, whose arguments these are."""
    place = reached(on)
    if folder is not None and isinstance(trainer, SklearnTrainer):
        raise BadInput(IN_MEMORY_ONLY)
    labels = checked_labels(x, None if y is None else np.asarray(y))
    outside = np.flatnonzero((labels < 0) | (labels >= trainer.num_classes))
    if len(outside):
        first = int(outside[0])
        raise BadInput(f"label {labels[first]} of sample {first} is outside the classes 0..{trainer.num_classes - 1}")
    if partition.partitions > len(x):
        raise BadInput(
            f"{partition.partitions} partitions of {len(x)} samples: some would always be empty; take at most {len(x)}"
        )
    members = partition.members(x, labels)
    told = {
        "schema": SCHEMA,
        "kind": KIND,
        "against": _against(against, partition, trainer),
        "partition": described(partition, [len(part) for part in members]),
        "data": {
            **source,
            "sha256": set_sha256(x, labels),
            "samples": len(x),
            "shape": list(x.shape[1:]),
            "dtype": x.dtype.name,
        },
        "num_classes": trainer.num_classes,
        "preprocessing": named(preprocessing),
        "trainer": told_spec(trainer),
        "compute": {"rows": ROWS, "threads": torch.get_num_threads()},
        "versions": {"vauban": __version__, "torch": torch.__version__, "numpy": np.__version__},
    }
    manifest = json.loads(json.dumps(told))
    _say_empty(manifest["partition"])
    with nullcontext() if folder is None else locked(folder):
        store = None if folder is None else WeightsFolder.begin(folder, manifest)
        if store is not None:
            manifest = store.manifest
            torch.set_num_threads(manifest["compute"]["threads"])
        seen = preprocess(preprocessing, x)
        _learn_shared(trainer, seen, x, store, learns)
        groups: list[SavedGroup | InMemoryGroup] = [] if store is None else [*store.groups()]
        done = {number for group in groups for number in group.numbers}
        numbers = [i for i, part in enumerate(members) if len(part) and i not in done]
        if began:
            began(len(done), len(done) + len(numbers))
        for some, weights in fit_on(place, trainer, Parts(seen, labels, [members[i] for i in numbers]), numbers, tick):
            groups.append(InMemoryGroup(list(some), weights) if store is None else store.keep(some, weights))
    return manifest, groups


def _against(asked: str | None, partition: Partition, trainer: Trainer) -> str:
    trusts_inputs = partition.against == "labels" or hasattr(trainer, "prepare")
    against = ("labels" if trusts_inputs else "samples") if asked is None else choose("threat", asked, THREATS)
    if against == "samples" and trusts_inputs:
        raise BadInput(
            "sorted partitions and shared features defend labels only, since a sample more would change every part: "
            "take against=labels, or by=hash without shared features"
        )
    return against


def _say_empty(split: dict[str, Any]) -> None:
    if split["empty"]:
        warnings.warn(
            f"{len(split['empty'])} of {split['models']} base classifiers have no training samples: "
            "by rule they vote for class 0",
            stacklevel=3,
        )


def _learn_shared(
    trainer: Any, seen: NDArray[Any], x: NDArray[Any], store: WeightsFolder | None, learns: Callable[[int], Tick] | None
) -> None:
    """Let a trainer that shares features learn them from all inputs, in the order of their content; once."""
    if not hasattr(trainer, "prepare"):
        return
    kept = None if store is None else store.shared()
    if kept is not None:
        trainer.shared.clear()
        trainer.shared.update(kept)
        return
    if not trainer.shared:
        tick = learns(trainer.learning_epochs * len(x)) if learns else None
        trainer.prepare(seen[np.argsort(content_keys(x), kind="stable")], None, tick)
    if store is not None:
        store.keep_shared(trainer.shared)
