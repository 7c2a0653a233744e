"""The goals of many sets side by side, without their dummies, and what is added up over them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


def width(n: int) -> int:
    """The least power of two that has room for n, and 16 at least."""
    return max(16, 1 << (n - 1).bit_length())


def kernels(device: torch.device) -> Any:
    """`item_kernels` on a GPU, where torch brings Triton along; else None."""
    if device.type != "cuda":
        return None
    try:
        from vauban.rl.batched_seeds.networks import item_kernels
    except ImportError:
        return None
    return item_kernels


@dataclass(frozen=True)
class Items:
    """The goals of sets (agents, sets) in a fixed room (agents, room), set after set; gates are 0 where it is not filled.

    rows: to which set, over all agents, each goal belongs, (agents, room).
    ends: where in the room each set ends, (agents, sets).

    Numbers of goals (agents, room, n) may be float32 or bfloat16; sums are float32. On a GPU these are kernels of their own
    (`item_kernels`): each goes through the room once.
    """

    rows: Tensor
    points: Tensor
    gates: Tensor
    ends: Tensor
    counts: Tensor
    too_many: Tensor

    @classmethod
    def of(cls, goals: Tensor, room: int) -> Items:
        """Goal sets (agents, sets, n_max, 3) whose goals come before their dummies, as worlds pack them."""
        agents, sets, most, _ = goals.shape
        counts = (goals[..., 2] != 0).sum(-1)
        ends = counts.cumsum(-1)
        number = torch.arange(room, device=goals.device).expand(agents, room).contiguous()
        which = torch.searchsorted(ends, number, right=True)
        gates = (which < sets).float()
        which = which.clamp(max=sets - 1)
        place = (number - (ends - counts).gather(1, which)).clamp(max=most - 1)
        rows = which + sets * torch.arange(agents, device=goals.device)[:, None]
        points = goals.flatten(0, 1)[rows, place, :2].float()
        return cls(rows, points, gates, ends.clamp(max=room), counts[..., None].float(), ends[:, -1].max() > room)

    @cached_property
    def _kernels(self) -> Any:
        return kernels(self.rows.device)

    def spread(self, x: Tensor) -> Tensor:
        """What each goal's set has, (agents, sets, …) to (agents, room, …)."""
        return x.flatten(0, 1)[self.rows]

    def lay(self, state: Tensor, half: bool) -> Tensor:
        """What an encoder reads: state, goal and a 1, (agents, room, n).

        With `half` bfloat16: each number as a sum of two, so that positions stay apart, and zeros up to a power of two.
        """
        if half and self._kernels:
            laid: Tensor = self._kernels.lay(self, state)
            return laid
        x = torch.cat([self.spread(state), self.points], dim=-1)
        one = torch.ones_like(x[..., :1])
        if not half:
            return torch.cat([x, one], dim=-1)
        first = x.bfloat16()
        both = torch.cat([first, (x - first.float()).bfloat16(), one.bfloat16()], dim=-1)
        return torch.nn.functional.pad(both, (0, width(both.shape[-1]) - both.shape[-1]))

    def sums(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """sum_i w_i x_i over each set, (agents, room, n) to (agents, sets, n); weights (agents, room) or 1."""
        if self._kernels:
            total: Tensor = self._kernels.sums(self, x, weights)
            return total
        gated = x.float() * (self.gates if weights is None else self.gates * weights)[..., None]
        return self._add_up(gated)

    def total(self, weights: Tensor) -> Tensor:
        """sum_i w_i over each set, (agents, room) to (agents, sets, 1)."""
        return self._add_up((weights * self.gates)[..., None])

    def _add_up(self, x: Tensor) -> Tensor:
        nothing = x.new_zeros(self.ends.numel(), x.shape[-1])
        return nothing.index_add(0, self.rows.flatten(), x.flatten(0, 1)).view(*self.ends.shape, -1)

    def dots(self, x: Tensor, y: Tensor) -> Tensor:
        """x_i . y of each goal with what its set has, (agents, room, n) and (agents, sets, n) to (agents, room)."""
        if self._kernels:
            found: Tensor = self._kernels.dots(self, x, y)
            return found
        return (x.float() * self.spread(y)).sum(-1) * self.gates

    @torch.no_grad()
    def back(self, x: Tensor, slope: Tensor, weights: Tensor | None, y: Tensor | None) -> tuple[Tensor, Tensor]:
        """slope + w_i y of each goal's set where x_i > 0, as x (agents, room, n), and the sum over the room (agents, 1, n)."""
        if self._kernels:
            pair: tuple[Tensor, Tensor] = self._kernels.back(self, x, slope, weights, y)
            return pair
        found = self.spread(slope)
        if weights is not None and y is not None:
            found = found + weights[..., None] * self.spread(y)
        found = torch.where(x > 0, found, 0) * self.gates[..., None]
        return found.to(x.dtype), found.sum(1, keepdim=True)
