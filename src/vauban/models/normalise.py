"""Normalisation as the first layer of a network, so that noise and attacks act on the picture itself."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn


class Normalise(nn.Module):
    """(x - mean) / std for each channel of x [batch, channels, height, width]; mean and std come from the model's spec.

    `flat`: for each feature of x flattened to [batch, features].
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], flat: bool = False):
        super().__init__()
        self.flat = flat
        shape = (-1,) if flat else (-1, 1, 1)
        self.register_buffer("mean", torch.tensor(mean).reshape(shape), persistent=False)
        self.register_buffer("std", torch.tensor(std).reshape(shape), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return ((x.flatten(1) if self.flat else x) - self.mean) / self.std


def without_normalisation(module: nn.Module) -> nn.Module:
    """Return the network behind a `Normalise`, or the module itself where there is none."""
    behind = isinstance(module, nn.Sequential) and len(module) == 2 and isinstance(module[0], Normalise)
    return module[1] if isinstance(module, nn.Sequential) and behind else module


def normalised(
    net: nn.Module, mean: tuple[float, ...] | None, std: tuple[float, ...] | None, flat: bool = False
) -> nn.Module:
    """Return `net` behind a `Normalise`, or `net` itself where neither mean nor std is given."""
    if mean is None and std is None:
        return net
    return nn.Sequential(OrderedDict(normalise=Normalise(mean or (0.0,), std or (1.0,), flat), net=net))
