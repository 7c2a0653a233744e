"""Learns features from all unlabelled samples and trains heads on them, one for each partition.

An attacker who flips labels cannot change features learned without labels [Levine2023] Section 7.2.3.1. RotNet learns by how much
a picture was rotated, SimCLR which two augmented copies show the same picture; features may also come from `vauban train`, or be
eigenvectors of the graph of neighbours, for which no network is trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from vauban.errors import BadInput
from vauban.poisoning.partitioning.partition import TrainingSet
from vauban.poisoning.partitioning.samples import content_keys
from vauban.poisoning.progress import ProgressCallback
from vauban.poisoning.training.augmentation import augmentation
from vauban.poisoning.training.deterministic import deterministic
from vauban.poisoning.training.input_transforms import InputTransform, input_transform
from vauban.poisoning.training.random_numbers import uniforms
from vauban.poisoning.training.stacked.group_data import GroupData, padded, to_pictures
from vauban.poisoning.training.stacked.neighbour_graph import SpectralFeatures, learn_spectral
from vauban.poisoning.training.stacked.self_training import SelfTraining
from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer, schedule
from vauban.poisoning.training.stacked.trunks import NIN, learned_before, learning_head, new_trunk
from vauban.specs import choose
from vauban.training.losses import simclr

SPECTRAL = "spectral"
FEATURES = ("learned", "rotnet", "simclr", SPECTRAL)
SOLVERS = ("adamw", "ridge", "self-training")
POOL = "unlabelled"  # among the shared tensors: features of pictures whose labels are not looked at
_NO_FILE = (
    "features=learned and the file of features belong together: --defense ss-dpa:features=learned --model linear:learned=FILE, "
    "where vauban train --loss simsiam (or simclr) wrote the file"
)
_BLOCK = {"cuda": 1024, "cpu": 128}  # pictures that the trunk computes at once


@dataclass(frozen=True)
class HeadTrainer(StackedTrainer):
    """Trains heads on features that `prepare` learns from the whole unlabelled set; otherwise as StackedTrainer.

    features: "rotnet", "simclr", "spectral" (`neighbour_graph`), or "learned" before, by `vauban train`. learning_epochs,
    learning_batch, learning_rate, learning_augment, temperature: settings of feature learning by a network. trunk: that network,
    see `new_trunk`; trunk_sha256: of the file it was read from, if it was. neighbours, directions, numbers: of spectral features,
    how many neighbours a picture has, by how many numbers of a picture they are found, and how many features there are. mirrored:
    features are the mean of a picture's and its mirror image's. crops: of as many parts in each direction, of half the height and
    width, scaled to the whole size; 0 is the whole picture. solver: heads are trained by "adamw", or linear ones fitted in closed
    form by "ridge" regression on their samples or by "self-training", which also learns from `pool` unlabelled pictures; ridge,
    rounds, shrink, sharpness, unseen are settings of `SelfTraining`. shared: the learned weights by name; fill it to use features
    learned before.
    """

    network: str = "linear"
    features: str = "rotnet"
    learning_epochs: int = 10
    learning_batch: int = 500
    learning_rate: float = 2e-3
    learning_augment: str = "warp-far"
    temperature: float = 0.2
    trunk: str = ""
    trunk_sha256: str = ""
    mirrored: bool = False
    crops: int = 0
    neighbours: int = 10
    directions: int = 80
    numbers: int = 60
    solver: str = "adamw"
    ridge: float = 0.1
    rounds: int = 10
    shrink: float = 0.03
    sharpness: float = 2.0
    unseen: bool = False
    pool: int = 20_000
    shared: dict[str, torch.Tensor] = field(default_factory=dict, repr=False, compare=False)
    _trunk_cache: dict[str, tuple[tuple[torch.Tensor, ...], nn.Module | None]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("way to learn features", self.features, FEATURES)
        choose("way to fit heads", self.solver, SOLVERS)
        if self.solver != "adamw" and self.network != "linear":
            raise BadInput(f"solver={self.solver} fits linear heads, not {self.network}: take --model linear, or adamw")
        if self.solver != "adamw" and self.views < 1:
            raise BadInput(f"solver={self.solver} with views={self.views}: copies are made beforehand, one or more")
        if min(self.neighbours, self.directions, self.numbers) < 1:
            raise BadInput(
                f"neighbours={self.neighbours}, directions={self.directions}, numbers={self.numbers}: the least is 1 each"
            )
        if min(self.rounds, self.ridge, self.shrink, self.pool - 1, self.crops) < 0 or not self.sharpness > 0:
            raise BadInput(
                f"ridge={self.ridge}, rounds={self.rounds}, shrink={self.shrink}, sharpness={self.sharpness}, "
                f"pool={self.pool}, crops={self.crops}: numbers of at least 0 are needed, sharpness above 0 and pool from 1"
            )

    @classmethod
    def recipe(
        cls, shape: Any, num_classes: int, device: str = "cpu", *, learned: str = "", **changes: Any
    ) -> HeadTrainer:
        """Vauban's recipe for pictures of this shape [c, h, w], with `changes` to its fields; `learned`: a file of features."""
        fast: dict[str, Any] = (
            {"precision": "bfloat16", "group": 600} if torch.device(device).type == "cuda" else {"group": 25}
        )
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise BadInput(f"features are learned from grey or colour pictures [c, h, w], not from {tuple(shape)}")
        kind = dict(_GREY if shape[0] == 1 else _COLOUR)
        if changes.get("trunk") == NIN:
            kind |= {"network": "nin-top", "front": "none", "features": "rotnet", "learning_augment": "shift"}
        if (changes.get("features") == "learned") != bool(learned):
            raise BadInput(_NO_FILE)
        if changes.get("features") == SPECTRAL:
            kind |= {**_SPECTRAL, "front": "gradients" if shape[0] == 1 else "descriptors"}
        if learned:
            text, digest, tensors = learned_before(Path(learned))
            kind |= {
                "front": "none",
                "augment": "none",
                "views": 1,
                "trunk": text,
                "trunk_sha256": digest,
                "shared": tensors,
            }
        if (kind | changes).get("solver", "adamw") != "adamw":
            kind["precision"] = "float32"
        return cls(**{"num_classes": num_classes, "device": device, **fast, **kind, **changes})

    def transform(self) -> InputTransform:
        """The input transform `front`, followed by the learned features."""
        return InputTransform(input_transform(self.front).before, self._features)

    def scores(self, weights: Mapping[str, torch.Tensor], x: NDArray[Any]) -> torch.Tensor:
        """Scores float32 [models, inputs, num_classes] of stacked heads on inputs [inputs, ...]."""
        self._trunk(x.shape[1])
        return super().scores(weights, x)

    def with_shared(self, shared: Mapping[str, torch.Tensor]) -> HeadTrainer:
        """The same trainer with a dict of its own for these tensors."""
        return replace(self, shared=dict(shared))

    @property
    def prepared(self) -> bool:
        """Whether `shared` holds all that heads need."""
        return bool(self.shared) and (POOL in self.shared or self.solver != "self-training")

    def prepare(self, x: NDArray[Any], on_progress: ProgressCallback | None = None) -> None:
        """Learn the features from unlabelled pictures [n, c, h, w] sorted by content, and keep them in `shared`.

        `on_progress` is called with numbers of pictures, `learning_epochs` times n in all.
        """
        if not self.shared:
            if self.features == "learned":
                raise BadInput(_NO_FILE)
            with deterministic():
                learned = (self._spectral if self.features == SPECTRAL else self._learn)(x, on_progress)
            self.shared.update({name: value.detach().cpu().contiguous() for name, value in learned.items()})
        if not self.prepared:
            some = x[np.unique(np.linspace(0, len(x) - 1, min(self.pool, len(x))).round().astype(np.int64))]
            self.shared[POOL] = self.features_of(some).half().cpu()

    def features_of(self, x: NDArray[Any]) -> torch.Tensor:
        """Features float32 [n, d] of pictures [n, c, h, w], on the device."""
        with deterministic():
            return self._features(_in_blocks(x, input_transform(self.front).before, self.device)).flatten(1)

    def _features(self, x: torch.Tensor) -> torch.Tensor:
        """Learned features of pictures: [n, features, 1, 1], scaled to the length sqrt(features), or maps as they are."""
        trunk = self._trunk(x.shape[1])
        features, rows = [], _BLOCK[torch.device(self.device).type]
        for start in range(0, len(x), rows):
            block = input_transform(self.front).after(padded(x[start : start + rows], rows))
            shown = parts_of(block, self.crops)
            shown += [part.flip(3) for part in shown] if self.mirrored else []
            with torch.no_grad(), self._half_precision():
                found = sum((trunk(part).float() for part in shown[1:]), start=trunk(shown[0]).float())
                features.append(found / len(shown))
        out = torch.cat(features)[: len(x)]
        if out.ndim == 4:
            return out
        return (functional.normalize(out, dim=1) * math.sqrt(out.shape[1]))[:, :, None, None]

    def _train_group(
        self, parts: Mapping[int, TrainingSet], on_progress: ProgressCallback, stop: Event
    ) -> tuple[list[int], dict[str, torch.Tensor]]:
        """The numbers and weights of one group's heads, trained or fitted in closed form."""
        if self.solver == "adamw":
            return super()._train_group(parts, on_progress, stop)
        numbers = list(parts)
        slots = {number % self.group: part for number, part in parts.items()}
        group = GroupData(self, numbers[0] // self.group, slots)
        assert group.copies is not None
        copies = group.copies.flatten(3).float()
        empty = copies[0, :0, 0], group.y[0, :0]
        samples = [empty] * self.group
        for slot, (_, labels) in slots.items():
            x = copies[slot, : len(labels)]
            samples[slot] = x.flatten(0, 1), group.y[slot, : len(labels)].repeat_interleave(self.views)
        rounds = self.rounds if self.solver == "self-training" else 0
        pool = self.shared[POOL].to(copies.device).float() if rounds else copies.new_zeros(1, copies.shape[-1])
        how = SelfTraining(self.ridge, rounds, self.shrink, self.sharpness, self.unseen)
        weight, bias = how.fit(samples, self.num_classes, pool)
        rows = torch.tensor(list(slots), device=copies.device)
        on_progress(len(numbers))
        return numbers, {"fc1.weight": weight[rows], "fc1.bias": bias[rows]}

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
            tensors = {name: value for name, value in self.shared.items() if name != POOL}
            if self.features == SPECTRAL:
                trunk = SpectralFeatures(self.neighbours, tensors)
            else:
                trunk = new_trunk(channels, self.trunk)
                trunk.load_state_dict(tensors)
            trunk = _to_device(trunk, self.device).eval()
            self._trunk_cache["trunk"] = tuple(self.shared.values()), trunk
            self._transformed.clear()
        return trunk

    def _half_precision(self) -> Any:
        cuda = torch.device(self.device).type == "cuda"
        return torch.autocast("cuda" if cuda else "cpu", torch.bfloat16, enabled=cuda)

    def _spectral(self, x: NDArray[Any], on_progress: ProgressCallback | None) -> dict[str, torch.Tensor]:
        """The tensors of spectral features of these pictures, of which each is taken once."""
        transform, tell = input_transform(self.front), on_progress or (lambda some: None)
        pictures = _in_blocks(x[np.unique(content_keys(x), return_index=True)[1]], transform.before, self.device)
        tell(2 * (len(x) - len(pictures)))

        def maps() -> Iterator[torch.Tensor]:
            return (transform.after(block) for block in pictures.split(1024))

        return learn_spectral(maps, self.neighbours, self.directions, self.numbers, tell)

    def _learn(self, x: NDArray[Any], on_progress: ProgressCallback | None) -> dict[str, torch.Tensor]:
        """The weights of a trunk that has learned from these pictures."""
        transform = input_transform(self.front)
        pictures = _in_blocks(x, transform.before, self.device)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            trunk = new_trunk(x.shape[1], self.trunk)
            found = trunk(transform.after(pictures[:2].cpu())).shape[1:]
            head = learning_head(found, 4 if self.features == "rotnet" else 128)
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
        return trunk.state_dict()

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


def parts_of(pictures: torch.Tensor, crops: int) -> list[torch.Tensor]:
    """`crops` x `crops` evenly spread parts of pictures [n, c, h, w], of half the height and width, scaled to the whole size; the
    pictures themselves for 0."""
    if not crops:
        return [pictures]
    height, width = pictures.shape[2:]
    tall, wide = max(1, height // 2), max(1, width // 2)
    tops, lefts = (
        np.linspace(0, full - part, crops).round().astype(int) for full, part in ((height, tall), (width, wide))
    )
    return [
        functional.interpolate(
            pictures[:, :, top : top + tall, left : left + wide], size=(height, width), mode="bilinear"
        )
        for top in tops
        for left in lefts
    ]


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
    points = scores(trainer._augmented(torch.cat([x, x]), step))
    return simclr(points.unflatten(0, (2, len(x))), trainer.temperature)


def _to_device(module: nn.Module, device: str) -> nn.Module:
    layout = torch.channels_last if torch.device(device).type == "cuda" else torch.contiguous_format
    return module.to(device=device, memory_format=layout)  # type: ignore[call-overload]


def _in_blocks(x: NDArray[Any], function: Callable[[torch.Tensor], torch.Tensor], device: str) -> torch.Tensor:
    blocks = []
    for start in range(0, len(x), 1024):
        blocks.append(function(to_pictures(np.ascontiguousarray(x[start : start + 1024]), device)))
    return torch.cat(blocks)


_GREY: Mapping[str, Any] = {"views": 8, "steps": 400, "batch": 32, "lr": 3e-3}
_SPECTRAL: Mapping[str, Any] = {
    "learning_epochs": 2,  # as `learn_spectral` tells its progress
    "augment": "none",
    "views": 1,
    "neighbours": 5,
    "directions": 160,
    "solver": "self-training",
    "rounds": 10,
    "shrink": 0.1,
    "sharpness": 1.0,
    "unseen": True,
}
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
