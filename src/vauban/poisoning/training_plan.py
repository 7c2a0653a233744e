"""Estimates time, memory and disk of a training before it begins: some base classifiers are trained, timed and thrown away."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.data.originals import Originals
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.progress import no_progress
from vauban.poisoning.training.fitting import train_base_classifiers
from vauban.poisoning.training.trainer import Trainer

_PROBE = 3  # base classifiers that are trained one after another to estimate the rest


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
    """Train one group (or `_PROBE` base classifiers) of the largest parts twice, and multiply the second time."""
    sizes = np.array([len(rows) for rows in partition.members(x, y, originals)])
    at_once = int(trainer.spec.get("group", 1))
    order = np.argsort(-sizes, kind="stable")
    chosen = [int(i) for i in order[: max(at_once, _PROBE)] if sizes[i]]
    if not chosen:
        return TrainingPlan(len(sizes), 0, 0, len(sizes), 0, at_once, 0.0, None, x.nbytes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):  # the first time also starts threads and compiles
            began = time.perf_counter()
            groups = train_base_classifiers(
                x,
                y,
                partition,
                trainer,
                against=None,
                preprocessing=preprocessing,
                folder=None,
                source={},
                on="here",
                progress=no_progress,
                only=chosen,
                originals=originals,
            )[1]
            seconds = time.perf_counter() - began
    weights = [_size(group.weights()) for group in groups]
    known = None if not weights or None in weights else sum(size for size in weights if size is not None)
    used, scale = int((sizes > 0).sum()), (sizes > 0).sum() / len(chosen)
    return TrainingPlan(
        models=len(sizes),
        smallest=int(sizes.min()),
        largest=int(sizes.max()),
        empty=len(sizes) - used,
        tried=len(chosen),
        at_once=at_once,
        seconds=float(seconds * scale),
        weights=None if known is None else int(known * scale),
        samples=x.nbytes,
    )


def _size(weights: Any) -> int | None:
    """Bytes of weights {name: [group, ...]}; None for models of another library."""
    return sum(value.nbytes for value in weights.values()) if isinstance(weights, dict) else None
