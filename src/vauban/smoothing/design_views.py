"""Views of design laws: the value of every number in every outcome is looked up in a table."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from vauban.laws.designs.law import DesignLaw, Ints
from vauban.smoothing.base import without_value
from vauban.smoothing.grid import to_unit
from vauban.smoothing.splitting import grid_bins


def represented(lower: torch.Tensor, upper: torch.Tensor, unit: int, representation: str) -> list[torch.Tensor]:
    """The representation of bins, their ends given in units of 1 / unit: one or two float32 tensors. [Levine2023] C.5"""
    if representation == "upper_lower":
        return [to_unit(upper, unit), to_unit(lower, unit)]
    center = to_unit(lower + upper, 2 * unit)
    if representation == "center":
        return [center]
    return [center, center if representation == "center_center" else to_unit(upper - lower, 2 * unit)]


def follow_bins(views: torch.Tensor, change: torch.Tensor, representation: str) -> torch.Tensor:
    """Views of bins, whose ends and middle pass the gradient to their number, and whose width passes none."""
    passed = without_value(change)
    if representation == "center":
        return views + passed
    return views + torch.cat([passed, torch.zeros_like(passed) if representation == "center_error" else passed], dim=1)


def shown_shape(shape: torch.Size, representation: str) -> torch.Size:
    """The shape of a view; two-part representations put all first parts before all second parts along the first axis."""
    return shape if representation == "center" else torch.Size((2 * shape[0], *shape[1:]))


def views_of_design(law: DesignLaw, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """View word % law.views for each row of `words` [count, 1]; `x`: [1 or count, ...shape], whole numbers 0..levels."""
    parts, outcome_offsets = _tables(law, x.shape[1:], x.device)
    number = (words % law.views).int().view(-1, *[1] * (x.dim() - 1))
    at = outcome_offsets(number).add_(x.int())
    return torch.cat([_lookup(part, at) for part in parts], dim=1)


def _lookup(table: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """table[at] for a vector `table`; on the CPU several times faster than indexing."""
    return table.index_select(0, at.reshape(-1)).view(at.shape)


def _on(device: torch.device, table: Ints) -> torch.Tensor:
    return torch.from_numpy(table).int().to(device)


class _CyclicOffsets:
    """Cyclic coupling: where outcome (v + offset_i) mod V begins in the table, int32 [count, ...shape]."""

    def __init__(self, law: DesignLaw, begins: Ints, shape: torch.Size, device: torch.device):
        self._begins = _on(device, np.concatenate([begins, begins]))
        self._starts = _on(device, law.starts(shape))

    def __call__(self, number: torch.Tensor) -> torch.Tensor:
        return _lookup(self._begins, number + self._starts)


class _GlobalOffsets:
    """Global coupling: outcome v decides the width, and coordinate i's divider is moved by offset_i within it."""

    def __init__(self, law: DesignLaw, begins: Ints, shape: torch.Size, device: torch.device):
        outcomes, self._step = law.outcomes(), law.levels + 1
        divider = np.where(outcomes.divider < outcomes.period, outcomes.divider, 0)
        self._first, self._divider = _on(device, begins - divider * self._step), _on(device, divider)
        self._period = _on(device, outcomes.period)
        self._starts = _on(device, law.starts(shape))

    def __call__(self, number: torch.Tensor) -> torch.Tensor:
        divider = (_lookup(self._divider, number) + self._starts).remainder_(_lookup(self._period, number))
        return divider.mul_(self._step).add_(_lookup(self._first, number))


class _Permutations:
    """Arbitrary coupling: coordinate i of view v has the outcome to which its own permutation maps v."""

    def __init__(self, law: DesignLaw, begins: Ints, shape: torch.Size, device: torch.device):
        table = begins.astype(np.int32)[law.permutations(shape)]
        self._begins = torch.from_numpy(np.ascontiguousarray(table)).view(-1, *shape).to(device)

    def __call__(self, number: torch.Tensor) -> torch.Tensor:
        return self._begins.index_select(0, number.flatten())


_COUPLINGS: dict[str, type[_CyclicOffsets] | type[_GlobalOffsets] | type[_Permutations]] = {
    "cyclic": _CyclicOffsets,
    "global": _GlobalOffsets,
    "arbitrary": _Permutations,
}


@lru_cache(maxsize=32)  # several smoothings by turns use all of theirs in one batch
def _tables(
    law: DesignLaw, shape: torch.Size, device: torch.device
) -> tuple[list[torch.Tensor], _CyclicOffsets | _GlobalOffsets | _Permutations]:
    """Tables of the representation of value x in outcome o, at o * (levels + 1) + x, float32; and where views find outcomes.

    Each pair of width and divider is in the tables once. They are computed on the CPU, so views are the same on every device.
    """
    outcomes, step = law.outcomes(), law.levels + 1
    pairs, inverse = np.unique(np.stack([outcomes.period, outcomes.divider]), axis=1, return_inverse=True)
    period, divider = (torch.from_numpy(row.copy())[:, None].int() for row in pairs)
    lower, upper = grid_bins(torch.arange(step)[None], divider, period, law.levels)
    parts = represented(lower, upper, 2 * law.levels, law.representation)
    outcome_offsets = _COUPLINGS[law.coupling](law, inverse.reshape(-1).astype(np.int64) * step, shape, device)
    return [part.flatten().to(device) for part in parts], outcome_offsets
