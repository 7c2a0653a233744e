"""Wide residual networks for pictures of 32x32: that of Zagoruyko and Komodakis (2016), and a wider one with SiLU."""

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


class SmoothBlock(nn.Module):
    """Normalise, SiLU, convolve, twice, and a shortcut. The second convolution begins at zero: a new block is its shortcut.

    Where the picture shrinks, the shortcut averages 2x2 pixels before its 1x1 convolution, so that no pixel is skipped.
    """

    def __init__(self, inside: int, outside: int, stride: int):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inside)
        self.conv1 = convolution(inside, outside, 3, stride)
        self.bn2 = nn.BatchNorm2d(outside)
        self.conv2 = convolution(outside, outside, 3)
        nn.init.zeros_(self.conv2.weight)
        self.stride = stride
        self.shortcut = convolution(inside, outside, 1) if inside != outside else None

    def forward(self, x: Tensor) -> Tensor:
        active = functional.silu(self.bn1(x))
        out = self.conv2(functional.silu(self.bn2(self.conv1(active))))
        if self.shortcut is None:
            return out + x
        shrunk = functional.avg_pool2d(active, self.stride, ceil_mode=True) if self.stride > 1 else active
        return out + self.shortcut(shrunk)


class SmoothWideResNet(nn.Module):
    """A pre-activation wide residual network with SiLU: stages of `blocks` blocks, `width`, 2 and 4 times `width` channels wide.

    What differs from the networks of 2016, and why: the first convolution has `width` channels in place of 16 and no narrow layer
    follows it, so that every convolution but the first has whole multiples of the channels that tensor cores take; SiLU, because
    smooth activations were found to help training against attacks (Xie et al. 2020); blocks that begin as their shortcut, so that
    training begins as that of a shallow network. No layer looks at more than one view and no control flow depends on data: the
    whole compiles to one program, channels-last. The default, 128 wide with 3 blocks, has 17.3 million parameters.
    """

    def __init__(self, width: int, blocks: int, channels: int, classes: int):
        super().__init__()
        self.conv1 = convolution(channels, width, 3)
        parts: list[nn.Module] = []
        inside = width
        for stage in range(3):
            for i in range(blocks):
                parts.append(SmoothBlock(inside, width << stage, stride=2 if stage and i == 0 else 1))
                inside = width << stage
        self.blocks = nn.Sequential(*parts)
        self.bn1 = nn.BatchNorm2d(inside)
        self.fc = nn.Linear(inside, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.conv1(x))
        return self.fc(functional.silu(self.bn1(x)).mean((2, 3)))


def wideresnet_silu(channels: int, classes: int, width: int, blocks: int) -> nn.Module:
    """Return the wide residual network with SiLU."""
    return SmoothWideResNet(width, blocks, channels, classes)
