"""Gradients of convolutions where a kernel sees nothing but padding: torch leaves them unwritten in bf16 on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vauban.engine.network import called

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@contextmanager
def unseen_zeroed(network: nn.Module, views: Tensor, precision: str) -> Iterator[None]:
    """Make gradients zero, in every backward pass of `network` on views of this shape, where a kernel only ever sees zeros.

    There they are zero by definition, and torch's bf16 kernels for CPUs return whatever the memory held before (seen with torch
    2.13, on narrow inputs of layers with a stride). Its other gradients are right, and so are all of them in other precisions
    and on GPUs, where nothing is done.
    """
    hooks = []
    if views.device.type == "cpu" and precision == "bf16":
        for weight, positions in _seen(network, views).items():
            if weight.requires_grad and not bool(positions.all()):
                hooks.append(
                    weight.register_hook(lambda gradient, unseen=~positions: gradient.masked_fill(unseen, 0.0))
                )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _seen(network: nn.Module, views: Tensor) -> dict[nn.Parameter, Tensor]:
    """For the weight of every convolution which positions of its kernel see a value, in one call of the network."""
    seen: dict[nn.Parameter, Tensor] = {}

    def look(layer: Any, given: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        weight = layer._parameters.get("weight")  # a parametrized weight is no parameter
        maps = given[0] if given else named["input"]
        if weight is not None and maps.dim() == weight.dim():
            found = seen_positions(layer, maps.shape[2:]).to(weight.device)
            seen[weight] = seen[weight] | found if weight in seen else found

    layers = [part for part in network.modules() if isinstance(part, CONVOLUTIONS)]
    hooks = [layer.register_forward_pre_hook(look, with_kwargs=True) for layer in layers]
    modes = {part: part.training for part in network.modules()}
    network.eval()
    try:
        with torch.no_grad():
            called(network, views)
    finally:
        for part, training in modes.items():
            part.training = training
        for hook in hooks:
            hook.remove()
    return seen


def seen_positions(layer: Any, sides: tuple[int, ...]) -> Tensor:
    """Whether each position of a layer's kernel sees a value of an input with these sides, as booleans of the kernel's shape.

    >>> seen_positions(nn.Conv2d(3, 8, 3, stride=2, padding=1), (4, 1)).int().tolist()
    [[0, 1, 0], [0, 1, 0], [0, 1, 0]]
    """
    found = torch.ones(tuple(layer.kernel_size), dtype=torch.bool)
    pads = layer._reversed_padding_repeated_twice  # of the last side first, before and after
    for axis, side in enumerate(sides):
        kernel, stride, dilation = layer.kernel_size[axis], layer.stride[axis], layer.dilation[axis]
        last = 2 * (len(sides) - 1 - axis)
        before, after = pads[last : last + 2]
        first_value, end = (before, before + side) if layer.padding_mode == "zeros" else (0, before + side + after)
        steps = (before + side + after - dilation * (kernel - 1) - 1) // stride + 1
        reached = torch.arange(kernel)[:, None] * dilation + torch.arange(steps) * stride
        along = ((reached >= first_value) & (reached < end)).any(1)
        found = found & along.reshape([-1 if other == axis else 1 for other in range(len(sides))])
    return found
