"""Ensembles of base classifiers trained on parts of a training set: training, votes, certificates."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.data.originals import Originals
from vauban.errors import BadInput, VaubanError
from vauban.poisoning.learners import (
    columns_of,
    labels_of,
    make_partition,
    make_trainer,
    module_trainer_again,
    to_samples,
    warn_of_common_statistics,
)
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.partitioning.samples import check_samples
from vauban.poisoning.progress import ProgressCallback, ProgressReporter, reporter
from vauban.poisoning.training.fitting import IN_MEMORY_ONLY, InMemoryGroup, train_base_classifiers
from vauban.poisoning.training.preprocessing import preprocess
from vauban.poisoning.training.ray_jobs import connected_cluster
from vauban.poisoning.training.ray_votes import Voting, count_groups
from vauban.poisoning.training.scikit_learn import SklearnTrainer
from vauban.poisoning.training.skops_models import SavedModels
from vauban.poisoning.training.torch_module import PROBE, ModuleTrainer, refuse_other_probe
from vauban.poisoning.training.trainer import Trainer, is_rebuilt, rebuild, with_own_features
from vauban.poisoning.training.weights_folder import SavedGroup, WeightsFolder, tensors_sha256
from vauban.poisoning.training_plan import TrainingPlan, plan_training
from vauban.poisoning.votes.checkpoint import VotesCheckpoint
from vauban.poisoning.votes.counting import PreferenceCounter, VoteCounter
from vauban.poisoning.votes.ensemble_votes import AGGREGATES, EnsembleVotes
from vauban.poisoning.voting_ensemble import VotingEnsemble
from vauban.specs import choose
from vauban.validation import path_of

Group = SavedGroup | SavedModels | InMemoryGroup

_BITS_AT_ONCE = 1 << 29  # second-round votes that are held in memory at once


class Ensemble(VotingEnsemble):
    """Base classifiers of one trainer, made by `Ensemble.fit` or `Ensemble.load`."""

    def __init__(self, manifest: dict[str, Any], trainer: Trainer, groups: Sequence[Group]):
        super().__init__(manifest)
        self.trainer, self.groups = trainer, list(groups)

    @classmethod
    def fit(
        cls,
        x: Any,
        y: Any,
        partition: Partition | int | None = None,
        trainer: Any = None,
        *,
        partitions: int | None = None,
        learner: Any = None,
        num_classes: int | None = None,
        spread: int = 1,
        against: str | None = None,
        preprocessing: str = "none",
        folder: str | Path | None = None,
        source: dict[str, Any] | None = None,
        originals: Originals | None = None,
        on: str = "here",
        progress: bool | ProgressReporter = True,
    ) -> Ensemble:
        """Train a base classifier on each part of the samples `x` [n, ...] with labels `y` [n]: arrays, tensors, lists or frames.

        `partitions`: how many parts, by the content of samples (`partition`: a `vauban.Partition`); `spread` as in Finite
        Aggregation. `learner`: a scikit-learn classifier, of which each part trains a fresh clone; a torch module, or a function
        that returns one, of which it trains a copy; the text of a recipe (tiny-cnn:steps=300); or a `Trainer`, also given as
        `trainer`. `num_classes`: needed with a recipe; else as many as a module has scores, or one more than the largest label.
        With a `folder`, groups are saved as they are trained, and the same call after an interruption trains the missing ones.
        `against` is "labels" for sorted partitions and for features learned from all inputs, since only labels may be poisoned
        then; else "samples". `source` goes into the manifest. `originals`: keys of the pictures that `x` are scaled copies of
        (`Dataset.originals`), from which parts are made then. `on`: "ray" trains on a Ray cluster, with the same result.
        A base classifier that cannot be trained on its part has a constant vote (`failures.RULE`), so that an ensemble exists for
        every training set; the manifest lists them. `progress`: True shows bars once work takes two seconds.
        """
        samples, labels, split, chosen = _training(
            x, y, partition, partitions, spread, trainer if learner is None else learner, num_classes
        )
        chosen, columns = with_own_features(chosen), columns_of(x)
        manifest, groups = train_base_classifiers(
            samples,
            labels,
            split,
            chosen,
            against=against,
            preprocessing=preprocessing,
            folder=None if folder is None else path_of("folder", folder),
            source=(source or {}) | ({} if columns is None else {"columns": columns}),
            on=on,
            progress=reporter(progress),
            originals=originals,
        )
        return cls(manifest, chosen, groups)

    @classmethod
    def plan(
        cls,
        x: Any,
        y: Any,
        partition: Partition | int | None = None,
        *,
        partitions: int | None = None,
        learner: Any = None,
        num_classes: int | None = None,
        spread: int = 1,
    ) -> TrainingPlan:
        """Time, memory and disk of `fit` with the same arguments, from a few base classifiers that are trained for it."""
        samples, labels, split, trainer = _training(x, y, partition, partitions, spread, learner, num_classes)
        return plan_training(samples, labels, split, trainer)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        device: str = "cpu",
        trainer: Trainer | None = None,
        learner: Any = None,
        trust: Sequence[str] = (),
    ) -> Ensemble:
        """The complete ensemble in a folder; weights are read when they are needed.

        `learner`: the module that was trained, or the function that returns it; `trainer`: any trainer that is not Vauban's own.
        Classifiers of scikit-learn come with their learner. No code of their skops files is executed; types that skops does not
        trust by itself, such as "sklearn.tree._tree.Tree", are named in `trust` if you know where the folder comes from.
        """
        store = WeightsFolder.open(path_of("folder", folder), trust)
        if trainer is None and learner is not None:
            trainer = module_trainer_again(store.manifest["trainer"], learner, device)
        if trainer is None:
            kept: Trainer | None = store.sklearn_trainer()
            trainer = rebuild(store.manifest["trainer"], device) if kept is None else kept
        if isinstance(trainer, ModuleTrainer) and PROBE in store.manifest["trainer"]:
            of_samples = store.manifest["data"]
            refuse_other_probe(
                store.manifest["trainer"], trainer.described_for(of_samples["shape"], of_samples["dtype"])
            )
        trainer, shared = with_own_features(trainer), store.shared()
        if shared is not None:
            trainer.shared.update(shared)  # type: ignore[attr-defined]
        return cls(store.described(), trainer, store.complete())

    def save(self, folder: str | Path) -> Ensemble:
        """Write an ensemble that is in memory to a folder, and return the ensemble in the folder.

        Networks become safetensors files, classifiers of scikit-learn skops files (extra `sklearn`); nothing is pickled.
        """
        if isinstance(self.trainer, SklearnTrainer):
            return self._save_models(path_of("folder", folder), self.trainer)
        if any(not isinstance(group.weights(), dict) for group in self.groups):
            raise BadInput(IN_MEMORY_ONLY)
        store = WeightsFolder.begin(path_of("folder", folder), self.manifest)
        if getattr(self.trainer, "shared", None):
            store.write_shared(self.trainer.shared)  # type: ignore[attr-defined]
        for group in self.groups:
            weights: Any = group.weights()
            store.write(group.numbers, weights)
        return Ensemble(store.described(), self.trainer, store.complete())

    def _save_models(self, folder: Path, trainer: SklearnTrainer) -> Ensemble:
        store = WeightsFolder.begin(folder, self.manifest)
        store.write_learner(trainer)
        for group in self.groups:
            models: Any = group.weights()
            store.write_models(group.numbers, models)
        if store.trusted:
            warnings.warn(
                f"{folder} holds {', '.join(sorted(store.trusted))}, which skops does not trust by itself: "
                f"Ensemble.load({str(folder)!r}, trust={sorted(store.trusted)}) reads it",
                stacklevel=3,
            )
        return Ensemble(store.described(), trainer, store.complete())

    @property
    def group_numbers(self) -> list[list[int]]:
        """Numbers of the base classifiers of each group, in the order in which groups vote."""
        return [list(group.numbers) for group in self.groups]

    @property
    def device(self) -> str:
        """The device on which base classifiers vote."""
        return str(self.trainer.spec.get("device", "cpu"))

    @property
    def fingerprints(self) -> list[str]:
        """The sha256 of every base classifier's weights, in order; "empty" and "failed" where there are none."""
        hashes = ["empty"] * self.models
        for number in self.failed:
            hashes[number] = "failed"
        for group in self.groups:
            for number, fingerprint in zip(group.numbers, group.fingerprints, strict=True):
                hashes[number] = fingerprint
        return hashes

    @property
    def weights_sha256(self) -> str:
        """One hash over all fingerprints; "unknown" for models of other libraries."""
        if "unknown" in self.fingerprints:
            return "unknown"
        return hashlib.sha256("\n".join(self.fingerprints).encode()).hexdigest()

    def _training(self) -> dict[str, Any]:
        """Also the hash of the features that all base classifiers share."""
        features = self.features_sha256
        return {**super()._training(), **({} if features is None else {"features_sha256": features})}

    @property
    def features_sha256(self) -> str | None:
        """The hash of the features that all base classifiers share; None if they share none."""
        shared = getattr(self.trainer, "shared", None)
        return tensors_sha256(shared) if shared else None

    @property
    def identified(self) -> bool:
        """Also: whether the trainer, which computes scores, is no code of the caller's."""
        return super().identified and (is_rebuilt(self.trainer) or isinstance(self.trainer, SklearnTrainer))

    def scores(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Scores of every base classifier, float32 [inputs, models, classes]; 0 where `failures.RULE` says so."""
        out = np.zeros((len(x), self.models, self.num_classes), dtype=np.float32)
        for numbers, start, scores in self._scores_by_group(x):
            out[start : start + scores.shape[1], numbers] = scores.float().cpu().numpy().transpose(1, 0, 2)
        return out

    def votes(self, x: NDArray[Any]) -> NDArray[np.integer]:
        """The vote of every base classifier, [inputs, models]."""
        counter = self._count(x, votes=True)
        assert counter.votes is not None
        return counter.votes

    def tally(
        self,
        x: NDArray[Any],
        aggregate: str = "plurality",
        on_progress: ProgressCallback | None = None,
        checkpoint: VotesCheckpoint | None = None,
        keep_votes: bool = False,
        on: str = "here",
    ) -> EnsembleVotes:
        """See `VotingEnsemble.tally`. The second round of spread run-offs votes here, whatever `on`, and is not saved."""
        choose("aggregate", aggregate, AGGREGATES)
        spread, two_rounds = self.partition.spread, aggregate == "runoff"
        kept = keep_votes or spread > 1
        counter = self._count(x, duels=two_rounds, votes=kept, on_progress=on_progress, checkpoint=checkpoint, on=on)
        arrays = counter.arrays()
        if two_rounds and spread > 1:
            first = EnsembleVotes.from_arrays({"counts": arrays["counts"], "duels": arrays["duels"]}, self.num_classes)
            assert first.winner is not None
            del arrays["duels"]
            arrays |= {"winner": first.winner, "prefers": self.preferences(x, first.winner, on_progress)}
        return EnsembleVotes.from_arrays(
            arrays, self.num_classes, spread=spread, against=self.against, keep_votes=keep_votes
        )

    def rounds(self, aggregate: str) -> int:
        """How often every model votes in `tally`: twice where the second round depends on the winner of the first."""
        return 2 if aggregate == "runoff" and self.partition.spread > 1 else 1

    def _count(
        self,
        x: NDArray[Any],
        *,
        duels: bool = False,
        votes: bool = False,
        on_progress: ProgressCallback | None = None,
        checkpoint: VotesCheckpoint | None = None,
        on: str = "here",
    ) -> VoteCounter:
        cluster = connected_cluster(on)
        voting = self._voting(x)
        counter = VoteCounter(len(x), self.num_classes, self.models, duels=duels, votes=votes)
        if checkpoint:
            checkpoint.restore(counter, [len(group.numbers) for group in self.groups])
        if on_progress:
            on_progress(sum(len(group.numbers) for group in self.groups[: counter.groups]))
        try:
            for of_group in count_groups(cluster, voting, self.groups[counter.groups :], duels=duels, votes=votes):
                counter = counter.plus(of_group)  # one assignment: an interruption finds all votes of a group, or none
                if on_progress:
                    on_progress(of_group.models)
                if checkpoint:
                    checkpoint.save(counter)
        except (KeyboardInterrupt, VaubanError):
            if checkpoint:
                checkpoint.save(counter, now=True)
            raise
        if checkpoint and duels and self.partition.spread > 1:  # the second round starts from these votes
            checkpoint.save(counter, now=True)
        counter.add_constant(self.constant)
        return counter

    def preferences(
        self, x: NDArray[Any], winner: NDArray[np.int64], on_progress: ProgressCallback | None = None
    ) -> NDArray[np.uint8]:
        """Which base classifiers prefer the winner [m] to each class, uint8 [m, classes, ceil(models / 8)]."""
        rows = int(self.manifest["compute"]["rows"])
        step = max(rows, _BITS_AT_ONCE // (self.models * self.num_classes) // rows * rows)
        packed = []
        for i in range(0, len(x), step):
            preferences = PreferenceCounter(winner[i : i + step], self.num_classes, self.models)
            for numbers, start, scores in self._scores_by_group(x[i : i + step], on_progress if i == 0 else None):
                preferences.add(numbers, scores, start)
            preferences.add_constant(self.constant)
            packed.append(preferences.packed())
        return np.concatenate(packed)

    def _scores_by_group(
        self, x: NDArray[Any], on_progress: ProgressCallback | None = None
    ) -> Iterator[tuple[list[int], int, torch.Tensor]]:
        """Scores [group, inputs, classes] of each group on each chunk of inputs, with numbers and first input."""
        voting = self._voting(x)
        for group in self.groups:
            for start, scores in voting.scores(group.weights()):
                yield group.numbers, start, scores
            if on_progress:
                on_progress(len(group.numbers))

    def _voting(self, x: NDArray[Any]) -> Voting:
        """The inputs after the ensemble's preprocessing, and what votes on them."""
        self.check_inputs(x)
        compute, preprocessed = self.manifest["compute"], preprocess(self.manifest["preprocessing"], x)
        return Voting(self.trainer, preprocessed, self.num_classes, int(compute["rows"]), compute["threads"])


def _training(
    x: Any,
    y: Any,
    partition: Partition | int | None,
    partitions: int | None,
    spread: int,
    learner: Any,
    num_classes: int | None,
) -> tuple[NDArray[Any], NDArray[np.int64], Partition, Trainer]:
    """Samples, labels, partition and trainer, from whatever a caller gave."""
    samples = to_samples(x)
    split = make_partition(partition, partitions, spread)
    check_samples(samples)
    labels = labels_of(samples, y)
    trainer = make_trainer(learner, labels, samples.shape[1:], num_classes, samples.dtype)
    warn_of_common_statistics(samples)
    return samples, labels, split, trainer
