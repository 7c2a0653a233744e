"""Convolutional networks of several agents that compute features of `GoalImageEncoder`'s pictures without drawing them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from vauban.engine.block_convolution import WHOLE
from vauban.rl.encoders import GoalImageEncoder

Jvp = Callable[[Tensor], Tensor]

_SIDE, _STEP = 8, 4  # pixels: kernel size and stride of the first convolution
_NEAR = 3  # adjacent windows that can contain part of a square of four pixels


class Scene(NamedTuple):
    """Pictures as inputs of the first convolution: goals as cells of a grid, the car as squares in the windows that contain them.

    cells: (n, batch, side, side), the red value of each cell; differentiable.
    patches: (n, squares, batch * 9, 64), the pixels of the nine windows that can contain a square.
    windows: (n, squares, batch * 9), the indices of these windows in the whole batch.
    """

    cells: Tensor
    patches: Tensor
    windows: Tensor


def scene(encoder: GoalImageEncoder, state: Tensor, cells: Tensor) -> Scene:
    """The pictures that `encoder` would draw of states (n, batch, 6) and of goals given as cells (n, batch, side, side)."""
    edge, position = encoder.edge, state[..., :2]
    ahead = position + state[..., 4:6].flip(-1)
    ahead = torch.where(ahead > edge, ahead - 2 * edge, torch.where(ahead < -edge, ahead + 2 * edge, ahead))
    centres = (torch.arange(encoder.side, device=state.device) + 0.5) / encoder.PIXELS - encoder.REACH - 0.5
    centre_points = torch.stack([position, ahead], dim=1).flip(-1)  # rows before columns
    near = (centres - centre_points[..., None]).abs() < encoder.HALF / encoder.PIXELS
    first = near.byte().argmax(-1, keepdim=True) // _STEP - 1 + torch.arange(_NEAR, device=state.device)
    pixels = _STEP * (first[..., None] + 1) + torch.arange(_SIDE, device=state.device)
    lines = functional.pad(near.float(), (_STEP, _SIDE)).gather(-1, pixels.flatten(-2)).view(pixels.shape)
    count = (encoder.side - _SIDE) // _STEP + 1
    lines = lines * ((first >= 0) & (first < count))[..., None]
    rows, columns = lines.unbind(3)
    patches = rows[..., :, None, :, None] * columns[..., None, :, None, :]
    row, column = first.clamp(0, count - 1).unbind(3)
    picture = torch.arange(state.shape[1], device=state.device)[:, None, None]
    windows = (picture * count + row[..., :, None]) * count + column[..., None, :]
    return Scene(cells, patches.flatten(5).flatten(2, 4), windows.flatten(2))


class StackedCNN:
    """n of Stable-Baselines3's "Nature" networks: three convolutions and a layer, ReLU after each.

    Goals fill the middles of cells twice as wide as the first convolution's stride, so its output for them is a transposed
    convolution of the cells, 3 x 3 with stride 2; the outputs of the few windows that contain the car are added. Weights are
    stored with channels last. `half`: computes in bfloat16.
    """

    def __init__(self, networks: Sequence[Any], device: str, *, half: bool):
        self.kind, self.spare = (torch.bfloat16, WHOLE - 2) if half else (torch.float32, 0)
        self.strides = [layer.stride[0] for layer in _layers(networks[0])[1:-1]]
        self.parameters = [
            tensor.detach().to(device, copy=True).contiguous() for network in networks for tensor in _tensors(network)
        ]
        self.each = len(self.parameters) // len(networks)
        filled, empty = [_STEP // 2 <= pixel < _SIDE - _STEP // 2 for pixel in range(_SIDE)], [False] * _STEP
        # The filled lines of a cell within the windows before, on and after it; and a kernel whose output for ones is ones.
        lines = [[*empty, *filled[:_STEP]], filled, [*filled[_STEP:], *empty]]
        self.lines = torch.tensor(lines, device=device).to(self.kind)
        self.once = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 0]], device=device).to(self.kind)

    def __call__(self, seen: Scene) -> tuple[Tensor, Jvp]:
        """Features (n, batch, features), and a function from changes of the cells to the features' directional derivative.

        A ReLU network is piecewise linear, so the derivative is one more pass with the same units active.
        """
        count = len(seen.cells)
        passes = [self._one(k, Scene(*(part[k] for part in seen))) for k in range(count)]

        def jvp(changes: Tensor) -> Tensor:
            return torch.stack([passes[k][1](changes[k]) for k in range(count)]).float()

        return torch.stack([features for features, _ in passes]).float(), jvp

    def _one(self, k: int, seen: Scene) -> tuple[Tensor, Jvp]:
        """The same for network k."""
        mine = [p.to(self.kind) for p in self.parameters[k * self.each : (k + 1) * self.each]]
        (first, *kernels, last), (bias, *biases) = mine[::2], mine[1::2]
        by_cell = torch.stack([self.lines @ first[:, 0] @ self.lines.T, bias[:, None, None] * self.once])
        by_cell = functional.pad(by_cell, (0, 0, 0, 0, 0, 0, 0, self.spare))
        by_square = seen.patches.to(self.kind) @ first[:, 1:].flatten(2).permute(1, 2, 0)
        kernels = [kernel.permute(0, 3, 1, 2) for kernel in kernels]

        def windows(cells: Tensor, ones: float) -> Tensor:
            """The first convolution's output for the cells, (batch * windows, channels)."""
            wide = functional.pad(cells.to(self.kind)[..., None], (0, 1), value=ones)
            wide = functional.pad(wide, (0, self.spare)).permute(0, 3, 1, 2)
            return functional.conv_transpose2d(wide, by_cell, stride=2, padding=1).permute(0, 2, 3, 1).flatten(0, 2)

        def picture(rows: Tensor) -> Tensor:
            side = 2 * seen.cells.shape[-1] - 1
            return rows.view(-1, side, side, rows.shape[1]).permute(0, 3, 1, 2)

        windows_output = windows(seen.cells, 1.0).clone()  # autograd is slow when a view is added to in place
        # One square at a time, so that no window is added to twice in one call: the order of additions is then fixed.
        for at, square in zip(seen.windows, by_square, strict=True):
            windows_output.index_add_(0, at, square)
        gates = [picture(windows_output).relu()]
        for kernel, bias, stride in zip(kernels, biases, self.strides, strict=False):
            gates.append(functional.conv2d(gates[-1], kernel, bias, stride).relu())
        gates.append(functional.linear(_flat(gates[-1]), last.flatten(1), biases[-1]).relu())

        def jvp(changes: Tensor) -> Tensor:
            dx = _gated(picture(windows(changes, 0.0)), gates[0])
            for kernel, stride, gate in zip(kernels, self.strides, gates[1:], strict=False):
                dx = _gated(functional.conv2d(dx, kernel, None, stride), gate)
            return _gated(functional.linear(_flat(dx), last.flatten(1)), gates[-1])

        return gates[-1], jvp

    def copy_into(self, networks: Sequence[Any]) -> None:
        """Copy each network's tensors into it."""
        theirs = [tensor for network in networks for tensor in _tensors(network)]
        with torch.no_grad():
            for tensor, mine in zip(theirs, self.parameters, strict=True):
                tensor.copy_(mine)


def _layers(network: nn.Module) -> list[Any]:
    return [module for module in network.modules() if isinstance(module, nn.Conv2d | nn.Linear)]


def _tensors(network: nn.Module) -> list[Tensor]:
    """Weights and biases as views with channels last; those of the first convolution, which `_one` splits, as they are."""
    first, *others, last = layers = _layers(network)
    channels = others[-1].out_channels
    side = math.isqrt(last.in_features // channels)
    flat = last.weight.unflatten(1, (channels, side, side))
    weights = [first.weight, *(w.permute(0, 2, 3, 1) for w in (*(layer.weight for layer in others), flat))]
    return [tensor for pair in zip(weights, (layer.bias for layer in layers), strict=True) for tensor in pair]


def _flat(x: Tensor) -> Tensor:
    """(batch, channels, height, width) as rows, channels last."""
    return x.permute(0, 2, 3, 1).flatten(1)


def _gated(dx: Tensor, gate: Tensor) -> Tensor:
    """dx where `gate` is above zero, else 0: the backward pass of a ReLU."""
    return torch.ops.aten.threshold_backward(dx, gate.detach(), 0)
