"""Trains thousands of base classifiers side by side, each a function of its own partition and number alone.

Base classifier j is slot j mod `group` of group j div `group`. Every group is computed in the same shapes, however many of its
slots are trained and however large their partitions are: batches have `batch` rows, pictures are prepared in blocks of fixed
size, and empty slots are computed and discarded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from hashlib import blake2b
from itertools import groupby
from threading import Event, Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from vauban.errors import BadInput
from vauban.poisoning.partitioning.partition import TrainingSet
from vauban.poisoning.progress import ProgressCallback
from vauban.poisoning.training.augmentation import augmentation
from vauban.poisoning.training.deterministic import run_jobs
from vauban.poisoning.training.input_transforms import InputTransform, input_transform
from vauban.poisoning.training.stacked.group_data import GroupData, channels_last, padded, to_pictures
from vauban.poisoning.training.stacked.stacked_networks import initial_weights, network, network_name
from vauban.poisoning.training.trainer import SEEDS
from vauban.specs import choose
from vauban.validation import check_seed

_SCORED_ROWS = 128  # inputs that are scored at once
_CACHED_BLOCKS = 256  # blocks of inputs whose transform is kept


@dataclass(frozen=True)
class StackedTrainer:
    """AdamW on stacked weights; the learning rate rises over the first twentieth of the steps and falls along a cosine.

    network, front, augment: names of a stacked network, an input transform and an augmentation. views: augmented copies of each
    sample, made before training; 0 augments anew at every step. normalise: "partition" subtracts the mean and divides by the
    deviation of the partition's own samples, "fixed" changes nothing. seeds: base classifiers have random numbers of their own
    ("partition") or the same ones ("shared", [Levine2023] F.6). mirror: scores are the mean over a picture and its mirror image.
    """

    network: str = "tiny-cnn"
    num_classes: int = 10
    steps: int = 400
    batch: int = 32
    lr: float = 3e-3
    weight_decay: float = 1e-2
    label_smoothing: float = 0.1
    mixup: float = 0.0
    front: str = "gradients"
    augment: str = "warp"
    views: int = 16
    normalise: str = "fixed"
    mirror: bool = False
    seeds: str = "partition"
    seed: int = 0
    group: int = 25
    precision: str = "float32"
    device: str = "cpu"
    _transformed: dict[bytes, torch.Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", network_name(self.network))
        input_transform(self.front), augmentation(self.augment)
        choose("way to normalise", self.normalise, ("partition", "fixed"))
        choose("way to seed", self.seeds, SEEDS)
        object.__setattr__(self, "seed", check_seed(self.seed))
        choose("precision", self.precision, ("float32", "bfloat16"))
        for name, least in (("num_classes", 2), ("steps", 1), ("batch", 1), ("group", 1), ("views", 0)):
            if getattr(self, name) < least:
                raise BadInput(f"{name}={getattr(self, name)}: the least is {least}")
        if not self.lr > 0 or self.weight_decay < 0 or not 0 <= self.label_smoothing < 1 or not 0 <= self.mixup <= 1:
            raise BadInput(
                f"lr={self.lr}, weight_decay={self.weight_decay}, label_smoothing={self.label_smoothing}, "
                f"mixup={self.mixup}: lr must be above 0, the others at least 0, the last two at most 1"
            )

    @classmethod
    def recipe(cls, shape: Sequence[int], num_classes: int, device: str = "cpu", **changes: Any) -> StackedTrainer:
        """Vauban's recipe for inputs of this shape [c, h, w], with `changes` to its fields.

        Grey pictures: `tiny-cnn` on gradients of upright pictures. Colour: `residual` (or `nin`) on random crops. Else: `dense`.
        """
        fast: dict[str, Any] = (
            {"precision": "bfloat16", "group": 600} if torch.device(device).type == "cuda" else {"group": 25}
        )
        if len(shape) == 3 and shape[0] == 1:
            kind: dict[str, Any] = {}
        elif len(shape) == 3 and shape[0] == 3 and changes.get("network", "residual") in ("residual", "nin"):
            kind = {**_COLOUR, "group": 50 if "precision" in fast else 5}
        else:
            kind = {"network": "dense", "front": "none", "augment": "none", "views": 1, "normalise": "partition"}
        return cls(**{"num_classes": num_classes, "device": device, **fast, **kind, **changes})

    @property
    def spec(self) -> dict[str, Any]:
        """The settings as plain values; `from_spec` rebuilds the trainer from them."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init and f.name != "shared"}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> StackedTrainer:
        """The trainer that `spec` describes."""
        return cls(**spec)

    def fit(
        self, parts: Sequence[TrainingSet], numbers: Sequence[int], on_progress: ProgressCallback | None = None
    ) -> Iterator[tuple[list[int], dict[str, torch.Tensor]]]:
        """Train one base classifier on each of `parts` (inputs [n, ...], labels [n]); yields groups as they finish.

        parts[i] is the training set of number numbers[i]. Yields (numbers, {name: [numbers, ...]}), float32 on the device.
        """
        if len(parts) != len(numbers) or len(set(numbers)) != len(numbers):
            raise BadInput(
                f"{len(parts)} partitions with the numbers {list(numbers)[:5]}…: one number of its own each is needed"
            )
        order = sorted(range(len(numbers)), key=lambda i: numbers[i])
        groups = [list(members) for _, members in groupby(order, key=lambda i: numbers[i] // self.group)]
        at_once = torch.get_num_threads() if torch.device(self.device).type == "cpu" else 1
        report = _synchronised(on_progress)
        for first in range(0, len(groups), at_once):
            some = groups[first : first + at_once]
            jobs = [partial(self._train_group, {numbers[i]: parts[i] for i in members}, report) for members in some]
            yield from run_jobs(jobs, self.device)

    def _train_group(
        self, parts: Mapping[int, TrainingSet], on_progress: ProgressCallback, stop: Event
    ) -> tuple[list[int], dict[str, torch.Tensor]]:
        """The numbers and trained weights of one group's partitions."""
        numbers = list(parts)
        slots = {number % self.group: part for number, part in parts.items()}
        weights = self._train(GroupData(self, numbers[0] // self.group, slots), on_progress, len(numbers), stop)
        rows = torch.tensor(list(slots), device=self.device)
        return numbers, {name: value[rows] for name, value in weights.items()}

    def scores(self, weights: Mapping[str, torch.Tensor], x: NDArray[Any]) -> torch.Tensor:
        """Scores float32 [models, inputs, num_classes] of stacked weights on inputs [inputs, ...]."""
        models = len(next(iter(weights.values())))
        if models > self.group:
            raise BadInput(f"{models} base classifiers at once: this trainer works in groups of {self.group}")
        whole = {name: padded(value.to(self.device), self.group) for name, value in weights.items()}
        blocks = [np.ascontiguousarray(x[i : i + _SCORED_ROWS]) for i in range(0, len(x), _SCORED_ROWS)]
        scores = run_jobs([partial(self._scores, whole, block) for block in blocks], self.device)
        return torch.cat(scores, dim=1)[:models, : len(x)]

    def transform(self) -> InputTransform:
        """The input transform of its base classifiers."""
        return input_transform(self.front)

    def forward(self, weights: Mapping[str, torch.Tensor], x: torch.Tensor, training: bool = False) -> torch.Tensor:
        """Scores float32 [group, n, num_classes] of transformed pictures [group, n, h, w, c]."""
        if self.normalise == "partition":
            x = (x - weights["input.mean"][:, None, None, None]) * weights["input.scale"][:, None, None, None]
        out = network(self.network).forward(weights, x.to(getattr(torch, self.precision)), training)
        return out.float()

    @torch.inference_mode()
    def _scores(self, weights: Mapping[str, torch.Tensor], block: NDArray[Any], stop: Event) -> torch.Tensor:
        """Scores [group, _SCORED_ROWS, num_classes] of a block of inputs; the last transformed blocks are cached."""
        key = (
            blake2b(block.view(np.uint8).data, person=b"vauban inputs").digest()
            + str((block.shape, block.dtype)).encode()
        )
        pictures = self._transformed.get(key)
        if pictures is None:
            transform = self.transform()
            before = transform.before(padded(to_pictures(block, self.device), _SCORED_ROWS))
            pictures = channels_last(transform.after(before))
            self._transformed[key] = pictures
            if len(self._transformed) > _CACHED_BLOCKS:
                oldest = list(self._transformed)[0]  # noqa: RUF015 - other threads may add one, which ends an iteration
                self._transformed.pop(oldest, None)
        x = pictures.expand(self.group, -1, -1, -1, -1)
        scores = self.forward(weights, x)
        return (scores + self.forward(weights, x.flip(3))) / 2 if self.mirror else scores

    def _train(
        self, group: GroupData, on_progress: ProgressCallback, partitions: int, stop: Event
    ) -> dict[str, torch.Tensor]:
        specs = network(self.network).weights(group.shape, self.num_classes)
        weights = group.constants | initial_weights(specs, group.initial_uniforms)
        trained = {name: weights[name].requires_grad_() for name, spec in specs.items() if spec.trained}
        decayed = [value for name, value in trained.items() if name.endswith("weight")]
        others = [value for name, value in trained.items() if not name.endswith("weight")]
        groups = [{"params": decayed, "weight_decay": self.weight_decay}, {"params": others, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=self.lr, fused=True)
        for step in range(self.steps):
            for settings in optimizer.param_groups:
                settings["lr"] = self.lr * schedule(step / self.steps)
            x, y, others_y, share = group.batch(step)
            loss = self._loss(self.forward(weights, x, training=True), y, others_y, share)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if done := partitions * (step + 1) // self.steps - partitions * step // self.steps:
                on_progress(done)
            if stop.is_set():
                break
        return {name: value.detach() for name, value in weights.items()}

    def _loss(
        self, scores: torch.Tensor, y: torch.Tensor, others_y: torch.Tensor | None, share: torch.Tensor | None
    ) -> torch.Tensor:
        """Sum over base classifiers of their mean losses, so that the gradient of each depends on its own loss alone."""

        def each(labels: torch.Tensor) -> torch.Tensor:
            flat = functional.cross_entropy(
                scores.flatten(0, 1), labels.flatten(), label_smoothing=self.label_smoothing, reduction="none"
            )
            return flat.view_as(labels).sum(dim=1) / self.batch

        if others_y is None or share is None:
            return each(y).sum()
        return (share * each(y) + (1 - share) * each(others_y)).sum()


def schedule(done: float) -> float:
    """Factor of the learning rate when this fraction of all steps is done."""
    return min(1.0, done * 20 + 0.05) * (0.5 + 0.5 * math.cos(math.pi * done)) + 1e-4


def _synchronised(on_progress: ProgressCallback | None) -> ProgressCallback:
    """`on_progress`, called by one thread at a time."""
    lock = Lock()

    def report(done: int) -> None:
        with lock:
            if on_progress:
                on_progress(done)

    return report


_COLOUR: dict[str, Any] = {
    "network": "residual",
    "front": "none",
    "augment": "crop-flip",
    "views": 0,
    "normalise": "partition",
    "mirror": True,
    "steps": 2500,
    "batch": 100,
    "lr": 2e-3,
    "weight_decay": 1.0,
    "mixup": 1.0,
}
