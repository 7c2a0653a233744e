"""Trainers: each turns small training sets into base classifiers, one for each, that depend on nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.errors import BadInput
from vauban.poisoning.training.scikit_learn import SEEDS, Part, SklearnTrainer, Tick
from vauban.specs import choose

__all__ = ["ModuleTrainer", "Part", "SklearnTrainer", "Tick", "Trainer", "rebuild", "told_spec"]

HOMES = {
    "stacked": "vauban.poisoning.training.stacked.stacked_trainer:StackedTrainer",
    "heads": "vauban.poisoning.training.stacked.feature_heads:HeadTrainer",
}


class Trainer(Protocol):
    """What `Ensemble.fit` asks of a trainer.

    `fit` gets the training sets of base classifiers (none of them empty, samples in the order of their content) and their
    numbers, and yields groups as they are ready: numbers, and weights {name: tensor [group, ...]} or a list of
    in-memory models. Weights of number j must be a function of parts[j] and j alone. `scores` gets weights back and gives
    [group, inputs, classes]. A trainer with a method `prepare(x, folder, tick)` learns features from all unlabelled samples
    first, `learning_epochs` times through, and keeps them in the dict `shared`.
    """

    @property
    def num_classes(self) -> int: ...

    @property
    def spec(self) -> dict[str, Any]: ...

    def fit(
        self, parts: Sequence[Part], numbers: Sequence[int], tick: Tick | None = None
    ) -> Iterator[tuple[list[int], Any]]: ...

    def scores(self, weights: Any, x: NDArray[Any]) -> torch.Tensor: ...


def told_spec(trainer: Trainer) -> dict[str, Any]:
    """What a manifest keeps of a trainer: its spec, and under "trainer" the name by which `rebuild` finds it."""
    kind = type(trainer)
    name = next((key for key, home in HOMES.items() if home == f"{kind.__module__}:{kind.__name__}"), kind.__name__)
    return {"trainer": name, **trainer.spec}


def rebuild(spec: dict[str, Any], device: str = "cpu") -> Trainer:
    """The trainer that a manifest describes, for scores on this device; only those that Vauban ships can be rebuilt."""
    name = spec.get("trainer", "")
    if name not in HOMES:
        raise BadInput(
            f"the ensemble was trained by {name!r}: give the same trainer to Ensemble.load(folder, trainer=…)"
        )
    module, _, cls = HOMES[name].partition(":")
    rest = {key: value for key, value in spec.items() if key != "trainer"}
    return getattr(import_module(module), cls).from_spec({**rest, "device": device})


@dataclass(frozen=True)
class ModuleTrainer:
    """Any torch module: `build()` makes a fresh one for each partition, trained by AdamW on all its samples at every step.

    8-bit samples are divided by 255. `normalise`: "partition" subtracts the mean and divides by the deviation of each channel of
    the partition's own samples. Partitions are trained one after another (`StackedTrainer` trains them side by side).
    """

    build: Callable[[], torch.nn.Module]
    num_classes: int
    steps: int = 200
    lr: float = 1e-3
    weight_decay: float = 5e-4
    normalise: str = "none"
    seeds: str = "partition"
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        choose("way to seed", self.seeds, SEEDS)
        choose("normalisation", self.normalise, ("none", "partition"))

    @property
    def spec(self) -> dict[str, Any]:
        """What is said of it in a manifest."""
        name = getattr(self.build, "__qualname__", type(self.build).__qualname__)
        rest = ("num_classes", "steps", "lr", "weight_decay", "normalise", "seeds", "seed", "device")
        return {"trainer": "module", "network": name, **{key: getattr(self, key) for key in rest}}

    def fit(
        self, parts: Sequence[Part], numbers: Sequence[int], tick: Tick | None = None
    ) -> Iterator[tuple[list[int], dict[str, torch.Tensor]]]:
        """Yield ([number], state dict with a first dimension of 1) for each partition."""
        for i, number in enumerate(numbers):
            x, y = parts[i]
            seed = self.seed + (number if self.seeds == "partition" else 0)
            with torch.random.fork_rng(), torch.enable_grad():
                torch.manual_seed(seed)
                weights = self._trained(_floats(x), torch.from_numpy(y))
            if tick:
                tick(1)
            yield [number], weights

    def scores(self, weights: dict[str, torch.Tensor], x: NDArray[Any]) -> torch.Tensor:
        """Scores [group, inputs, classes] of the modules with these weights."""
        with torch.random.fork_rng(), torch.no_grad():
            module = self.build().to(self.device).eval()
            stacked = {name: value.to(self.device) for name, value in weights.items()}
            values, outs = _floats(x).to(self.device), []
            for i in range(len(next(iter(stacked.values())))):
                own = {name: value[i] for name, value in stacked.items()}
                mean, scale = own.pop(_MEAN, None), own.pop(_SCALE, None)
                shown = values if mean is None or scale is None else (values - mean) / scale
                outs.append(torch.func.functional_call(module, own, (shown,)))
            return torch.stack(outs)

    def _trained(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        module = self.build().to(self.device).train()
        extra = {}
        if self.normalise == "partition":
            axes = [axis for axis in range(x.ndim) if axis != 1]
            mean = x.mean(dim=axes, keepdim=True)
            scale = (x - mean).square().mean(dim=axes, keepdim=True).sqrt().clamp_min(1 / 255)
            x, extra = (x - mean) / scale, {_MEAN: mean.cpu(), _SCALE: scale.cpu()}
        x, y = x.to(self.device), y.to(self.device)
        optimizer = torch.optim.AdamW(module.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        for _ in range(self.steps):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(x), y).backward()
            optimizer.step()
        state = {name: value.detach().cpu() for name, value in module.state_dict().items()} | extra
        return {name: value.unsqueeze(0).contiguous() for name, value in state.items()}


_MEAN, _SCALE = "normalise.mean", "normalise.scale"


def _floats(x: NDArray[Any]) -> torch.Tensor:
    values = torch.from_numpy(np.ascontiguousarray(x))
    return values.float() / 255 if values.dtype == torch.uint8 else values.float()
