"""Views in which every number is replaced by a bin of random width, told apart as fractional Lp distances ask."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np
import torch

from vauban.certificates.fractional import DIVIDER_BITS, FractionalLaw
from vauban.smoothing.base import Smoothing
from vauban.smoothing.grid import GridNoise, to_unit
from vauban.smoothing.splitting import float_bins, grid_bins


class Fractional(Smoothing):
    """Each number's bin, its width drawn per coordinate; infinite widths ablate it. [Levine2023] Definition 4.2

    `representation` ([Levine2023] C.5): "upper_lower" shows both ends of the bin, the upper ones before the lower ones
    along the first axis (so pictures have twice the channels); "center" shows its middle only.

    >>> Fractional(p="1/2", scale=9, sampled=True)
    Fractional(p=1/2, scale=9.0, sampled=true)
    """

    law_type = FractionalLaw
    law: FractionalLaw

    def __init__(
        self, p: Fraction | str | float, scale: float, *, sampled: bool = False, representation: str = "upper_lower"
    ):
        self.law = FractionalLaw(Fraction(str(p)), float(scale), sampled, representation)

    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        return shape.numel()

    def view_shape(self, shape: torch.Size) -> torch.Size:
        return shape if self.law.representation == "center" else torch.Size((2 * shape[0], *shape[1:]))

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        shape = (len(words), *x.shape[1:])
        if levels is None:
            width, u = _float_splits(self.law).draw(words)
            lower, upper = float_bins(x, u.view(shape), width.view(shape))
            unit = 1
        else:
            place, period = _grid_splits(self.law, levels).draw(words)
            lower, upper = grid_bins(x, place.view(shape), period.view(shape), levels)
            unit = 2 * levels
        if self.law.representation == "center":
            return to_unit(lower.add_(upper), 2 * unit)
        return to_unit(torch.cat([upper, lower], dim=1), unit)


class _OnDevice:
    """Tables that are built once and copied once to each device."""

    def __init__(self, *tables: np.ndarray):
        self._there = {torch.device("cpu"): [torch.from_numpy(table) for table in tables]}

    def __call__(self, device: torch.device) -> list[torch.Tensor]:
        if device not in self._there:
            self._there[device] = [table.to(device) for table in self._there[torch.device("cpu")]]
        return self._there[device]


class _GridSplits:
    """Words into places and periods, int32 in steps, as `grid_bins` takes them."""

    def __init__(self, law: FractionalLaw, levels: int):
        table = law.table(levels)
        self.levels = levels
        self._widths = GridNoise(table.widths)
        self._tables = _OnDevice(table.starts, table.cells)

    def draw(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        starts, cells = self._tables(words.device)
        which = self._widths.draw(words).int()
        place = (words - starts[which]).div_(cells[which], rounding_mode="floor").int()
        return place.masked_fill_(which == self.levels, self.levels + 1), which.add_(1)


class _FloatSplits:
    """Words into widths, and into dividers as fractions of them: float64 both, as `float_bins` takes them."""

    def __init__(self, law: FractionalLaw):
        self._tables = _OnDevice(law.float_widths())

    def draw(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (widths,) = self._tables(words.device)
        u = (words & (2**DIVIDER_BITS - 1)).double().add_(0.5).mul_(2.0**-DIVIDER_BITS)
        return widths[words >> DIVIDER_BITS], u


_grid_splits = lru_cache(maxsize=16)(_GridSplits)
_float_splits = lru_cache(maxsize=16)(_FloatSplits)
