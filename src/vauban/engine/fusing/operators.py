"""What a fused graph calls: on a GPU one kernel for convolution, sum and ReLU, elsewhere the same in torch's own operations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

Sides = Sequence[int]


def conv_relu(
    x: Tensor, weight: Tensor, bias: Tensor, stride: Sides, padding: Sides, dilation: Sides, groups: int
) -> Tensor:
    """relu(conv(x) + bias)."""
    if x.device.type == "cuda":
        return torch.cudnn_convolution_relu(x, weight, bias, stride, padding, dilation, groups)
    return functional.conv2d(x, weight, bias, stride, padding, dilation, groups).relu_()


def conv_add_relu(
    x: Tensor, weight: Tensor, z: Tensor, bias: Tensor, stride: Sides, padding: Sides, dilation: Sides, groups: int
) -> Tensor:
    """relu(conv(x) + bias + z)."""
    if x.device.type == "cuda":
        z = z.contiguous(memory_format=torch.channels_last)
        return torch.cudnn_convolution_add_relu(x, weight, z, 1.0, bias, stride, padding, dilation, groups)
    return functional.conv2d(x, weight, bias, stride, padding, dilation, groups).add_(z).relu_()


def max_pool(x: Tensor, kernel: Sides, stride: Sides, padding: Sides) -> Tensor:
    """The largest value of each window."""
    if x.device.type == "cuda" and x.is_contiguous(memory_format=torch.channels_last):
        from vauban.engine.fusing import kernels

        return kernels.max_pool(x, kernel, stride, padding)
    return functional.max_pool2d(x, list(kernel), list(stride), list(padding))


def affine(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """x * scale + shift, a batch norm that no convolution precedes."""
    return torch.addcmul(shift, x, scale)
