"""Learns features from all unlabelled samples and trains heads on them, one for each partition.

An attacker who flips labels cannot change features learned without labels [Levine2023] Section 7.2.3.1. RotNet learns by how much
a picture was rotated, SimCLR which two augmented copies show the same picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from vauban.errors import BadInput
from vauban.poisoning.progress import ProgressCallback
from vauban.poisoning.training.augmentation import augmentation
from vauban.poisoning.training.deterministic import deterministic
from vauban.poisoning.training.input_transforms import InputTransform, input_transform
from vauban.poisoning.training.random_numbers import uniforms
from vauban.poisoning.training.stacked.group_data import padded, to_pictures
from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer, schedule
from vauban.specs import choose

FEATURES = ("rotnet", "simclr")
_BLOCK = {"cuda": 1024, "cpu": 128}  # pictures that the trunk computes at once


@dataclass(frozen=True)
class HeadTrainer(StackedTrainer):
    """Trains heads on features that `prepare` learns from the whole unlabelled set; otherwise as StackedTrainer.

    features: "rotnet" or "simclr". learning_epochs, learning_batch, learning_rate, learning_augment, temperature: settings of
    feature learning. shared: the learned weights by name; fill it to use features learned before.
    """

    network: str = "linear"
    features: str = "rotnet"
    learning_epochs: int = 10
    learning_batch: int = 500
    learning_rate: float = 2e-3
    learning_augment: str = "warp-far"
    temperature: float = 0.2
    shared: dict[str, torch.Tensor] = field(default_factory=dict, repr=False, compare=False)
    _trunk_cache: dict[str, tuple[tuple[torch.Tensor, ...], nn.Module | None]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("way to learn features", self.features, FEATURES)

    @classmethod
    def recipe(cls, shape: Any, num_classes: int, device: str = "cpu", **changes: Any) -> HeadTrainer:
        """Vauban's recipe for pictures of this shape [c, h, w], with `changes` to its fields."""
        fast: dict[str, Any] = (
            {"precision": "bfloat16", "group": 600} if torch.device(device).type == "cuda" else {"group": 25}
        )
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise BadInput(f"features are learned from grey or colour pictures [c, h, w], not from {tuple(shape)}")
        kind = dict(_GREY if shape[0] == 1 else _COLOUR)
        return cls(**{"num_classes": num_classes, "device": device, **fast, **kind, **changes})

    def transform(self) -> InputTransform:
        """The input transform `front`, followed by the learned features."""
        return InputTransform(input_transform(self.front).before, self._features)

    def scores(self, weights: Mapping[str, torch.Tensor], x: NDArray[Any]) -> torch.Tensor:
        """Scores float32 [models, inputs, num_classes] of stacked heads on inputs [inputs, ...]."""
        self._trunk(x.shape[1])
        return super().scores(weights, x)

    def prepare(self, x: NDArray[Any], on_progress: ProgressCallback | None = None) -> None:
        """Learn the features from unlabelled pictures [n, c, h, w] sorted by content, and keep them in `shared`.

        `on_progress` is called with numbers of pictures, `learning_epochs` times n in all.
        """
        if self.shared:
            return
        with deterministic(self.device):
            trunk = self._learn(x, on_progress)
        self.shared.update({name: value.detach().cpu().contiguous() for name, value in trunk.state_dict().items()})

    def _features(self, x: torch.Tensor) -> torch.Tensor:
        """Learned features of pictures [n, c, h, w], [n, features, 1, 1], scaled to the length sqrt(features)."""
        trunk = self._trunk(x.shape[1])
        features, rows = [], _BLOCK[torch.device(self.device).type]
        for start in range(0, len(x), rows):
            block = padded(x[start : start + rows], rows)
            with torch.no_grad(), self._half_precision():
                features.append(trunk(input_transform(self.front).after(block)).float())
        out = torch.cat(features)[: len(x)]
        return (functional.normalize(out, dim=1) * math.sqrt(out.shape[1]))[:, :, None, None]

    def _trunk(self, channels: int) -> nn.Module:
        """The trunk with the weights in `shared`, rebuilt when these have changed."""
        if not self.shared:
            raise BadInput("the features are not learned yet: call prepare with the unlabelled samples first")
        built_from, trunk = self._trunk_cache.get("trunk", ((), None))
        if (
            trunk is None
            or len(built_from) != len(self.shared)
            or any(a is not b for a, b in zip(built_from, self.shared.values(), strict=True))
        ):
            trunk = _new_trunk(channels)
            trunk.load_state_dict(self.shared)
            trunk = _to_device(trunk, self.device).eval()
            self._trunk_cache["trunk"] = tuple(self.shared.values()), trunk
            self._transformed.clear()
        return trunk

    def _half_precision(self) -> Any:
        cuda = torch.device(self.device).type == "cuda"
        return torch.autocast("cuda" if cuda else "cpu", torch.bfloat16, enabled=cuda)

    def _learn(self, x: NDArray[Any], on_progress: ProgressCallback | None) -> nn.Module:
        transform = input_transform(self.front)
        pictures = _in_blocks(x, transform.before, self.device)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            trunk = _new_trunk(x.shape[1])
            width = trunk(transform.after(pictures[:2].cpu())).shape[1]
            head = nn.Sequential(
                nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 4 if self.features == "rotnet" else 128)
            )
        trunk, head = _to_device(trunk, self.device), head.to(self.device)
        weights = [*trunk.parameters(), *head.parameters()]
        optimizer = torch.optim.AdamW(weights, lr=self.learning_rate, weight_decay=0.05, fused=True)
        loss_of = _rotation_loss if self.features == "rotnet" else _contrastive_loss
        steps = self.learning_epochs * (len(x) // min(self.learning_batch, len(x)))
        for step, rows in enumerate(self._batches(len(x))):
            for settings in optimizer.param_groups:
                settings["lr"] = self.learning_rate * schedule(step / steps)
            with self._half_precision():
                loss = loss_of(self, lambda v: head(trunk(v)).float(), pictures[rows], step)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if on_progress:
                on_progress(len(rows))
        return trunk

    def _batches(self, n: int) -> Iterator[torch.Tensor]:
        """Rows of every step: each picture once an epoch, the last few left out."""
        lane = torch.zeros(1, dtype=torch.int64, device=self.device)
        size = min(self.learning_batch, n)
        for epoch in range(self.learning_epochs):
            order = uniforms(self.seed, lane, "features", -1 - epoch, n)[0].argsort(stable=True)
            yield from order[: n // size * size].view(-1, size)

    def _augmented(self, pictures: torch.Tensor, step: int) -> torch.Tensor:
        """An augmented copy of every picture, as input of the trunk."""
        chosen = augmentation(self.learning_augment)
        lane = torch.zeros(1, dtype=torch.int64, device=self.device)
        u = uniforms(self.seed, lane, "features", step, len(pictures) * chosen.numbers).view(len(pictures), -1)
        return input_transform(self.front).after(chosen.apply(pictures, u))


def _rotation_loss(
    trainer: HeadTrainer, scores: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, step: int
) -> torch.Tensor:
    """Loss of RotNet: by how many quarter turns was a picture rotated? [Gidaris2018]"""
    rotated = torch.cat([torch.rot90(x, quarter, (2, 3)) for quarter in range(4)])
    quarters = torch.arange(4, device=x.device).repeat_interleave(len(x))
    return functional.cross_entropy(scores(trainer._augmented(rotated, step)), quarters)


def _contrastive_loss(
    trainer: HeadTrainer, scores: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, step: int
) -> torch.Tensor:
    """Loss of SimCLR: which of the other augmented copies shows the same picture? [Chen2020]"""
    points = functional.normalize(scores(trainer._augmented(torch.cat([x, x]), step)), dim=1)
    similarity = points @ points.T / trainer.temperature
    similarity.fill_diagonal_(-1e4)
    partner = torch.arange(2 * len(x), device=x.device).roll(len(x))
    return functional.cross_entropy(similarity, partner)


def _new_trunk(channels: int) -> nn.Module:
    """The network that computes features: three convolutions over gradient maps for grey pictures, a ResNet-18 for colour."""
    if channels == 3:
        from vauban.models.building import build_bare

        net = build_bare("resnet18:channels=3,classes=10")
        net.fc = nn.Identity()
        return net

    def layer(inside: int, outside: int, stride: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(outside), nn.ReLU()]

    return nn.Sequential(
        *layer(8, 64, 1), *layer(64, 128, 2), *layer(128, 128, 1), nn.AvgPool2d(3, stride=2, padding=1), nn.Flatten()
    )


def _to_device(module: nn.Module, device: str) -> nn.Module:
    layout = torch.channels_last if torch.device(device).type == "cuda" else torch.contiguous_format
    return module.to(device=device, memory_format=layout)  # type: ignore[call-overload]


def _in_blocks(x: NDArray[Any], function: Callable[[torch.Tensor], torch.Tensor], device: str) -> torch.Tensor:
    blocks = []
    for start in range(0, len(x), 1024):
        blocks.append(function(to_pictures(np.ascontiguousarray(x[start : start + 1024]), device)))
    return torch.cat(blocks)


_GREY: Mapping[str, Any] = {"views": 8, "steps": 400, "batch": 32, "lr": 3e-3}
_COLOUR: Mapping[str, Any] = {
    "features": "simclr",
    "group": 50,
    "front": "none",
    "augment": "none",
    "views": 1,
    "batch": 100,
    "lr": 3e-3,
    "learning_augment": "contrast",
    "learning_epochs": 100,
    "learning_batch": 500,
}
