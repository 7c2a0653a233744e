"""The ensemble: base classifiers trained on parts of a training set, their votes, and what these prove."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from vauban.errors import BadInput
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.training.fitting import IN_MEMORY_ONLY, InMemoryGroup, trained
from vauban.poisoning.training.preprocessing import preprocess
from vauban.poisoning.training.trainer import Tick, Trainer, rebuild
from vauban.poisoning.training.weights_folder import SavedGroup, WeightsFolder
from vauban.poisoning.votes.certificates import PoisoningCertificates, derive
from vauban.poisoning.votes.checkpoint import VotesCheckpoint
from vauban.poisoning.votes.counting import PreferenceCounter, VoteCounter
from vauban.poisoning.votes.ensemble_votes import AGGREGATES, EnsembleVotes
from vauban.specs import choose

_AT_ONCE = 1 << 29


class Ensemble:
    """Base classifiers over a partition of a training set. `Ensemble.fit` or `Ensemble.load` makes one.

    `manifest`: everything the weights are a function of. `against`: "samples" or "labels", what may be poisoned.
    """

    def __init__(self, manifest: dict[str, Any], trainer: Trainer, groups: Sequence[SavedGroup | InMemoryGroup]):
        self.manifest, self.trainer, self.groups = manifest, trainer, list(groups)
        self.partition = Partition.from_spec(manifest["partition"]["spec"])
        self.against: str = manifest["against"]

    @classmethod
    def fit(
        cls,
        x: NDArray[Any],
        y: ArrayLike,
        partition: Partition,
        trainer: Trainer,
        *,
        against: str | None = None,
        preprocessing: str = "none",
        folder: str | Path | None = None,
        source: dict[str, Any] | None = None,
        tick: Tick | None = None,
        began: Callable[[int, int], None] | None = None,
        learns: Callable[[int], Tick] | None = None,
        on: str = "here",
    ) -> Ensemble:
        """Train a base classifier on each part of the samples `x` [n, ...] with labels `y` [n].

        With a `folder`, groups are kept there as they are trained, and the same call takes up what is missing. `against`:
        "labels" where only labels may be poisoned: needed for sorted partitions and features learned from all inputs; else
        "samples". `source` goes into the manifest. `tick` is told of partitions trained; `began`, before that, how many
        are there and how many there will be; `learns`, if features are learned first, how many pictures that will see, and gives
        the function that is told of them. `on`: "ray" hands groups to the workers of a Ray cluster, with the same result.
        """
        manifest, groups = trained(
            x,
            y,
            partition,
            trainer,
            against=against,
            preprocessing=preprocessing,
            folder=None if folder is None else Path(folder),
            source=source or {},
            tick=tick,
            began=began,
            learns=learns,
            on=on,
        )
        return cls(manifest, trainer, groups)

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "cpu", trainer: Trainer | None = None) -> Ensemble:
        """The complete ensemble in a folder; weights are read when they are needed."""
        store = WeightsFolder.open(Path(folder))
        made = rebuild(store.manifest["trainer"], device) if trainer is None else trainer
        shared = store.shared()
        if shared is not None:
            made.shared.update(shared)  # type: ignore[attr-defined]
        torch.set_num_threads(store.manifest["compute"]["threads"])
        return cls(store.manifest, made, store.complete())

    def save(self, folder: str | Path) -> Ensemble:
        """Keep an ensemble that is in memory in a folder, and return it as it is there."""
        if any(not isinstance(group.weights(), dict) for group in self.groups):
            raise BadInput(IN_MEMORY_ONLY)
        store = WeightsFolder.begin(Path(folder), self.manifest)
        if getattr(self.trainer, "shared", None):
            store.keep_shared(self.trainer.shared)  # type: ignore[attr-defined]
        for group in self.groups:
            store.keep(group.numbers, group.weights())
        return Ensemble(store.manifest, self.trainer, store.complete())

    @property
    def models(self) -> int:
        """How many base classifiers there are."""
        return self.partition.models

    @property
    def num_classes(self) -> int:
        """How many classes they choose from."""
        return int(self.manifest["num_classes"])

    @property
    def empty(self) -> list[int]:
        """Base classifiers without training samples: by rule they vote for class 0."""
        return list(self.manifest["partition"]["empty"])

    @property
    def fingerprints(self) -> list[str]:
        """The sha256 of every base classifier's weights, in order; "empty" where there are none."""
        prints = ["empty"] * self.models
        for group in self.groups:
            for number, fingerprint in zip(group.numbers, group.fingerprints, strict=True):
                prints[number] = fingerprint
        return prints

    @property
    def weights_sha256(self) -> str:
        """One hash over all fingerprints."""
        return hashlib.sha256("\n".join(self.fingerprints).encode()).hexdigest()

    def scores(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Scores of every base classifier, float32 [inputs, models, classes]; 0 for those without training samples."""
        out = np.zeros((len(x), self.models, self.num_classes), dtype=np.float32)
        for numbers, start, scores in self._each(x):
            out[start : start + scores.shape[1], numbers] = scores.float().cpu().numpy().transpose(1, 0, 2)
        return out

    def votes(self, x: NDArray[Any]) -> NDArray[np.integer]:
        """The vote of every base classifier, [inputs, models]."""
        ballots = self._counted(x, votes=True)
        assert ballots.votes is not None
        return ballots.votes

    def tally(
        self,
        x: NDArray[Any],
        aggregate: str = "plurality",
        tick: Tick | None = None,
        unfinished: VotesCheckpoint | None = None,
    ) -> EnsembleVotes:
        """All that claims about the inputs `x` [m, ...] need, and no more. `tick` is told of models that have voted.

        `unfinished`: where the votes of the first round are kept while models vote, and taken up if some have.
        """
        choose("aggregate", aggregate, AGGREGATES)
        spread, two_rounds = self.partition.spread, aggregate == "runoff"
        ballots = self._counted(x, duels=two_rounds, votes=spread > 1, tick=tick, unfinished=unfinished)
        arrays = ballots.arrays()
        if two_rounds and spread > 1:
            first = EnsembleVotes.from_arrays({"counts": arrays["counts"], "duels": arrays["duels"]}, self.num_classes)
            assert first.winner is not None
            del arrays["duels"]
            arrays |= {"winner": first.winner, "prefers": self._preferences(x, first.winner, tick)}
        return EnsembleVotes.from_arrays(arrays, self.num_classes, spread=spread, against=self.against)

    def rounds(self, aggregate: str) -> int:
        """How many times every model votes in `tally`: twice where a second round needs to know who won the first."""
        return 2 if aggregate == "runoff" and self.partition.spread > 1 else 1

    def certify(
        self,
        x: NDArray[Any],
        y: ArrayLike | None = None,
        aggregate: str = "plurality",
        *,
        k: int = 1,
        label: str | None = None,
        tick: Tick | None = None,
    ) -> PoisoningCertificates:
        """Claims about the inputs `x` [m, ...], judged by `y` [m] if given (see `claims.derive`)."""
        return derive(self.tally(x, aggregate, tick), y, aggregate=aggregate, k=k, label=label)

    def _counted(
        self,
        x: NDArray[Any],
        *,
        duels: bool = False,
        votes: bool = False,
        tick: Tick | None = None,
        unfinished: VotesCheckpoint | None = None,
    ) -> VoteCounter:
        empty = functools.partial(VoteCounter, len(x), self.num_classes, self.models, duels=duels, votes=votes)
        shown, ballots = self._shown(x), empty()
        if unfinished:
            unfinished.take_up(ballots, [len(group.numbers) for group in self.groups])
        if tick:
            tick(sum(len(group.numbers) for group in self.groups[: ballots.groups]))
        try:
            for group in self.groups[ballots.groups :]:
                of_group = empty()
                for start, scores in self._of_group(group, shown):
                    of_group.add(group.numbers, scores, start)
                ballots = ballots.plus(of_group)  # in one step: an interruption finds all of a group's votes, or none
                if tick:
                    tick(len(group.numbers))
                if unfinished:
                    unfinished.keep(ballots)
        except KeyboardInterrupt:
            if unfinished:
                unfinished.keep(ballots, now=True)
            raise
        if unfinished and duels and self.partition.spread > 1:  # the second round begins with these
            unfinished.keep(ballots, now=True)
        ballots.add_empty(self.empty)
        return ballots

    def _preferences(self, x: NDArray[Any], winner: NDArray[np.int64], tick: Tick | None) -> NDArray[np.uint8]:
        rows = int(self.manifest["compute"]["rows"])
        step = max(rows, _AT_ONCE // (self.models * self.num_classes) // rows * rows)
        packed = []
        for i in range(0, len(x), step):
            preferences = PreferenceCounter(winner[i : i + step], self.num_classes, self.models)
            for numbers, start, scores in self._each(x[i : i + step], tick if i == 0 else None):
                preferences.add(numbers, scores, start)
            preferences.add_empty(self.empty)
            packed.append(preferences.packed())
        return np.concatenate(packed)

    def _each(self, x: NDArray[Any], tick: Tick | None = None) -> Iterator[tuple[list[int], int, torch.Tensor]]:
        """Scores [group, inputs, classes] of each group on each chunk of inputs."""
        shown = self._shown(x)
        for group in self.groups:
            for start, scores in self._of_group(group, shown):
                yield group.numbers, start, scores
            if tick:
                tick(len(group.numbers))

    def _shown(self, x: NDArray[Any]) -> NDArray[Any]:
        """Inputs as base classifiers see them."""
        shape, dtype = self.manifest["data"]["shape"], self.manifest["data"]["dtype"]
        if list(x.shape[1:]) != shape or x.dtype.name != dtype:
            raise BadInput(
                f"inputs of shape {list(x.shape[1:])}, {x.dtype}: the ensemble was trained on {shape}, {dtype}"
            )
        return preprocess(self.manifest["preprocessing"], x)

    def _of_group(self, group: SavedGroup | InMemoryGroup, shown: NDArray[Any]) -> Iterator[tuple[int, torch.Tensor]]:
        """Scores on chunks that are always of one shape: the last is padded."""
        weights, height = group.weights(), int(self.manifest["compute"]["rows"])
        for start in range(0, len(shown), height):
            chunk = shown[start : start + height]
            rows = len(chunk)
            if rows < height and isinstance(weights, dict):
                chunk = np.concatenate([chunk, np.zeros((height - rows, *chunk.shape[1:]), chunk.dtype)])
            yield start, self.trainer.scores(weights, chunk)[:, :rows]
