"""Normalisation as the first layer of a network, so that noise and attacks act on the picture itself."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn


class Normalise(nn.Module):
    """(x - mean) / std for each channel of x [batch, channels, height, width]; mean and std come from the model's spec."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


def normalised(net: nn.Module, mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> nn.Module:
    """Return `net` behind a `Normalise`, or `net` itself where neither mean nor std is given."""
    if mean is None and std is None:
        return net
    return nn.Sequential(OrderedDict(normalise=Normalise(mean or (0.0,), std or (1.0,)), net=net))
