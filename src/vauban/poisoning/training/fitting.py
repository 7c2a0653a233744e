"""Trains the base classifiers of an ensemble: writes the manifest, learns shared features, trains the groups that are missing."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from vauban import __version__
from vauban.data.originals import Originals
from vauban.errors import BadInput, KeepsState, RunRefused
from vauban.files import locked
from vauban.poisoning.manifest_file import KIND, SCHEMA
from vauban.poisoning.partitioning.partition import Partition, TrainingSets, describe_partition
from vauban.poisoning.partitioning.samples import content_keys, sample_problems, set_sha256, training_labels
from vauban.poisoning.progress import ProgressReporter
from vauban.poisoning.training.deterministic import thread_count
from vauban.poisoning.training.failures import RULE, Failure
from vauban.poisoning.training.preprocessing import canonical_name, preprocess
from vauban.poisoning.training.ray_jobs import connected_cluster, fit_on
from vauban.poisoning.training.repeated import check_repeated
from vauban.poisoning.training.scikit_learn import SklearnTrainer
from vauban.poisoning.training.skops_models import SavedModels
from vauban.poisoning.training.trainer import Trainer, describe_trainer, is_rebuilt
from vauban.poisoning.training.weights_folder import (
    SavedGroup,
    WeightsFolder,
    fingerprints,
    tensors_sha256,
    with_failed,
)
from vauban.poisoning.votes.ensemble_votes import THREATS
from vauban.specs import choose

ROWS = 512
IN_MEMORY_ONLY = (
    "models of another library cannot be kept in a folder, since Vauban loads no pickles: leave the folder out and keep "
    "their votes, ensemble.export('votes.npz', x, y)"
)
SAVED_WHOLE = (
    "classifiers of scikit-learn are not saved one by one while they are trained: leave the folder out, and call "
    "ensemble.save(folder) afterwards"
)


@dataclass(frozen=True)
class InMemoryGroup:
    """Base classifiers kept in memory: weights, or models of another library."""

    numbers: list[int]
    models: Any

    def weights(self) -> Any:
        """What the trainer returned."""
        return self.models

    @property
    def fingerprints(self) -> list[str]:
        """The hash of each one's weights; "unknown" for models of other libraries."""
        return fingerprints(self.models) if isinstance(self.models, dict) else ["unknown"] * len(self.numbers)


def train_base_classifiers(
    x: NDArray[Any],
    y: ArrayLike | None,
    partition: Partition,
    trainer: Trainer,
    *,
    against: str | None,
    preprocessing: str,
    folder: Path | None,
    source: dict[str, Any],
    on: str,
    progress: ProgressReporter,
    only: Collection[int] | None = None,
    originals: Originals | None = None,
) -> tuple[dict[str, Any], list[SavedGroup | SavedModels | InMemoryGroup]]:
    """The manifest and the base classifiers of `Ensemble.fit`, which documents the arguments; `only` those of these numbers.

    Unless `only` some are wanted, a learner is refused whose votes change when a part is trained again (`check_repeated`).
    """
    place = connected_cluster(on)
    if folder is not None and isinstance(trainer, SklearnTrainer):
        raise BadInput(SAVED_WHOLE)
    labels = training_labels(x, y)
    members = partition.members(x, labels, originals)
    invalid = invalid_parts(x, labels, members, trainer)
    entries = {
        "schema": SCHEMA,
        "kind": KIND,
        "against": _threat(against, partition, trainer),
        "partition": describe_partition(partition, [len(rows) for rows in members], invalid),
        "failure_rule": RULE,
        "data": {
            **source,
            "sha256": set_sha256(x, labels),
            "samples": len(x),
            "shape": list(x.shape[1:]),
            "dtype": x.dtype.name,
            **({} if originals is None else {"originals_sha256": originals.sha256()}),
        },
        "num_classes": trainer.num_classes,
        "preprocessing": canonical_name(preprocessing),
        "trainer": describe_trainer(trainer, x.shape[1:], x.dtype.name),
        "compute": {"rows": ROWS, "threads": torch.get_num_threads()},
        "versions": {"vauban": __version__, "torch": torch.__version__, "numpy": np.__version__},
    }
    manifest = json.loads(json.dumps(entries))
    _warn_if_empty(manifest["partition"])
    with nullcontext() if folder is None else locked(folder):
        store = None if folder is None else WeightsFolder.begin(folder, manifest)
        if store is not None:
            manifest = store.manifest
        groups: list[SavedGroup | SavedModels | InMemoryGroup] = [] if store is None else [*store.groups()]
        preprocessed = preprocess(preprocessing, x)
        failed = {} if store is None else store.failed()
        done = {number for group in groups for number in group.numbers} | failed.keys()
        left_out = done | invalid.keys()
        wanted = range(len(members)) if only is None else sorted(only)
        numbers = [i for i in wanted if len(members[i]) and i not in left_out]
        parts = TrainingSets(preprocessed, labels, [members[i] for i in numbers])
        compared = only is None and sum(len(rows) > 0 for rows in members) > 1 and not is_rebuilt(trainer)
        compared &= store is None or bool(numbers) or not store.repeated
        if compared and store is not None:
            store.write_repeated(False)
        earlier = sorted(number for group in groups for number in group.numbers)
        with thread_count(manifest["compute"]["threads"]), _refused_for_good(store):
            prepare_features(trainer, preprocessed, x, store, progress)
            with progress("training", len(done) + len(numbers), "partitions", done=len(done)) as on_progress:
                for some, weights in fit_on(place, trainer, parts, numbers, on_progress):
                    if isinstance(weights, Failure):
                        failed |= dict.fromkeys(some, weights.problem)
                        if store is not None:
                            store.write_failed(failed)
                    else:
                        groups.append(
                            InMemoryGroup(list(some), weights) if store is None else store.write(some, weights)
                        )
            for some in ([i for i in numbers if i not in failed], earlier) if compared else ():
                again = TrainingSets(preprocessed, labels, [members[i] for i in some])
                with _other_than_before(store, some is earlier):
                    check_repeated(
                        place, trainer, again, some, groups, manifest["compute"]["threads"], progress, some is earlier
                    )
        if compared and store is not None:
            store.write_repeated(True)
    _warn_if_failed(invalid | failed, partition.models)
    return with_failed(manifest, failed), groups


@contextmanager
def _refused_for_good(store: WeightsFolder | None) -> Iterator[None]:
    """Mark a folder whose learner keeps something between parts: all base classifiers in it may rest on samples of others."""
    try:
        yield
    except KeepsState:
        if store is not None:
            store.write_repeated(False, refused=True)
        raise


@contextmanager
def _other_than_before(store: WeightsFolder | None, earlier: bool) -> Iterator[None]:
    """Of base classifiers of an `earlier` call nobody knows why they vote otherwise than when they are trained now."""
    try:
        yield
    except KeepsState as problem:
        if store is None or not earlier:
            raise
        raise RunRefused(
            f"{store.folder} holds base classifiers of an earlier call that vote otherwise than when they are trained now: the "
            "learner has changed since, or keeps something between parts, or they were trained on a machine that rounds "
            "otherwise; choose another folder"
        ) from problem


def invalid_parts(
    x: NDArray[Any], labels: NDArray[np.int64], members: list[NDArray[np.int64]], trainer: Trainer
) -> dict[int, str]:
    """The base classifiers whose part holds a sample that nothing can be trained on, and what is wrong with it."""
    problems = sample_problems(x, labels, trainer.num_classes)
    if hasattr(trainer, "prepare") and x.dtype.kind == "f" and not np.isfinite(x).all():
        raise BadInput(
            "a training sample holds NaN or infinity: features are learned from all inputs, which must be finite (they are "
            "trusted, since only labels may be poisoned then)"
        )
    found = (
        (number, next((problems[int(i)] for i in rows if int(i) in problems), None))
        for number, rows in enumerate(members)
    )
    return {number: problem for number, problem in found if problem is not None} if problems else {}


def _threat(given: str | None, partition: Partition, trainer: Trainer) -> str:
    trusts_inputs = partition.against == "labels" or hasattr(trainer, "prepare")
    against = ("labels" if trusts_inputs else "samples") if given is None else choose("threat", given, THREATS)
    if against == "samples" and trusts_inputs:
        raise BadInput(
            "sorted partitions and shared features defend labels only, since a sample more would change every part: "
            "take against=labels, or by=hash without shared features"
        )
    return against


def _warn_if_empty(split: dict[str, Any]) -> None:
    if split["empty"]:
        warnings.warn(
            f"{len(split['empty'])} of {split['models']} base classifiers have no training samples: "
            "by rule they vote for class 0",
            stacklevel=4,
        )


def _warn_if_failed(problems: dict[int, str], models: int) -> None:
    if not problems:
        return
    numbers = sorted(problems)
    one, problem = len(numbers) == 1, problems[numbers[0]]
    more = "" if len(numbers) <= 5 else f", … ({'all' if len(numbers) == models else len(numbers)} of {models})"
    named = ", ".join(map(str, numbers[:5])) + more
    warnings.warn(
        f"base classifier{'' if one else 's'} {named} cannot be trained on {'its' if one else 'their'} samples ({problem}"
        f"{'' if one else ', …'}): by rule {'it votes' if one else 'they vote'} for class 0",
        stacklevel=4,
    )


def prepare_features(
    trainer: Any, preprocessed: NDArray[Any], x: NDArray[Any], store: WeightsFolder | None, progress: ProgressReporter
) -> None:
    """Let a trainer that shares features learn them once, from all inputs sorted by content, or read them from the folder."""
    if not hasattr(trainer, "prepare"):
        return
    saved = None if store is None else store.shared()
    if saved is not None:
        given = {name: own for name, own in trainer.shared.items() if name in saved}
        if tensors_sha256(given) != tensors_sha256({name: saved[name] for name in given}):
            raise RunRefused(f"{store.folder} holds base classifiers on other features: choose another folder")  # type: ignore[union-attr]
        trainer.shared.clear()
        trainer.shared.update(saved)
        return
    if store is not None and store.groups():
        raise RunRefused(
            f"{store.folder} holds base classifiers without the features that they were trained on: remove the folder, or choose "
            "another --out"
        )
    if not getattr(trainer, "prepared", bool(trainer.shared)):
        with progress("learning features", trainer.learning_epochs * len(x), "pictures") as on_progress:
            trainer.prepare(preprocessed[np.argsort(content_keys(x), kind="stable")], on_progress)
    if store is not None:
        store.write_shared(trainer.shared)
