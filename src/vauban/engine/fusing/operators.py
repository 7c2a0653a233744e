"""What a fused graph calls: torch's own operations, and for each the one kernel that computes it on a GPU.

A graph is written with torch's operations, which run everywhere; `on_gpu` puts the kernels in their places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional

from vauban.engine.fusing.graph import calls, constant

Sides = Sequence[int]


def conv_relu(
    x: Tensor, weight: Tensor, bias: Tensor, stride: Sides, padding: Sides, dilation: Sides, groups: int
) -> Tensor:
    """relu(conv(x) + bias)."""
    return functional.conv2d(x, weight, bias, stride, padding, dilation, groups).relu_()


def conv_add_relu(
    x: Tensor, weight: Tensor, z: Tensor, bias: Tensor, stride: Sides, padding: Sides, dilation: Sides, groups: int
) -> Tensor:
    """relu(conv(x) + bias + z)."""
    return functional.conv2d(x, weight, bias, stride, padding, dilation, groups).add_(z).relu_()


def max_pool(x: Tensor, kernel: Sides, stride: Sides, padding: Sides) -> Tensor:
    """The largest value of each window."""
    return functional.max_pool2d(x, list(kernel), list(stride), list(padding))


def affine(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """x * scale + shift, a batch norm that no convolution precedes."""
    return torch.addcmul(shift, x, scale)


def on_gpu(module: fx.GraphModule, dtype: torch.dtype, device: torch.device) -> None:
    """Let a graph of the operations above call one kernel for each.

    cuDNN's kernel reads a summand even where there is none to add. torch gives it the result's own memory times 0, in which any
    earlier numbers lie: of NaN among them 0 times NaN remains. Here these convolutions share one tensor of zeros for it.
    """
    alone = list(calls(module.graph, conv_relu))
    if alone:
        zeros = torch.zeros(max(math.prod(_shape(node)) for node in alone), dtype=dtype, device=device)
        with module.graph.inserting_before(alone[0]):
            nothing = constant(module, module.graph, zeros)
    for node in alone:
        node.target, node.args = _cudnn_conv_relu, (*node.args, nothing, list(_shape(node)))
    for node in calls(module.graph, conv_add_relu):
        node.target = _cudnn_conv_add_relu
    for node in calls(module.graph, max_pool):
        node.target = _triton_max_pool


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _cudnn_conv_relu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    zeros: Tensor,
    shape: Any,
) -> Tensor:
    n, channels, height, width = shape
    z = zeros[: math.prod(shape)].view(n, height, width, channels).permute(0, 3, 1, 2)
    return torch.cudnn_convolution_add_relu(x, weight, z, 0.0, bias, stride, padding, dilation, groups)


def _cudnn_conv_add_relu(
    x: Tensor, weight: Tensor, z: Tensor, bias: Tensor, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    z = z.contiguous(memory_format=torch.channels_last)
    return torch.cudnn_convolution_add_relu(x, weight, z, 1.0, bias, stride, padding, dilation, groups)


def _triton_max_pool(x: Tensor, kernel: Sides, stride: Sides, padding: Sides) -> Tensor:
    if not x.is_contiguous(memory_format=torch.channels_last):
        return max_pool(x, kernel, stride, padding)
    from vauban.engine.fusing import kernels

    return kernels.max_pool(x, kernel, stride, padding)
