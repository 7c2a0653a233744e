"""How views reach the first convolution of a fused network: scaled, in blocks of pixels, channels last and padded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional

from vauban.engine.block_convolution import WHOLE, block_pads, by_blocks, weight_by_blocks
from vauban.engine.fusing import operators
from vauban.engine.fusing.folding import without_unused
from vauban.engine.fusing.graph import aten, constant, value


@dataclass(frozen=True)
class Entry:
    """The layout of views [rows, channels, height, width] in front of a convolution.

    A number v of channel c is written as v * scale[c] + shift[c], float32 [channels]. `stride`: the side of the blocks of
    pixels whose numbers become channels; `pads`: zeros left, right, above and below, before blocks are made. `by_kernel`: one
    kernel writes them. `layout` in memory: "blocks", padded for tensor cores; or views as they are, "last" with channels last or
    "first" with channels first, where the stride is 1 and nothing is padded.
    """

    shape: tuple[int, int, int]
    stride: int
    pads: tuple[int, ...]
    scale: Tensor
    shift: Tensor
    by_kernel: bool = False
    layout: str = "blocks"

    @property
    def written(self) -> tuple[int, int, int]:
        """The height and width in blocks, and the channels of a block, padded."""
        channels, height, width = self.shape
        left, right, top, bottom = self.pads
        wide = channels * self.stride**2
        wide += -wide % WHOLE if self.layout == "blocks" else 0
        return (height + top + bottom) // self.stride, (width + left + right) // self.stride, wide

    def buffer(self, rows: int, dtype: torch.dtype) -> Tensor:
        """Zeros for `rows` views, [rows, channels of a block, height, width] in blocks."""
        if self.layout == "first":
            return torch.zeros(rows, *self.shape, dtype=dtype, device=self.scale.device)
        return torch.zeros(rows, *self.written, dtype=dtype, device=self.scale.device).permute(0, 3, 1, 2)

    def write(self, views: Tensor, out: Tensor) -> None:
        """Write views into a `buffer`."""
        if self.by_kernel:
            from vauban.engine.fusing import kernels

            kernels.write(self, views, out)
        else:
            scaled = torch.addcmul(self.shift[:, None, None], views, self.scale[:, None, None])
            padded = functional.pad(scaled, self.pads)
            out.copy_(by_blocks(padded, self.stride) if self.layout == "blocks" else padded)


def with_entry(module: fx.GraphModule, shape: Sequence[int]) -> Entry | None:
    """Let the graph begin with what an `Entry` writes; None, with the graph as it is, where no convolution comes first.

    `shape`: of views [rows, channels, height, width].
    """
    if len(shape) != 4 or (found := _first(module)) is None:
        return None
    views, node, scale, shift = found
    given: list[Any] = list(node.args)
    weight, stride, padding, channels = value(module, given[1]), given[3], given[4], int(shape[1])
    if weight is None or not _is_plain(node, weight, channels):
        return None
    where = weight.device
    scale, shift = (one.expand(channels).float().contiguous().to(where) for one in (scale, shift))
    entry = Entry((channels, int(shape[2]), int(shape[3])), 1, (0, 0, 0, 0), scale, shift)
    down, across = stride
    if 1 < down == across <= min(weight.shape[2:]) and channels < WHOLE:
        pads = block_pads(shape[2:], weight.shape[2:], padding, down)
        if pads is None or min(pads) < 0:
            return None
        entry = replace(entry, stride=down, pads=pads)
        _begin(module, views, node, weight_by_blocks(weight, down), [1, 1], [0, 0])
    elif channels % WHOLE:
        wider = functional.pad(weight, (0, 0, 0, 0, 0, -channels % WHOLE))
        _begin(module, views, node, wider, stride, padding)
    else:
        _begin(module, views, node, weight, stride, padding)
    return entry


def _first(module: fx.GraphModule) -> tuple[fx.Node, fx.Node, Tensor, Tensor] | None:
    """The views, the convolution that alone takes them, and their scale and shift before it; None where there is none."""
    (views,) = module.graph.find_nodes(op="placeholder")
    node, scale, shift = views, torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    while len(node.users) == 1:
        (user,) = node.users
        if user.target in (aten.conv2d.default, operators.conv_relu):
            return (views, user, scale, shift) if user.args[0] is node else None
        by = _per_channel(module, user, node)
        if by is None:
            return None
        if user.target is aten.sub.Tensor:
            shift = shift - by
        elif user.target is aten.add.Tensor:
            shift = shift + by
        else:
            by = 1 / by if user.target is aten.div.Tensor else by
            scale, shift = scale * by, shift * by
        node = user
    return None


def _per_channel(module: fx.GraphModule, user: fx.Node, node: fx.Node) -> Tensor | None:
    """The constants, one or one for each channel, by which a node changes another; None if it does something else."""
    known = (aten.sub.Tensor, aten.add.Tensor, aten.mul.Tensor, aten.div.Tensor)
    if user.target not in known or user.kwargs or user.args[0] is not node:
        return None
    given: Any = user.args[1]
    if isinstance(given, int | float):
        return torch.tensor([float(given)], dtype=torch.float64)
    found = value(module, given)
    if found is None:
        return None
    sides = (1,) * (4 - found.dim()) + tuple(found.shape)
    return found.double().cpu().flatten() if math.prod(sides) == sides[1] else None


def _is_plain(node: fx.Node, weight: Tensor, channels: int) -> bool:
    given: list[Any] = list(node.args)
    return list(given[5]) == [1, 1] and given[6] == 1 and weight.shape[1] == channels


def _begin(module: fx.GraphModule, views: fx.Node, node: fx.Node, weight: Tensor, stride: Any, padding: Any) -> None:
    """Let a convolution take what the entry writes."""
    with module.graph.inserting_before(node):
        new = constant(module, module.graph, weight)
    node.args = (views, new, node.args[2], list(stride), list(padding), *node.args[5:])
    module.graph.eliminate_dead_code()
    without_unused(module)
