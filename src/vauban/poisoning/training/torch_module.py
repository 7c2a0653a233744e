"""Trains base classifiers that are torch modules, one after another."""

from __future__ import annotations

import copy
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.errors import BadInput, KeepsState, RunRefused
from vauban.poisoning.partitioning.partition import TrainingSet
from vauban.poisoning.progress import ProgressCallback
from vauban.poisoning.training.failures import about_the_machine, describe
from vauban.poisoning.training.trainer import SEEDS
from vauban.specs import choose
from vauban.validation import check_seed

PROBE = "probe"  # what a manifest says of a module, which `refuse_other_probe` compares

_MEAN, _SCALE = "normalise.mean", "normalise.scale"


@dataclass(frozen=True)
class ModuleTrainer:
    """Trains any torch module: each partition trains a copy of what `build()` returns; AdamW takes all its samples at every step.

    `build()` must not depend on what was trained before: what it returns is compared before and after. 8-bit samples are divided
    by 255. `normalise`: "partition" subtracts the mean and divides by the deviation of each channel of the partition's own
    samples. A module that cannot be trained on its partition (as batch normalisation on one sample) has a constant vote.
    `StackedTrainer` is faster.
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
        object.__setattr__(self, "seed", check_seed(self.seed))
        choose("normalisation", self.normalise, ("none", "partition"))

    @property
    def spec(self) -> dict[str, Any]:
        """The settings, for a manifest."""
        name = getattr(self.build, "network", getattr(self.build, "__qualname__", type(self.build).__qualname__))
        rest = ("num_classes", "steps", "lr", "weight_decay", "normalise", "seeds", "seed", "device")
        start = getattr(self.build, "sha256", None)
        known = {} if start is None else {"start_sha256": start}
        return {"trainer": "module", "network": name, **known, **{key: getattr(self, key) for key in rest}}

    def described_for(self, shape: Sequence[int], dtype: str) -> dict[str, Any]:
        """What tells the module from another one with tensors of the same names, for a manifest: its scores for made-up samples
        of this shape, with made-up weights. None stands for those that are no numbers; nothing is said of a module that takes
        no such samples, as one of words does."""
        made = (np.arange(2 * math.prod(shape)).reshape(2, *shape) * 37 % 256).astype(np.uint8)
        samples = (made if np.dtype(dtype).kind in "ui" else made / 255).astype(dtype)
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            module = copy.deepcopy(self.build()).to(self.device).eval()
            for some in (samples, np.zeros_like(samples)):
                with suppress(BadInput, RuntimeError):
                    self._scored(module, some)  # lazy layers have no weights before
                    _make_up(module)
                    scores = self._scored(module, some).float().cpu().flatten().tolist()
                    return {PROBE: [float(f"{score:.6g}") if math.isfinite(score) else None for score in scores]}
        return {}

    def fit(
        self, parts: Sequence[TrainingSet], numbers: Sequence[int], on_progress: ProgressCallback | None = None
    ) -> Iterator[tuple[list[int], dict[str, torch.Tensor]]]:
        """Yield ([number], state dict with a first dimension of 1) for each partition."""
        if not len(numbers):
            return
        self._check_module(np.zeros_like(parts[0][0][:1]))
        start = self._start()
        for i, number in enumerate(numbers):
            x, y = parts[i]
            seed = self.seed + (number if self.seeds == "partition" else 0)
            with torch.random.fork_rng(), torch.enable_grad():
                torch.manual_seed(seed)
                state = self._train(_floats(x), torch.from_numpy(y))
            if on_progress:
                on_progress(1)
            yield [number], {name: value.unsqueeze(0).contiguous() for name, value in state.items()}
        if self._start() != start:
            raise KeepsState(
                "the learner returned a module with other weights after training than before, with the same seed: a base "
                "classifier would depend on the samples of others, so nothing can be certified; let it build a new module"
            )

    def scores(self, weights: dict[str, torch.Tensor], x: NDArray[Any]) -> torch.Tensor:
        """Scores [group, inputs, classes] of the modules with these weights."""
        with torch.random.fork_rng(), torch.no_grad():
            module = self.build().to(self.device).eval()
            stacked = {name: value.to(self.device) for name, value in weights.items()}
            values, scores = _floats(x).to(self.device), []
            for i in range(len(next(iter(stacked.values())))):
                own = {name: value[i] for name, value in stacked.items()}
                mean, scale = own.pop(_MEAN, None), own.pop(_SCALE, None)
                normalised = values if mean is None or scale is None else (values - mean) / scale
                scores.append(torch.func.functional_call(module, own, (normalised,)))
            return torch.stack(scores)

    def scores_a_sample(self, zeros: NDArray[Any]) -> int:
        """How many scores the module returns for one sample of zeros [1, ...]."""
        return int(self._shape_of_scores(zeros)[-1])

    def _shape_of_scores(self, zeros: NDArray[Any]) -> tuple[int, ...]:
        with torch.random.fork_rng():
            return tuple(self._scored(self.build().to(self.device).eval(), zeros).shape)

    def _scored(self, module: torch.nn.Module, x: NDArray[Any]) -> torch.Tensor:
        handled = sys.exc_info()[1]
        try:
            with torch.random.fork_rng(), torch.no_grad():
                scores = module(_floats(x).to(self.device))
                return scores.reshape(scores.shape)  # fails here if it is no tensor
        except Exception as problem:
            if about_the_machine(problem, handled):
                raise
            raise BadInput(f"the module cannot score inputs of shape {x.shape}: {describe(problem)}") from problem

    def _check_module(self, zeros: NDArray[Any]) -> None:
        """Refuse a module that does not take an input of zeros to one score a class, whatever the samples are."""
        shape = self._shape_of_scores(zeros)
        if shape != (1, self.num_classes):
            raise BadInput(
                f"the module returns scores of shape {shape} for inputs of shape {zeros.shape}: (1, {self.num_classes}) is needed"
            )

    def _start(self) -> list[tuple[str, bytes]]:
        """The names and bytes of the tensors that a module has before training, with one and the same seed."""
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            return [(name, _bytes(value)) for name, value in self.build().state_dict().items()]

    def _train(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        module = copy.deepcopy(self.build()).to(self.device).train()  # it may share layers with the next one
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
        return {name: value.detach().cpu() for name, value in module.state_dict().items()} | extra


def refuse_other_probe(stored: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Refuse a module whose scores with made-up weights are not those of a manifest's entry for its trainer.

    They may differ by rounding, on another processor. Entries of earlier versions say nothing, and are not compared.
    """
    if PROBE not in stored or PROBE not in found:
        return
    before, now = (np.array(entry[PROBE], dtype=np.float64) for entry in (stored, found))  # None becomes NaN
    largest = np.abs(before[np.isfinite(before)]).max(initial=0.0)
    if before.shape != now.shape or not np.allclose(before, now, rtol=0, atol=1e-2 * largest + 1e-9, equal_nan=True):
        raise RunRefused(
            "the ensemble was trained with another module: this learner gives other scores with the same weights"
        )


def _make_up(module: torch.nn.Module) -> None:
    """Give a module weights that depend on their names and shapes alone."""
    for name, value in module.state_dict().items():
        if not isinstance(value, torch.Tensor):
            continue
        generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {tuple(value.shape)}".encode()))
        made = torch.rand(value.shape, generator=generator) * 2 - 1
        if name.endswith("running_var"):
            made = made.abs() + 1
        elif value.ndim > 1:
            made /= math.sqrt(max(1, math.prod(value.shape[1:])))
        value.copy_(made if value.is_floating_point() or value.is_complex() else torch.zeros_like(value))


def _bytes(value: torch.Tensor) -> bytes:
    if torch.nn.parameter.is_lazy(value):
        return b""
    return value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _floats(x: NDArray[Any]) -> torch.Tensor:
    values = torch.from_numpy(np.ascontiguousarray(x))
    return values.float() / 255 if values.dtype == torch.uint8 else values.float()
