"""Small convolutional networks for digits."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from vauban.errors import BadInput


class Cnn(nn.Module):
    """Convolutions `conv1`, `conv2`, …, then dense layers `fc1`, `fc2`, …, ReLU between all; returns scores."""

    def __init__(self, convolutions: list[nn.Conv2d], dense: list[nn.Linear]):
        super().__init__()
        self._layers = [f"conv{i + 1}" for i in range(len(convolutions))] + [f"fc{i + 1}" for i in range(len(dense))]
        for name, layer in zip(self._layers, [*convolutions, *dense], strict=True):
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        for name in self._layers:
            if name == "fc1":
                x = x.flatten(1)
            x = getattr(self, name)(x)
            if name != self._layers[-1]:
                x = functional.relu(x)
        return x


def cnn(channels: int, classes: int, size: int) -> nn.Module:
    """Return the base classifier of the thesis' MNIST experiments (Table A.1)."""
    if size < 4:
        raise BadInput(f"size={size} is too small for cnn, which halves it twice: the least is 4")
    side = size // 2 // 2
    return Cnn(
        [nn.Conv2d(channels, 64, 4, stride=2, padding=1), nn.Conv2d(64, 128, 4, stride=2, padding=1)],
        [nn.Linear(128 * side * side, 500), nn.Linear(500, 100), nn.Linear(100, classes)],
    )


def cnn_small(channels: int, classes: int, size: int) -> nn.Module:
    """Return a network of about 1.3 MB that a CPU trains in a minute."""
    side = -(-size // 4)
    return Cnn(
        [nn.Conv2d(channels, 24, 5, stride=2, padding=2), nn.Conv2d(24, 48, 5, stride=2, padding=2)],
        [nn.Linear(48 * side * side, 128), nn.Linear(128, classes)],
    )


def wong_mnist(channels: int, classes: int, size: int) -> nn.Module:
    """Return the MNIST network of [Wong2019], of which the thesis smooths copies (D.2); tensors have its public names."""
    if size < 4:
        raise BadInput(f"size={size} is too small for wong-mnist, which halves it twice: the least is 4")
    side = size // 2 // 2
    return nn.Sequential(
        nn.Conv2d(channels, 16, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * side * side, 100),
        nn.ReLU(),
        nn.Linear(100, classes),
    )
