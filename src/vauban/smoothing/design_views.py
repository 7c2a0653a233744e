"""Views from a designed list: every number is looked up in a table of what each outcome shows of it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from vauban.laws.designs.law import DesignLaw, Ints
from vauban.smoothing.grid import to_unit
from vauban.smoothing.splitting import grid_bins


def represented(lower: torch.Tensor, upper: torch.Tensor, unit: int, representation: str) -> list[torch.Tensor]:
    """What a view shows of bins whose ends are given in 1 / unit, float32: one or two tensors, as [Levine2023] C.5 has them."""
    if representation == "upper_lower":
        return [to_unit(upper, unit), to_unit(lower, unit)]
    center = to_unit(lower + upper, 2 * unit)
    if representation == "center":
        return [center]
    return [center, center if representation == "center_center" else to_unit(upper - lower, 2 * unit)]


def shown_shape(shape: torch.Size, representation: str) -> torch.Size:
    """The shape of a view: along the first axis all first parts come before all second ones."""
    return shape if representation == "center" else torch.Size((2 * shape[0], *shape[1:]))


def views_of_design(law: DesignLaw, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """View number word % law.views for each row of `words` [count, 1]; `x`: [1 or count, ...shape], whole numbers 0..levels."""
    shown, rows = _tables(law, x.shape[1:], x.device)
    number = (words % law.views).int().view(-1, *[1] * (x.dim() - 1))
    at = rows(number).add_(x.int())
    return torch.cat([_taken(part, at) for part in shown], dim=1)


def _taken(table: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """table[at] of a vector, several times faster on the CPU."""
    return table.index_select(0, at.reshape(-1)).view(at.shape)


def _on(device: torch.device, table: Ints) -> torch.Tensor:
    return torch.from_numpy(table).int().to(device)


class _CyclicOffsets:
    """Where outcome (v + offset_i) mod V begins in the table of what is shown, int32 [count, ...shape]."""

    def __init__(self, law: DesignLaw, begins: Ints, shape: torch.Size, device: torch.device):
        self._begins = _on(device, np.concatenate([begins, begins]))
        self._starts = _on(device, law.starts(shape))

    def __call__(self, number: torch.Tensor) -> torch.Tensor:
        return _taken(self._begins, number + self._starts)


class _GlobalOffsets:
    """As above where outcome v decides the width, and coordinate i's divider is offset_i places further."""

    def __init__(self, law: DesignLaw, begins: Ints, shape: torch.Size, device: torch.device):
        outcomes, self._step = law.outcomes(), law.levels + 1
        place = np.where(outcomes.place < outcomes.period, outcomes.place, 0)
        self._first, self._place = _on(device, begins - place * self._step), _on(device, place)
        self._period = _on(device, outcomes.period)
        self._starts = _on(device, law.starts(shape))

    def __call__(self, number: torch.Tensor) -> torch.Tensor:
        place = (_taken(self._place, number) + self._starts).remainder_(_taken(self._period, number))
        return place.mul_(self._step).add_(_taken(self._first, number))


class _Permutations:
    """As above where coordinate i of view v has the outcome that its own permutation puts there."""

    def __init__(self, law: DesignLaw, begins: Ints, shape: torch.Size, device: torch.device):
        table = begins.astype(np.int32)[law.permutations(shape)]
        self._begins = torch.from_numpy(np.ascontiguousarray(table)).view(-1, *shape).to(device)

    def __call__(self, number: torch.Tensor) -> torch.Tensor:
        return self._begins.index_select(0, number.flatten())


_COUPLED: dict[str, type[_CyclicOffsets] | type[_GlobalOffsets] | type[_Permutations]] = {
    "cyclic": _CyclicOffsets,
    "global": _GlobalOffsets,
    "arbitrary": _Permutations,
}


@lru_cache(maxsize=4)
def _tables(
    law: DesignLaw, shape: torch.Size, device: torch.device
) -> tuple[list[torch.Tensor], _CyclicOffsets | _GlobalOffsets | _Permutations]:
    """What outcome o shows of the value x, at o * (levels + 1) + x, float32; and how views find their outcomes there.

    The table has each width and place once, made on the CPU, so that views have the same bits everywhere.
    """
    outcomes, step = law.outcomes(), law.levels + 1
    pairs, which = np.unique(np.stack([outcomes.period, outcomes.place]), axis=1, return_inverse=True)
    period, place = (torch.from_numpy(row.copy())[:, None].int() for row in pairs)
    lower, upper = grid_bins(torch.arange(step)[None], place, period, law.levels)
    parts = represented(lower, upper, 2 * law.levels, law.representation)
    rows = _COUPLED[law.coupling](law, which.reshape(-1).astype(np.int64) * step, shape, device)
    return [part.flatten().to(device) for part in parts], rows
