"""Estimates time, memory and disk of a training before it begins: some base classifiers are trained, timed and thrown away."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.data.originals import Originals
from vauban.poisoning.partitioning.partition import Partition, TrainingSet, TrainingSets
from vauban.poisoning.progress import no_progress
from vauban.poisoning.training.failures import Failure
from vauban.poisoning.training.fitting import invalid_parts, prepare_features
from vauban.poisoning.training.guarded import fit_parts
from vauban.poisoning.training.preprocessing import preprocess
from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer
from vauban.poisoning.training.trainer import Trainer, with_own_features

_PROBE = 3  # base classifiers that are trained one after another to estimate the rest
_STEPS = (2, 14)  # steps of a group that are timed, few and more


@dataclass(frozen=True)
class TrainingPlan:
    """What a training would take: `seconds` on this machine (without features that all parts share), `weights` in bytes (None
    where they cannot be measured), of which a folder keeps all and memory one group of `at_once`; `samples` bytes in memory.

    `smallest`, `largest`: samples of a part. `empty`: parts without any. `tried`: base classifiers that were trained and timed.
    """

    models: int
    smallest: int
    largest: int
    empty: int
    tried: int
    at_once: int
    seconds: float
    weights: int | None
    samples: int

    @property
    def memory(self) -> int | None:
        """Bytes for the samples, a copy of a group's samples, and the weights of a group with two moments of its optimiser."""
        if self.weights is None:
            return None
        group = self.samples * self.at_once // max(1, self.models)
        return self.samples + group + 4 * self.weights * self.at_once // max(1, self.models)


def plan_training(
    x: NDArray[Any],
    y: NDArray[np.int64],
    partition: Partition,
    trainer: Trainer,
    preprocessing: str = "none",
    originals: Originals | None = None,
) -> TrainingPlan:
    """Train one group, or some base classifiers of the largest parts, and multiply; of a stacked trainer only a few steps."""
    began = time.perf_counter()
    members = partition.members(x, y, originals)
    splitting = time.perf_counter() - began
    sizes = np.array([len(rows) for rows in members])
    at_once, used = int(trainer.spec.get("group", 1)), int((sizes > 0).sum())
    trained = sizes.copy()
    trained[list(invalid_parts(x, y, members, trainer))] = 0
    stacked = type(trainer) is StackedTrainer
    chosen = _largest_group(trained, at_once) if at_once > 1 or stacked else _largest(trained)
    seconds, known = 0.0, None
    if chosen and isinstance(trainer, StackedTrainer) and stacked:
        parts = TrainingSets(x, y, [members[i] for i in chosen])
        one, known = _time_steps(trainer, [(preprocess(preprocessing, some), labels) for some, labels in parts], chosen)
        groups = len({int(i) // at_once for i in np.flatnonzero(sizes)})
        on_cpu = torch.device(trainer.device).type == "cpu"
        seconds = one * -(-groups // (torch.get_num_threads() if on_cpu else 1))
    elif chosen:
        parts = TrainingSets(x, y, [members[i] for i in chosen])
        seconds, known = _time_whole(with_own_features(trainer), x, preprocessing, parts, chosen)
        seconds *= used / len(chosen)
    return TrainingPlan(
        models=len(sizes),
        smallest=int(sizes.min()),
        largest=int(sizes.max()),
        empty=len(sizes) - used,
        tried=len(chosen),
        at_once=at_once,
        seconds=float(seconds) + splitting,
        weights=None if known is None else known * used // len(chosen),
        samples=x.nbytes,
    )


def _largest(sizes: NDArray[np.int64]) -> list[int]:
    order = np.argsort(-sizes, kind="stable")
    return [int(i) for i in order[:_PROBE] if sizes[i]]


def _largest_group(sizes: NDArray[np.int64], at_once: int) -> list[int]:
    """The base classifiers that a trainer trains together with the one of the largest part."""
    first = int(sizes.argmax()) // at_once * at_once
    return [i for i in range(first, min(first + at_once, len(sizes))) if sizes[i]]


def _time_steps(trainer: StackedTrainer, parts: list[TrainingSet], numbers: list[int]) -> tuple[float, int | None]:
    """Seconds of one group and bytes of its weights, from a training of few steps and one of more, which differ by steps alone.

    One step is made before, to start threads.
    """
    seconds, few, more = [], *(min(steps, trainer.steps) for steps in _STEPS)
    for steps in (1, few, more):
        began = time.perf_counter()
        groups = list(fit_parts(replace(trainer, steps=steps), parts, numbers, lambda _: None))
        seconds.append(time.perf_counter() - began)
    each = max(0.0, seconds[2] - seconds[1]) / max(1, more - few)
    return seconds[2] + each * (trainer.steps - more), _total(weights for _, weights in groups)


def _time_whole(
    trainer: Trainer, x: NDArray[Any], preprocessing: str, parts: TrainingSets, chosen: list[int]
) -> tuple[float, int | None]:
    """Seconds of a training of these base classifiers, and bytes of their weights; one is trained before, to start threads."""
    prepare_features(trainer, preprocess(preprocessing, x), x, None, no_progress)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for count in (1, len(chosen)):
            some = [(preprocess(preprocessing, samples), labels) for samples, labels in parts[:count]]
            began = time.perf_counter()
            groups = list(fit_parts(trainer, some, chosen[:count], lambda _: None))
            seconds = time.perf_counter() - began
    return seconds, _total(weights for _, weights in groups if not isinstance(weights, Failure))


def _total(groups: Iterable[Any]) -> int | None:
    """Bytes of the weights of groups; None if there are none, or of another library."""
    weights = [_size(group) for group in groups]
    return None if not weights or None in weights else sum(size for size in weights if size is not None)


def _size(weights: Any) -> int | None:
    """Bytes of weights {name: [group, ...]}; None for models of another library."""
    return sum(value.nbytes for value in weights.values()) if isinstance(weights, dict) else None
