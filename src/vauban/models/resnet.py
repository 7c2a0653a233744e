"""Residual networks (He et al. 2016) for small pictures and for ImageNet, with the tensor names of public weights."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional


def convolution(inside: int, outside: int, kernel: int, stride: int | tuple[int, int] = 1) -> nn.Conv2d:
    """Return a convolution without bias that keeps the picture's size, up to its stride."""
    layer = nn.Conv2d(inside, outside, kernel, stride=stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def _projection(inside: int, outside: int, stride: int | tuple[int, int]) -> nn.Sequential | None:
    """Return the 1x1 shortcut where the block changes the shape, None where the input can be added as it is."""
    if stride in (1, (1, 1)) and inside == outside:
        return None
    return nn.Sequential(convolution(inside, outside, 1, stride), nn.BatchNorm2d(outside))


class Basic(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, inside: int, width: int, stride: int | tuple[int, int]):
        super().__init__()
        self.conv1 = convolution(inside, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _projection(inside, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(out)) + shortcut)


class Bottleneck(nn.Module):
    """1x1, 3x3 (which has the stride) and 1x1 convolutions, and a shortcut."""

    expansion = 4

    def __init__(self, inside: int, width: int, stride: int):
        super().__init__()
        self.conv1 = convolution(inside, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = convolution(width, 4 * width, 1)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = _projection(inside, 4 * width, stride)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = functional.relu(self.bn1(self.conv1(x)))
        out = functional.relu(self.bn2(self.conv2(out)))
        return functional.relu(self.bn3(self.conv3(out)) + shortcut)


class ResNet(nn.Module):
    """Stages `layer1`, `layer2`, … of blocks, the width doubling and the side halving from one to the next.

    Returns scores [batch, classes] for pictures [batch, channels, height, width]. `wide_stem` is ImageNet's: 7x7 with
    stride 2 and a max-pool; otherwise 3x3.
    """

    def __init__(
        self,
        block: type[Basic] | type[Bottleneck],
        depths: Sequence[int],
        width: int,
        channels: int,
        classes: int,
        wide_stem: bool = False,
    ):
        super().__init__()
        self.conv1 = convolution(channels, width, 7, 2) if wide_stem else convolution(channels, width, 3)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if wide_stem else nn.Identity()
        self._stages = [f"layer{i + 1}" for i in range(len(depths))]
        inside = width
        for stage, (name, depth) in enumerate(zip(self._stages, depths, strict=True)):
            blocks = []
            for i in range(depth):
                blocks.append(block(inside, width << stage, stride=2 if stage and i == 0 else 1))
                inside = (width << stage) * block.expansion
            self.add_module(name, nn.Sequential(*blocks))
        self.fc = nn.Linear(inside, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(functional.relu(self.bn1(self.conv1(x))))
        for name in self._stages:
            x = getattr(self, name)(x)
        return self.fc(x.mean((2, 3)))


def resnet18(channels: int, classes: int, width: int | None = None) -> nn.Module:
    """Return ResNet-18 with a 3x3 stem, for pictures of about 32x32; `width`: channels of the first stage, 64 unless given.

    With the width of 64 it is the CIFAR-10 network of [Wong2019], which the thesis takes over for Wasserstein attacks (D.2).
    """
    return ResNet(Basic, (2, 2, 2, 2), width or 64, channels, classes)


def resnet50_cifar(channels: int, classes: int, width: int) -> nn.Module:
    """Return ResNet-50 with a 3x3 stem and no max-pool, for pictures of about 32x32."""
    return ResNet(Bottleneck, (3, 4, 6, 3), width, channels, classes)


def resnet110(channels: int, classes: int) -> nn.Module:
    """Return CIFAR's ResNet-110: three stages of 18 blocks, 16 to 64 channels."""
    return ResNet(Basic, (18, 18, 18), 16, channels, classes)


def resnet50(channels: int, classes: int) -> nn.Module:
    """Return ImageNet's ResNet-50, for pictures of about 224x224."""
    return ResNet(Bottleneck, (3, 4, 6, 3), 64, channels, classes, wide_stem=True)
