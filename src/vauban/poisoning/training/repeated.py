"""Trains some base classifiers again after the others, to find learners whose votes are no function of one part alone."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vauban.engine.cluster import RayCluster
from vauban.errors import KeepsState
from vauban.poisoning.partitioning.partition import TrainingSet, TrainingSets
from vauban.poisoning.progress import ProgressReporter
from vauban.poisoning.training.deterministic import thread_count
from vauban.poisoning.training.failures import Failure
from vauban.poisoning.training.guarded import fit_parts, guarded_scores
from vauban.poisoning.training.ray_jobs import call_on
from vauban.poisoning.training.scikit_learn import SklearnTrainer
from vauban.poisoning.training.trainer import Trainer

_INPUTS = 200  # training samples whose votes are compared
_DECOY = 32  # samples of the made-up part that is trained before
_MANY = 10  # parts from which a second one is trained again
_ROUNDING = 1e-4  # scores that differ by less are a tie that threads rounded otherwise


class _Group(Protocol):
    @property
    def numbers(self) -> list[int]: ...

    def weights(self) -> Any: ...


def check_repeated(
    place: RayCluster | None,
    trainer: Trainer,
    parts: TrainingSets,
    numbers: Sequence[int],
    groups: Sequence[_Group],
    threads: int,
    progress: ProgressReporter,
    kept: bool = False,
) -> None:
    """Refuse a caller's own learner if a base classifier votes otherwise when it is trained again, after a made-up part.

    `numbers`: those of `parts`, of which the first is trained again, and the middle one of ten or more, and compared with what
    `groups` hold. On Ray one worker does both trainings that are compared, unless those of an earlier call were `kept`.
    """
    if not len(numbers):
        return
    alone = replace(trainer, jobs=1) if isinstance(trainer, SklearnTrainer) else trainer
    x = _spaced(parts, _INPUTS)[0]
    inputs = np.concatenate([np.zeros_like(x[:1]), x])
    decoy = _decoy(*_spaced(parts, _DECOY), trainer.num_classes)
    chosen = _with_two_classes(parts)
    with progress("training again", len(chosen), "partitions") as on_progress:
        for i in chosen:
            before = None if place and not kept else _scores(alone, _weights(groups, numbers[i]), inputs)
            work = partial(_differs, alone, parts[i], numbers[i], before, decoy, inputs, threads)
            if call_on(place, trainer, work):
                raise KeepsState(
                    f"base classifier {numbers[i]} votes otherwise when it is trained again on its part, after others: its votes "
                    "must be a function of its own samples, else one poisoned sample may change all of them and nothing can be "
                    "certified; let the learner keep nothing outside the estimator or module (in its class, in globals), and "
                    "fix its random numbers, by a parameter random_state, which Vauban sets, or a seed of its own"
                )
            on_progress(1)


def _spaced(parts: TrainingSets, most: int) -> TrainingSet:
    """At most so many samples of all parts, evenly spaced."""
    rows = np.concatenate(list(parts.rows))
    some = rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.int64)]
    return parts.x[some], parts.y[some]


def _decoy(x: NDArray[Any], y: NDArray[np.int64], classes: int) -> TrainingSet:
    """Samples with other labels and ten times the values, which learners that keep something of earlier parts shall keep."""
    most = np.iinfo(x.dtype).max // 10 if x.dtype.kind in "ui" else np.finfo(x.dtype).max / 11
    return np.clip(x, -most if x.dtype.kind != "u" else 0, most).astype(x.dtype) * x.dtype.type(10), (y + 1) % classes


def _with_two_classes(parts: TrainingSets) -> list[int]:
    """Which parts are trained again: the first, and the middle one of many; a part of one class may need no learner."""
    mixed = [i for i, rows in enumerate(parts.rows) if len(np.unique(parts.y[rows])) > 1] or list(range(len(parts)))
    return [mixed[0]] if len(mixed) < _MANY else [mixed[0], mixed[len(mixed) // 2]]


def _differs(
    trainer: Trainer,
    part: TrainingSet,
    number: int,
    before: NDArray[Any] | None,
    decoy: TrainingSet,
    inputs: NDArray[Any],
    threads: int,
) -> bool:
    """Whether votes differ from those by the scores `before`, or by a first training here, once a decoy has been trained."""
    with thread_count(threads):
        first = _trained_scores(trainer, part, number, inputs) if before is None else before
        _train_decoy(trainer, decoy, number)
        again = _trained_scores(trainer, part, number, inputs)
    if first is None or again is None:
        return (first is None) != (again is None)
    same = (first.argmax(axis=1) == again.argmax(axis=1)) | np.isclose(first, again, _ROUNDING, _ROUNDING).all(axis=1)
    return not same.all()


def _trained_scores(trainer: Trainer, part: TrainingSet, number: int, inputs: NDArray[Any]) -> NDArray[Any] | None:
    """Scores [inputs, classes] after a training on the part; None if it fails."""
    [(_, weights)] = fit_parts(trainer, [part], [number])
    return None if isinstance(weights, Failure) else _scores(trainer, (weights, 0), inputs)


def _train_decoy(trainer: Trainer, decoy: TrainingSet, number: int) -> None:
    """Train on the made-up part and forget the result; a failure on it says nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(Exception):
            list(trainer.fit([decoy], [number], None))


def _weights(groups: Sequence[_Group], number: int) -> tuple[Any, int]:
    """The weights of the group that holds a base classifier, and its place there."""
    group = next(group for group in groups if number in group.numbers)
    return group.weights(), list(group.numbers).index(number)


def _scores(trainer: Trainer, place: tuple[Any, int], inputs: NDArray[Any]) -> NDArray[Any]:
    """Scores [inputs, classes] of one base classifier of a group."""
    weights, i = place
    return guarded_scores(trainer.scores, weights, inputs, trainer.num_classes)[i].float().cpu().numpy()
