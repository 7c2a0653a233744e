"""Features learned once without labels and shared by all base classifiers, and the heads that partitions train on them.

Whoever can only flip labels cannot reach what was learned without them [Levine2023] Section 7.2.3.1: RotNet tells by how much a
picture was turned, SimCLR which two views show the same picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from vauban.errors import BadInput
from vauban.poisoning.training.augmentation import augmentation
from vauban.poisoning.training.deterministic import repeatable
from vauban.poisoning.training.input_transforms import Front, front
from vauban.poisoning.training.random_numbers import uniforms
from vauban.poisoning.training.stacked.group_data import padded, picture
from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer, schedule
from vauban.specs import choose

FEATURES = ("rotnet", "simclr")
_BLOCK = {"cuda": 1024, "cpu": 128}  # pictures that go through the trunk at once


@dataclass(frozen=True)
class HeadTrainer(StackedTrainer):
    """Trains heads on features that `prepare` learned from the whole unlabelled set; otherwise as StackedTrainer.

    features: "rotnet" or "simclr". learning_epochs, learning_batch, learning_rate, temperature: how they are learned.
    learning_augment: what they must not depend on. shared: the learned weights by name; fill it to use earlier ones.
    """

    network: str = "linear"
    features: str = "rotnet"
    learning_epochs: int = 10
    learning_batch: int = 500
    learning_rate: float = 2e-3
    learning_augment: str = "warp-far"
    temperature: float = 0.2
    shared: dict[str, torch.Tensor] = field(default_factory=dict, repr=False, compare=False)
    _built: dict[str, tuple[tuple[torch.Tensor, ...], nn.Module | None]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("way to learn features", self.features, FEATURES)

    @classmethod
    def recipe(cls, shape: Any, num_classes: int, device: str = "cpu", **changes: Any) -> HeadTrainer:
        """The recipe Vauban ships for pictures of this shape [c, h, w], with `changes` to its fields."""
        fast: dict[str, Any] = (
            {"precision": "bfloat16", "group": 600} if torch.device(device).type == "cuda" else {"group": 25}
        )
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise BadInput(f"features are learned from grey or colour pictures [c, h, w], not from {tuple(shape)}")
        kind = dict(_GREY if shape[0] == 1 else _COLOUR)
        return cls(**{"num_classes": num_classes, "device": device, **fast, **kind, **changes})

    def ways(self) -> Front:
        """Pictures are settled as the front end says and seen through the learned features."""
        return Front(front(self.front).settle, self._features)

    def scores(self, weights: Mapping[str, torch.Tensor], x: NDArray[Any]) -> torch.Tensor:
        """Scores float32 [models, inputs, num_classes] of stacked heads on inputs [inputs, ...]."""
        self._built_trunk(x.shape[1])
        return super().scores(weights, x)

    def prepare(self, x: NDArray[Any], folder: Path | None = None, tick: Callable[[int], None] | None = None) -> None:
        """Learn the features from unlabelled pictures [n, c, h, w], in the order given: sort them first. Fills `shared`.

        `tick` is told of pictures seen, `learning_epochs` times n in all.
        """
        if self.shared:
            return
        with repeatable(self.device):
            trunk = self._learn(x, tick)
        self.shared.update({name: value.detach().cpu().contiguous() for name, value in trunk.state_dict().items()})

    def _features(self, x: torch.Tensor) -> torch.Tensor:
        """Learned features of settled pictures, [n, c, h, w] to [n, features, 1, 1], each of unit length times sqrt(features)."""
        trunk = self._built_trunk(x.shape[1])
        made, rows = [], _BLOCK[torch.device(self.device).type]
        for start in range(0, len(x), rows):
            block = padded(x[start : start + rows], rows)
            with torch.no_grad(), self._half():
                made.append(trunk(front(self.front).see(block)).float())
        out = torch.cat(made)[: len(x)]
        return (functional.normalize(out, dim=1) * math.sqrt(out.shape[1]))[:, :, None, None]

    def _built_trunk(self, channels: int) -> nn.Module:
        """The trunk with the weights in `shared`, built anew when they are others than before."""
        if not self.shared:
            raise BadInput("the features are not learned yet: call prepare with the unlabelled samples first")
        of, trunk = self._built.get("trunk", ((), None))
        if (
            trunk is None
            or len(of) != len(self.shared)
            or any(a is not b for a, b in zip(of, self.shared.values(), strict=True))
        ):
            trunk = _trunk(channels)
            trunk.load_state_dict(self.shared)
            trunk = _to_device(trunk, self.device).eval()
            self._built["trunk"] = tuple(self.shared.values()), trunk
            self._seen.clear()
        return trunk

    def _half(self) -> Any:
        cuda = torch.device(self.device).type == "cuda"
        return torch.autocast("cuda" if cuda else "cpu", torch.bfloat16, enabled=cuda)

    def _learn(self, x: NDArray[Any], tick: Callable[[int], None] | None) -> nn.Module:
        pictures = _settled(x, front(self.front).settle, self.device)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            trunk = _trunk(x.shape[1])
            width = trunk(front(self.front).see(pictures[:2].cpu())).shape[1]
            head = nn.Sequential(
                nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 4 if self.features == "rotnet" else 128)
            )
        trunk, head = _to_device(trunk, self.device), head.to(self.device)
        weights = [*trunk.parameters(), *head.parameters()]
        optimizer = torch.optim.AdamW(weights, lr=self.learning_rate, weight_decay=0.05, fused=True)
        loss_of = _turning if self.features == "rotnet" else _contrast
        steps = self.learning_epochs * (len(x) // min(self.learning_batch, len(x)))
        for step, rows in enumerate(self._batches(len(x))):
            for settings in optimizer.param_groups:
                settings["lr"] = self.learning_rate * schedule(step / steps)
            with self._half():
                loss = loss_of(self, lambda v: head(trunk(v)).float(), pictures[rows], step)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if tick:
                tick(len(rows))
        return trunk

    def _batches(self, n: int) -> Iterator[torch.Tensor]:
        """Places of the pictures of every step: each picture once an epoch, the last few left out."""
        lane = torch.zeros(1, dtype=torch.int64, device=self.device)
        size = min(self.learning_batch, n)
        for epoch in range(self.learning_epochs):
            order = uniforms(self.seed, lane, "features", -1 - epoch, n)[0].argsort(stable=True)
            yield from order[: n // size * size].view(-1, size)

    def _view(self, pictures: torch.Tensor, step: int) -> torch.Tensor:
        """A fresh view of every picture, as the trunk takes it."""
        make = augmentation(self.learning_augment)
        lane = torch.zeros(1, dtype=torch.int64, device=self.device)
        u = uniforms(self.seed, lane, "features", step, len(pictures) * make.numbers).view(len(pictures), -1)
        return front(self.front).see(make.make(pictures, u))


def _turning(
    trainer: HeadTrainer, scores: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, step: int
) -> torch.Tensor:
    """RotNet: by how many quarters was a picture turned? [Gidaris2018]"""
    turned = torch.cat([torch.rot90(x, quarter, (2, 3)) for quarter in range(4)])
    quarters = torch.arange(4, device=x.device).repeat_interleave(len(x))
    return functional.cross_entropy(scores(trainer._view(turned, step)), quarters)


def _contrast(
    trainer: HeadTrainer, scores: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, step: int
) -> torch.Tensor:
    """SimCLR: which of the other views shows the same picture? [Chen2020]"""
    points = functional.normalize(scores(trainer._view(torch.cat([x, x]), step)), dim=1)
    alike = points @ points.T / trainer.temperature
    alike.fill_diagonal_(-1e4)
    partner = torch.arange(2 * len(x), device=x.device).roll(len(x))
    return functional.cross_entropy(alike, partner)


def _trunk(channels: int) -> nn.Module:
    """What makes features: three convolutions over gradient maps for grey pictures, a ResNet-18 for colour."""
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


def _settled(x: NDArray[Any], settle: Callable[[torch.Tensor], torch.Tensor], device: str) -> torch.Tensor:
    blocks = []
    for start in range(0, len(x), 1024):
        blocks.append(settle(picture(np.ascontiguousarray(x[start : start + 1024]), device)))
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
