"""How a network lies in memory: the layout in which it answers fastest."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_WHOLE = 8  # channels of 16 bits that tensor cores take at a time


def to_fast_layout(module: nn.Module, dimensions: int, device: torch.device | str, precision: str = "fp32") -> bool:
    """Lay the weights of convolutions out channels-last where that is faster, and say whether: for pictures on the CPU, and on
    GPUs in every precision that tensor cores compute in (all but fp32). In bf16, convolutions that stride over pictures of few
    channels are taken by blocks there, too."""
    on_cpu = torch.device(device).type == "cpu"
    faster = on_cpu or precision != "fp32"
    fast = faster and dimensions == 3 and any(isinstance(part, nn.Conv2d) for part in module.modules())
    if fast:
        if not on_cpu and precision == "bf16":
            take_by_blocks(module)
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return fast


def take_by_blocks(module: nn.Module) -> None:
    """Replace convolutions that stride over pictures of few channels by the same ones over blocks."""
    for part in list(module.modules()):
        for name, child in part.named_children():
            if _strides_over_few(child):
                setattr(part, name, ByBlocks(child))  # type: ignore[arg-type]


def taken_by_blocks(model: object) -> list[str]:
    """The names of convolutions that are taken by blocks."""
    if not isinstance(model, nn.Module):
        return []
    return [name for name, part in model.named_modules() if isinstance(part, ByBlocks)]


class ByBlocks(nn.Conv2d):
    """A convolution of stride s, computed with stride 1: blocks of s x s pixels are its pixels, and their numbers its channels.

    The same products, summed in another order. Tensor cores take channels by eights; with three, cuDNN is several times slower.
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
        stride = self.stride[0]
        # Zeros before the kernel, so that windows begin where blocks do, and after it, so that they end where blocks do.
        self.before = [-int(p) % stride for p in self.padding]
        self.blocks = [-(-(k + b) // stride) for k, b in zip(self.kernel_size, self.before, strict=True)]
        after = [n * stride - k - b for n, k, b in zip(self.blocks, self.kernel_size, self.before, strict=True)]
        self.around = [self.before[1], after[1], self.before[0], after[0]]

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4 or input.shape[1] != self.in_channels or not input.numel():
            return super().forward(input)  # which knows what to do, or to say
        pads: list[int] = []
        for side, size in enumerate(input.shape[2:]):
            first = int(self.padding[side]) + self.before[side]
            windows = (size + 2 * int(self.padding[side]) - self.kernel_size[side]) // self.stride[0] + 1
            if windows < 1:
                return super().forward(input)
            pads = [first, (windows - 1 + self.blocks[side]) * self.stride[0] - size - first, *pads]
        kernel = self._by_blocks(functional.pad(self.weight, self.around))
        return functional.conv2d(self._by_blocks(functional.pad(input, pads)), kernel, self.bias)

    def _by_blocks(self, x: Tensor) -> Tensor:
        """Pixels (n, channels, height, width) by blocks, channels last and filled up with zeros."""
        s = self.stride[0]
        x = x.unflatten(3, (-1, s)).unflatten(2, (-1, s)).permute(0, 2, 4, 3, 5, 1).flatten(3)
        return functional.pad(x, (0, -x.shape[3] % _WHOLE)).permute(0, 3, 1, 2)


def _strides_over_few(part: nn.Module) -> bool:
    """Whether a module is a plain convolution with a stride over pictures whose channels tensor cores cannot take whole."""
    if type(part) is not nn.Conv2d or part._forward_hooks or part._forward_pre_hooks:
        return False
    plain = part.groups == 1 and part.dilation == (1, 1) and part.padding_mode == "zeros"
    strides = part.stride[0] == part.stride[1] > 1 and isinstance(part.padding, tuple)
    return plain and strides and part.in_channels < _WHOLE
