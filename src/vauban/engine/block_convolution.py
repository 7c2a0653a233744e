"""Strided convolutions over pictures with few channels, computed over blocks of pixels: faster in bf16 on GPUs."""

from __future__ import annotations

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
        self.blocks = [-(-side // self.stride[0]) for side in self.kernel_size]
        short = [n * self.stride[0] - side for n, side in zip(self.blocks, self.kernel_size, strict=True)]
        self.missing = (0, short[1], 0, short[0])

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4 or input.shape[1] != self.in_channels or not input.numel():
            return super().forward(input)  # handles it or raises the usual error
        pads: list[int] = []
        for size, kernel, padding, blocks in zip(
            input.shape[2:], self.kernel_size, map(int, self.padding), self.blocks, strict=True
        ):
            windows = (size + 2 * padding - kernel) // self.stride[0] + 1
            if windows < 1:
                return super().forward(input)
            pads = [padding, (windows - 1 + blocks) * self.stride[0] - size - padding, *pads]
        weight = self._by_blocks(functional.pad(self.weight, self.missing))
        return functional.conv2d(self._by_blocks(functional.pad(input, pads)), weight, self.bias)

    def _by_blocks(self, x: Tensor) -> Tensor:
        """Pixels (n, channels, height, width) grouped into blocks, channels last and padded with zeros."""
        s = self.stride[0]
        x = x.unflatten(3, (-1, s)).unflatten(2, (-1, s)).permute(0, 2, 4, 3, 5, 1).flatten(3)
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
