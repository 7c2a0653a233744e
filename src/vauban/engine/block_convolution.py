"""Strided convolutions over pictures with few channels, computed over blocks of pixels: faster in bf16 on GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from torch import Tensor, nn
from torch.nn import functional

WHOLE = 8
"""Number of 16-bit channels that tensor cores process at a time."""


def replace_by_blocks(module: nn.Module) -> None:
    """Replace strided convolutions over few channels by `BlockConvolution`, in place."""
    for part in list(module.modules()):
        for name, child in list(part._modules.items()):
            if _strides_over_few(child):
                setattr(part, name, BlockConvolution(child))


class BlockConvolution(nn.Conv2d):
    """A convolution of stride s, computed with stride 1 over blocks of s x s pixels, whose values become the channels.

    The same products, summed in another order. Tensor cores process channels by eights; cuDNN has no good bf16 kernel for three.
    """

    def __init__(self, like: nn.Conv2d):
        super().__init__(
            like.in_channels,
            like.out_channels,
            like.kernel_size,  # type: ignore[arg-type]
            like.stride,  # type: ignore[arg-type]
            like.padding,  # type: ignore[arg-type]
            bias=like.bias is not None,
            device="meta",
        )
        self.weight, self.bias = like.weight, like.bias
        self.train(like.training)

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4 or input.shape[1] != self.in_channels or not input.numel():
            return super().forward(input)  # handles it or raises the usual error
        pads = block_pads(input.shape[2:], self.kernel_size, self.padding, self.stride[0])  # type: ignore[arg-type]
        if pads is None:
            return super().forward(input)
        weight = weight_by_blocks(self.weight, self.stride[0])
        return functional.conv2d(by_blocks(functional.pad(input, pads), self.stride[0]), weight, self.bias)


def block_pads(
    sizes: Sequence[int], kernel: Sequence[int], padding: Sequence[int], stride: int
) -> tuple[int, ...] | None:
    """Zeros left, right, above and below a picture of `sizes` (height, width) that make whole blocks of what a convolution of
    this kernel, padding and stride reads; None where no window fits."""
    pads: tuple[int, ...] = ()
    for size, side, before in zip(sizes, kernel, padding, strict=True):
        windows = (size + 2 * before - side) // stride + 1
        if windows < 1:
            return None
        pads = (before, (windows - 1 + -(-side // stride)) * stride - size - before, *pads)
    return pads


def weight_by_blocks(weight: Tensor, stride: int) -> Tensor:
    """The weight of the convolution with stride 1 over blocks that computes what one of `weight` and this stride does."""
    down, across = (-side % stride for side in weight.shape[2:])
    return by_blocks(functional.pad(weight, (0, across, 0, down)), stride)


def by_blocks(x: Tensor, stride: int) -> Tensor:
    """Pixels (n, channels, height, width) grouped into blocks, channels last and padded with zeros."""
    x = x.unflatten(3, (-1, stride)).unflatten(2, (-1, stride)).permute(0, 2, 4, 3, 5, 1).flatten(3)
    return functional.pad(x, (0, -x.shape[3] % WHOLE)).permute(0, 3, 1, 2)


_USUAL = vars(nn.Conv2d(1, 1, 1, device="meta")).keys()
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _strides_over_few(part: nn.Module | None) -> TypeGuard[nn.Conv2d]:
    """Whether a module is a plain strided Conv2d, without hooks or attributes of its own, over fewer channels than tensor cores
    process at a time."""
    if type(part) is not nn.Conv2d or vars(part).keys() != _USUAL or any(getattr(part, hooks) for hooks in _HOOKS):
        return False
    plain = part.groups == 1 and part.dilation == (1, 1) and part.padding_mode == "zeros"
    if not plain or not all(isinstance(pair, tuple) for pair in (part.kernel_size, part.stride, part.padding)):
        return False
    strides = 1 < part.stride[0] == part.stride[1] <= min(part.kernel_size)
    weight, shape = part._parameters.get("weight"), (part.out_channels, part.in_channels, *part.kernel_size)
    return strides and part.in_channels < WHOLE and weight is not None and weight.shape == shape
