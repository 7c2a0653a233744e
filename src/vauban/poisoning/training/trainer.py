"""Defines what `Ensemble.fit` needs of a trainer, and rebuilds trainers from manifests."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from vauban.errors import BadInput

if TYPE_CHECKING:
    import torch

    from vauban.poisoning.partitioning.partition import TrainingSet
    from vauban.poisoning.progress import ProgressCallback

SEEDS = ("partition", "shared")

_REBUILT = {
    "stacked": "vauban.poisoning.training.stacked.stacked_trainer:StackedTrainer",
    "kernel": "vauban.poisoning.training.kernel_machines:KernelTrainer",
    "heads": "vauban.poisoning.training.stacked.feature_heads:HeadTrainer",
}


class Trainer(Protocol):
    """Trains base classifiers and computes their scores.

    `fit` gets the training sets of base classifiers (none empty, samples sorted by content) and their numbers, and yields
    groups as they are trained: numbers, and weights {name: tensor [group, ...]} or a list of in-memory models. The weights of
    numbers[i] must be a function of parts[i] and numbers[i] alone, also when it is trained on its own, and so must the errors
    that parts[i] causes; `fit` may yield a `Failure` instead of weights. A base classifier that fails has a constant vote
    (`failures.RULE`), but errors of Vauban's, which must not depend on the samples, and of the machine stop the training.
    `scores` takes such weights to [group, inputs, classes], each base classifier's being a function of its weights and the input.
    A trainer with a method `prepare(x, on_progress)` first learns features from all unlabelled samples, in `learning_epochs`
    passes, and keeps them in the dict `shared`, of which each ensemble has its own (`with_own_features`); its property
    `prepared`, if it has one, says whether all is there.
    """

    @property
    def num_classes(self) -> int: ...

    @property
    def spec(self) -> dict[str, Any]: ...

    def fit(
        self, parts: Sequence[TrainingSet], numbers: Sequence[int], on_progress: ProgressCallback | None = None
    ) -> Iterator[tuple[list[int], Any]]: ...

    def scores(self, weights: Any, x: NDArray[Any]) -> torch.Tensor: ...


def describe_trainer(trainer: Trainer, shape: Sequence[int], dtype: str) -> dict[str, Any]:
    """The manifest's entry for a trainer of samples of this shape and type: its spec, under "trainer" the name by which `rebuild`
    finds it, and what a trainer of modules says of these."""
    name = next((key for key, known in _REBUILT.items() if known == _home(trainer)), type(trainer).__name__)
    more = trainer.described_for(shape, dtype) if hasattr(trainer, "described_for") else {}
    return {"trainer": name, **trainer.spec, **more}


def with_own_features(trainer: Trainer) -> Trainer:
    """The trainer; of one that shares features a copy with a dict of its own, which no other ensemble changes."""
    if not hasattr(trainer, "prepare"):
        return trainer
    if hasattr(trainer, "with_shared"):
        return trainer.with_shared(trainer.shared)  # type: ignore[attr-defined]
    own = copy.copy(trainer)
    object.__setattr__(own, "shared", dict(trainer.shared))  # type: ignore[attr-defined]
    return own


def is_rebuilt(trainer: Trainer) -> bool:
    """Whether a trainer is one of Vauban's own, of which the manifest says all that scores depend on besides weights."""
    return _home(trainer) in _REBUILT.values()


def _home(trainer: Trainer) -> str:
    return f"{type(trainer).__module__}:{type(trainer).__name__}"


def rebuild(spec: dict[str, Any], device: str = "cpu") -> Trainer:
    """The trainer that a manifest describes, computing scores on `device`; only Vauban's own trainers can be rebuilt."""
    name = spec.get("trainer", "")
    if name not in _REBUILT:
        raise BadInput(
            f"the ensemble was trained by {name!r}: give the same trainer to Ensemble.load(folder, trainer=…)"
        )
    module, _, cls = _REBUILT[name].partition(":")
    rest = {key: value for key, value in spec.items() if key != "trainer"}
    return getattr(import_module(module), cls).from_spec({**rest, "device": device})
