"""Networks that the tests of fused graphs fuse, and the run that they make."""

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from vauban.data import Dataset
from vauban.models.mlp import mlp
from vauban.models.normalise import normalised
from vauban.models.resnet import Basic, Bottleneck, ResNet
from vauban.models.wideresnet import WideResNet
from vauban.smoothed import SmoothedClassifier

CPU = torch.device("cpu")
PICTURES = torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
DATA = Dataset(PICTURES.numpy(), np.array([0, 1, 2]), 3, ("a", "b", "c"), "three")
SETTINGS: dict[str, Any] = {"n": 200, "alpha": 0.01, "progress": False, "seed": 3}


def trained(module: nn.Module) -> nn.Module:
    """The module with weights and statistics that no layer leaves as they are."""
    chance = torch.Generator().manual_seed(1)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            for tensor, low in (
                (part.running_mean, -0.5),
                (part.running_var, 0.5),
                (part.weight, 0.5),
                (part.bias, -0.5),
            ):
                assert tensor is not None
                tensor.data = low + torch.rand(tensor.shape, generator=chance)
        elif isinstance(part, nn.Conv2d | nn.Linear):
            part.weight.data = torch.randn(part.weight.shape, generator=chance) / part.weight[0].numel() ** 0.5
            if part.bias is not None:
                part.bias.data = torch.randn(part.bias.shape, generator=chance) / 2
    return module.eval()


class Changing(nn.Module):
    """ReLUs and a sum in place, a convolution with groups and bias, one over the same tensor twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=4)
        self.norm, self.fc = nn.BatchNorm2d(8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu_(self.first(x))
        y = self.norm(self.second(x))
        y += x
        y = functional.relu_(y)
        y = functional.relu(y + y)
        return self.fc(functional.max_pool2d(y, 2).mean((2, 3)))


class Twice(nn.Module):
    """Two convolutions that are added to each other: both have a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.fc = nn.Conv2d(3, 8, 3, 2), nn.Conv2d(3, 8, 3, 2), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(functional.relu(self.one(x) + self.other(x)).mean((2, 3)))


def small(block: Any = Basic, wide: bool = False) -> nn.Module:
    """A residual network of two blocks."""
    return ResNet(block, (1, 1), 4, 3, 3, wide_stem=wide)


NETWORKS: dict[str, tuple[Any, int, dict[str, int]]] = {
    "residual": (
        lambda: normalised(small(), (0.5, 0.4, 0.3), (0.2,)),
        8,
        {"conv_relu": 3, "conv_add_relu": 2, "conv2d": 1},
    ),
    "bottleneck": (
        lambda: small(Bottleneck, True),
        33,
        {"conv_relu": 5, "conv_add_relu": 2, "conv2d": 2, "max_pool": 1},
    ),
    "before the convolution": (lambda: WideResNet(10, 1, 3, 3), 8, {"conv_relu": 3, "affine": 4, "conv_add_relu": 0}),
    "mlp": (lambda: mlp(192, 3, 8, 2), 8, {"linear": 3}),
    "in place": (Changing, 8, {"conv_relu": 1, "conv_add_relu": 1, "max_pool": 1}),
    "twice": (Twice, 9, {"conv_add_relu": 1, "conv2d": 1}),
}


def fused(model: nn.Module | None = None, **more: Any) -> SmoothedClassifier:
    module = trained(small()) if model is None else model
    options = {"num_classes": 3, "rows": 20, "backend": "fused"} | more
    return SmoothedClassifier(module, "gaussian:sigma=0.25", **options)
