"""Wide residual networks (Zagoruyko and Komodakis 2016) for pictures of 32x32."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from vauban.models.resnet import convolution


class PreActivation(nn.Module):
    """Normalise, activate, convolve, twice, and a shortcut; a 1x1 shortcut starts from the activated input."""

    def __init__(self, inside: int, outside: int, stride: int):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inside)
        self.conv1 = convolution(inside, outside, 3, stride)
        self.bn2 = nn.BatchNorm2d(outside)
        self.conv2 = convolution(outside, outside, 3)
        self.convShortcut = convolution(inside, outside, 1, stride) if inside != outside else None

    def forward(self, x: Tensor) -> Tensor:
        active = functional.relu(self.bn1(x))
        out = self.conv2(functional.relu(self.bn2(self.conv1(active))))
        return out + (x if self.convShortcut is None else self.convShortcut(active))


class Stage(nn.Module):
    """A sequence of blocks, the first of which has the stride; named `layer`, as in public weights."""

    def __init__(self, depth: int, inside: int, outside: int, stride: int):
        super().__init__()
        first = PreActivation(inside, outside, stride)
        self.layer = nn.Sequential(first, *(PreActivation(outside, outside, 1) for _ in range(depth - 1)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class WideResNet(nn.Module):
    """Three stages of (depth - 4) / 6 blocks, `widen` times as wide as 16, 32, 64; returns scores [batch, classes]."""

    def __init__(self, depth: int, widen: int, channels: int, classes: int):
        super().__init__()
        blocks = (depth - 4) // 6
        self.conv1 = convolution(channels, 16, 3)
        self.block1 = Stage(blocks, 16, 16 * widen, 1)
        self.block2 = Stage(blocks, 16 * widen, 32 * widen, 2)
        self.block3 = Stage(blocks, 32 * widen, 64 * widen, 2)
        self.bn1 = nn.BatchNorm2d(64 * widen)
        self.fc = nn.Linear(64 * widen, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block3(self.block2(self.block1(self.conv1(x))))
        return self.fc(functional.relu(self.bn1(x)).mean((2, 3)))


def wideresnet40_2(channels: int, classes: int) -> nn.Module:
    """Return the wide residual network of depth 40 and width 2."""
    return WideResNet(40, 2, channels, classes)
