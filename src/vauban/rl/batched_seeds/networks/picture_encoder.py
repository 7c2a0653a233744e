"""Stacked convolutional networks that look at DriveSeek's pictures without drawing them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from vauban.layout import WHOLE
from vauban.rl.encoders import GoalImageEncoder

Along = Callable[[Tensor], Tensor]

_SIDE, _STEP = 8, 4  # pixels: the windows of the first convolution, and the way from one to the next
_NEAR = 3  # windows side by side that can see a square of four pixels


class Scene(NamedTuple):
    """Pictures as the first convolution sees them: goals as cells, and the squares of the car in the windows that see them.

    cells: (n, batch, side, side), what each cell is filled with; differentiable.
    patches: (n, squares, batch * 9, 64), the pixels of the nine windows that can see a square.
    windows: (n, squares, batch * 9), which windows of the whole batch these are.
    """

    cells: Tensor
    patches: Tensor
    windows: Tensor


def scene(drawn: GoalImageEncoder, state: Tensor, cells: Tensor) -> Scene:
    """The pictures that `drawn` would draw of states (n, batch, 6) and goals by cells."""
    edge, position = drawn.edge, state[..., :2]
    ahead = position + state[..., 4:6].flip(-1)
    ahead = torch.where(ahead > edge, ahead - 2 * edge, torch.where(ahead < -edge, ahead + 2 * edge, ahead))
    centres = (torch.arange(drawn.side, device=state.device) + 0.5) / drawn.PIXELS - drawn.REACH - 0.5
    places = torch.stack([position, ahead], dim=1).flip(-1)  # rows before columns
    near = (centres - places[..., None]).abs() < drawn.HALF / drawn.PIXELS
    first = near.byte().argmax(-1, keepdim=True) // _STEP - 1 + torch.arange(_NEAR, device=state.device)
    pixels = _STEP * (first[..., None] + 1) + torch.arange(_SIDE, device=state.device)
    lines = functional.pad(near.float(), (_STEP, _SIDE)).gather(-1, pixels.flatten(-2)).view(pixels.shape)
    count = (drawn.side - _SIDE) // _STEP + 1
    lines = lines * ((first >= 0) & (first < count))[..., None]
    rows, columns = lines.unbind(3)
    patches = rows[..., :, None, :, None] * columns[..., None, :, None, :]
    row, column = first.clamp(0, count - 1).unbind(3)
    picture = torch.arange(state.shape[1], device=state.device)[:, None, None]
    windows = (picture * count + row[..., :, None]) * count + column[..., None, :]
    return Scene(cells, patches.flatten(5).flatten(2, 4), windows.flatten(2))


class StackedCNN:
    """n of the library's "Nature" networks: three convolutions and a layer, ReLU after each.

    Goals fill the middles of cells twice as wide as a step of the first convolution, so that its answer to them is a transposed
    convolution of the cells, 3 x 3 with stride 2. To that come the answers of the few windows that see the car. Weights lie in
    memory as they are read, channels last. `half`: products of bfloat16 numbers.
    """

    def __init__(self, networks: Sequence[Any], device: str, *, half: bool):
        self.kind, self.spare = (torch.bfloat16, WHOLE - 2) if half else (torch.float32, 0)
        self.strides = [layer.stride[0] for layer in _layers(networks[0])[1:-1]]
        self.parameters = [
            tensor.detach().to(device, copy=True).contiguous() for network in networks for tensor in _tensors(network)
        ]
        self.each = len(self.parameters) // len(networks)
        filled, empty = [_STEP // 2 <= pixel < _SIDE - _STEP // 2 for pixel in range(_SIDE)], [False] * _STEP
        # The filled lines of a cell, as the windows before, on and after it see them; and a kernel that makes ones of ones.
        lines = [[*empty, *filled[:_STEP]], filled, [*filled[_STEP:], *empty]]
        self.lines = torch.tensor(lines, device=device).to(self.kind)
        self.once = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 0]], device=device).to(self.kind)

    def __call__(self, seen: Scene) -> tuple[Tensor, Along]:
        """Features (n, batch, features), and the way to their derivative along changes of the cells.

        A ReLU network is linear where it does not bend, so a derivative is one more pass, through the same gates.
        """
        count = len(seen.cells)
        passes = [self._one(k, Scene(*(part[k] for part in seen))) for k in range(count)]

        def along(changes: Tensor) -> Tensor:
            return torch.stack([passes[k][1](changes[k]) for k in range(count)]).float()

        return torch.stack([features for features, _ in passes]).float(), along

    def _one(self, k: int, seen: Scene) -> tuple[Tensor, Along]:
        """The same of one network."""
        mine = [p.to(self.kind) for p in self.parameters[k * self.each : (k + 1) * self.each]]
        (first, *kernels, last), (bias, *biases) = mine[::2], mine[1::2]
        by_cell = torch.stack([self.lines @ first[:, 0] @ self.lines.T, bias[:, None, None] * self.once])
        by_cell = functional.pad(by_cell, (0, 0, 0, 0, 0, 0, 0, self.spare))
        by_square = seen.patches.to(self.kind) @ first[:, 1:].flatten(2).permute(1, 2, 0)
        kernels = [kernel.permute(0, 3, 1, 2) for kernel in kernels]

        def windows(cells: Tensor, ones: float) -> Tensor:
            """What the first convolution says of the cells: (batch * windows, channels)."""
            wide = functional.pad(cells.to(self.kind)[..., None], (0, 1), value=ones)
            wide = functional.pad(wide, (0, self.spare)).permute(0, 3, 1, 2)
            return functional.conv_transpose2d(wide, by_cell, stride=2, padding=1).permute(0, 2, 3, 1).flatten(0, 2)

        def picture(rows: Tensor) -> Tensor:
            side = 2 * seen.cells.shape[-1] - 1
            return rows.view(-1, side, side, rows.shape[1]).permute(0, 3, 1, 2)

        said = windows(seen.cells, 1.0).clone()  # because autograd is slow where views are added to
        # One square after the other, so that no window is added to twice at once: sums do not depend on who is first.
        for at, square in zip(seen.windows, by_square, strict=True):
            said.index_add_(0, at, square)
        gates = [picture(said).relu()]
        for kernel, bias, stride in zip(kernels, biases, self.strides, strict=False):
            gates.append(functional.conv2d(gates[-1], kernel, bias, stride).relu())
        gates.append(functional.linear(_flat(gates[-1]), last.flatten(1), biases[-1]).relu())

        def along(changes: Tensor) -> Tensor:
            dx = _gated(picture(windows(changes, 0.0)), gates[0])
            for kernel, stride, gate in zip(kernels, self.strides, gates[1:], strict=False):
                dx = _gated(functional.conv2d(dx, kernel, None, stride), gate)
            return _gated(functional.linear(_flat(dx), last.flatten(1)), gates[-1])

        return gates[-1], along

    def copy_into(self, networks: Sequence[Any]) -> None:
        """Write each network's tensors back into it."""
        theirs = [tensor for network in networks for tensor in _tensors(network)]
        with torch.no_grad():
            for tensor, mine in zip(theirs, self.parameters, strict=True):
                tensor.copy_(mine)


def _layers(network: nn.Module) -> list[Any]:
    return [module for module in network.modules() if isinstance(module, nn.Conv2d | nn.Linear)]


def _tensors(network: nn.Module) -> list[Tensor]:
    """Weights and biases, as views with channels last; the first convolution's, which is taken apart, as they are."""
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
    """dx where the gate is above zero, as behind a ReLU."""
    return torch.ops.aten.threshold_backward(dx, gate.detach(), 0)
