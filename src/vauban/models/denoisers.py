"""Networks whose output is a picture: denoisers, which stand in front of a classifier."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class DnCnn(nn.Module):
    """Predicts the noise of a picture by `depth` convolutions, and returns the picture without it. [Zhang2017]

    Layers, names and constants are those of [Salman2020], so that its public weights fit.
    """

    def __init__(self, depth: int, width: int, channels: int):
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
        for _ in range(depth - 2):
            middle = nn.Conv2d(width, width, 3, padding=1, bias=False)
            layers += [middle, nn.BatchNorm2d(width, eps=1e-4, momentum=0.95), nn.ReLU()]
        self.dncnn = nn.Sequential(*layers, nn.Conv2d(width, channels, 3, padding=1, bias=False))
        for part in self.dncnn:
            if isinstance(part, nn.Conv2d):
                nn.init.orthogonal_(part.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x - self.dncnn(x)


class UNet(nn.Module):
    """Predicts the noise of a picture at scales that are halved `depth` times, and returns the picture without it.

    Each scale is twice as wide as the one before: two convolutions on the way down and two on the way up, where the result of the
    way down is joined. Sides that cannot be halved `depth` times are padded with zeros, and the result is cropped.
    """

    def __init__(self, depth: int, width: int, channels: int):
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.first = _pair(channels, width)
        self.down = nn.ModuleList(_pair(a, b, stride=2) for a, b in pairwise(widths))
        self.up = nn.ModuleList(_pair(a + b, a) for a, b in pairwise(widths))
        self.last = nn.Conv2d(width, channels, 3, padding=1)
        nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        least = 1 << len(self.down)
        scales = [self.first(functional.pad(x, (0, -width % least, 0, -height % least)))]
        for down in self.down:
            scales.append(down(scales[-1]))
        found = scales.pop()
        for up in reversed(self.up):
            found = up(
                torch.cat([scales.pop(), functional.interpolate(found, scale_factor=2.0, mode="nearest")], dim=1)
            )
        return x - self.last(found)[:, :, :height, :width]


def _pair(inside: int, outside: int, stride: int = 1) -> nn.Sequential:
    """Two 3x3 convolutions, each normalised and followed by ReLU; the first has the stride."""
    layers: list[nn.Module] = []
    for first, step in ((inside, stride), (outside, 1)):
        convolution = nn.Conv2d(first, outside, 3, stride=step, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(outside), nn.ReLU()]
    return nn.Sequential(*layers)


def dncnn(depth: int, width: int, channels: int) -> nn.Module:
    """Return a DnCNN."""
    return DnCnn(depth, width, channels)


def unet(depth: int, width: int, channels: int) -> nn.Module:
    """Return a small U-Net."""
    return UNet(depth, width, channels)
