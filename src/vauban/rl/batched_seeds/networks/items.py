"""The goals of many sets as one flat batch of items without dummies, and sums over them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


def width(n: int) -> int:
    """The smallest power of two that is at least n and at least 16."""
    return max(16, 1 << (n - 1).bit_length())


def kernels(device: torch.device) -> Any:
    """The module `item_kernels` on a GPU with Triton installed, else None."""
    if device.type != "cuda":
        return None
    try:
        from vauban.rl.batched_seeds.networks import item_kernels
    except ImportError:
        return None
    return item_kernels


@dataclass(frozen=True)
class Items:
    """The goals of sets (agents, sets) as items (agents, capacity), set after set; gates are 0 where there is no item.

    rows: the index of each item's set among the sets of all agents, (agents, capacity).
    ends: the index at which each set's items end, (agents, sets).
    overflow: whether there were more goals than `capacity`.

    Values of items (agents, capacity, n) may be float32 or bfloat16; sums are float32. On a GPU the methods are Triton kernels
    (`item_kernels`) that read the items once.
    """

    rows: Tensor
    points: Tensor
    gates: Tensor
    ends: Tensor
    counts: Tensor
    overflow: Tensor

    @classmethod
    def of(cls, goals: Tensor, capacity: int) -> Items:
        """Items of goal sets (agents, sets, n_max, 3) whose goals come before their dummies, as worlds pack them."""
        agents, sets, most, _ = goals.shape
        counts = (goals[..., 2] != 0).sum(-1)
        ends = counts.cumsum(-1)
        number = torch.arange(capacity, device=goals.device).expand(agents, capacity).contiguous()
        which = torch.searchsorted(ends, number, right=True)
        gates = (which < sets).float()
        which = which.clamp(max=sets - 1)
        index = (number - (ends - counts).gather(1, which)).clamp(max=most - 1)
        rows = which + sets * torch.arange(agents, device=goals.device)[:, None]
        points = goals.flatten(0, 1)[rows, index, :2].float()
        return cls(
            rows, points, gates, ends.clamp(max=capacity), counts[..., None].float(), ends[:, -1].max() > capacity
        )

    @cached_property
    def _kernels(self) -> Any:
        return kernels(self.rows.device)

    def per_item(self, x: Tensor) -> Tensor:
        """The value of each item's set, (agents, sets, …) to (agents, capacity, …)."""
        return x.flatten(0, 1)[self.rows]

    def encoder_inputs(self, state: Tensor, half: bool) -> Tensor:
        """Inputs of an encoder: state, goal and a 1 for each item, (agents, capacity, n).

        With `half` in bfloat16: each number as a sum of two, so that near positions stay different, and zeros up to a power of
        two.
        """
        if half and self._kernels:
            inputs: Tensor = self._kernels.encoder_inputs(self, state)
            return inputs
        x = torch.cat([self.per_item(state), self.points], dim=-1)
        one = torch.ones_like(x[..., :1])
        if not half:
            return torch.cat([x, one], dim=-1)
        first = x.bfloat16()
        both = torch.cat([first, (x - first.float()).bfloat16(), one.bfloat16()], dim=-1)
        return torch.nn.functional.pad(both, (0, width(both.shape[-1]) - both.shape[-1]))

    def sums(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """sum_i w_i x_i over each set, (agents, capacity, n) to (agents, sets, n); weights (agents, capacity) or 1."""
        if self._kernels:
            total: Tensor = self._kernels.sums(self, x, weights)
            return total
        gated = x.float() * (self.gates if weights is None else self.gates * weights)[..., None]
        return self._add_up(gated)

    def total(self, weights: Tensor) -> Tensor:
        """sum_i w_i over each set, (agents, capacity) to (agents, sets, 1)."""
        return self._add_up((weights * self.gates)[..., None])

    def _add_up(self, x: Tensor) -> Tensor:
        nothing = x.new_zeros(self.ends.numel(), x.shape[-1])
        return nothing.index_add(0, self.rows.flatten(), x.flatten(0, 1)).view(*self.ends.shape, -1)

    def dots(self, x: Tensor, y: Tensor) -> Tensor:
        """x_i . y with the y of each item's set, (agents, capacity, n) and (agents, sets, n) to (agents, capacity)."""
        if self._kernels:
            found: Tensor = self._kernels.dots(self, x, y)
            return found
        return (x.float() * self.per_item(y)).sum(-1) * self.gates

    @torch.no_grad()
    def backward(self, x: Tensor, slope: Tensor, weights: Tensor | None, y: Tensor | None) -> tuple[Tensor, Tensor]:
        """Gradient in the inputs of a ReLU with outputs x (agents, capacity, n), and its sum over items (agents, 1, n).

        The gradient in x_i is slope + w_i y, with the slope and y of the item's set, (agents, sets, n).
        """
        if self._kernels:
            pair: tuple[Tensor, Tensor] = self._kernels.backward(self, x, slope, weights, y)
            return pair
        found = self.per_item(slope)
        if weights is not None and y is not None:
            found = found + weights[..., None] * self.per_item(y)
        found = torch.where(x > 0, found, 0) * self.gates[..., None]
        return found.to(x.dtype), found.sum(1, keepdim=True)
