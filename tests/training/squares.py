"""Small data and networks on which a training takes a moment."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from vauban.data import Dataset


def pictures(count: int = 60, classes: int = 3, seed: int = 0) -> Dataset:
    """Pictures [1, 8, 8] whose class is the place of a bright square, with random pixels around it."""
    draw = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    images = draw.integers(0, 100, (count, 1, 8, 8), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[:, 2 * label : 2 * label + 3, 2 * label : 2 * label + 3] = 250
    return Dataset(images, labels, classes, tuple(map(str, range(classes))), "squares")


def convolution(dropout: float = 0.0, norm: bool = True, classes: int = 3) -> nn.Module:
    """A network with batch normalisation and, if asked for, dropout; its weights are always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2),
            nn.BatchNorm2d(4) if norm else nn.Identity(),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Flatten(),
            nn.Linear(36, classes),
        )


def tensors(network: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}


def same(one: Any, other: Any) -> bool:
    """Whether two networks have the same tensors, bit for bit."""
    mine, theirs = tensors(one), tensors(other)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def apart(one: Any, other: Any) -> float:
    """The largest difference of two networks' tensors."""
    mine, theirs = tensors(one), tensors(other)
    return max(float((mine[name].double() - theirs[name].double()).abs().max()) for name in mine)
