"""Views in which every number is replaced by a bin of random width, against fractional Lp attacks."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np
import torch

from vauban.laws.designs.law import fraction
from vauban.laws.fractional import DIVIDER_BITS, ExactFractionalLaw, FractionalLaw
from vauban.smoothing.base import Smoothing, refuse_exact_settings, register
from vauban.smoothing.design_views import follow_bins, represented, shown_shape, views_of_design
from vauban.smoothing.grid import GridNoise
from vauban.smoothing.splitting import float_bins, grid_bins


@register("fractional")
class Fractional(Smoothing):
    """Each number's bin, of a width of its own per coordinate; infinite widths ablate. [Levine2023] Definition 4.2

    Exact: a list of `budget` * scale views; `coupling`, the seed `offsets` and `layout` assign its outcomes to coordinates (see
    `DesignLaw`). `sampled`: widths and dividers are independent per coordinate.

    `representation` ([Levine2023] C.5): "upper_lower" shows both ends of the bin, the upper ones before the lower ones
    along the first axis (so pictures have twice the channels); "center" its middle only; "center_center" that twice;
    "center_error" its middle and half its width.

    >>> Fractional(p="1/2", scale=18), Fractional(p="1/2", scale=9, sampled=True)
    (Fractional(p=1/2, scale=18), Fractional(p=1/2, scale=9.0, sampled=true))
    """

    law: ExactFractionalLaw | FractionalLaw

    def __init__(
        self,
        p: Fraction | str | float,
        scale: Fraction | str | float,
        *,
        offsets: int = 0,
        coupling: str = "cyclic",
        sampled: bool = False,
        representation: str = "upper_lower",
        budget: int = 1000,
        levels: int = 255,
        layout: str = "random",
    ):
        if sampled:
            refuse_exact_settings(offsets=(offsets, 0), layout=(layout, "random"), coupling=(coupling, "cyclic"))
            self.law = FractionalLaw(fraction(p), float(scale), sampled, representation)
        else:
            self.law = ExactFractionalLaw(
                fraction(p), fraction(scale), offsets, representation, coupling, budget, levels, layout
            )

    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        return 1 if isinstance(self.law, ExactFractionalLaw) else shape.numel()

    def view_shape(self, shape: torch.Size) -> torch.Size:
        return shown_shape(shape, self.law.representation)

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        if isinstance(self.law, ExactFractionalLaw):
            return views_of_design(self.law, x, words)
        shape = (len(words), *x.shape[1:])
        if levels is None:
            width, u = _float_splits(self.law).draw(words)
            lower, upper = float_bins(x, u.view(shape), width.view(shape))
            unit = 1
        else:
            divider, period = _grid_splits(self.law, levels).draw(words)
            lower, upper = grid_bins(x, divider.view(shape), period.view(shape), levels)
            unit = 2 * levels
        return torch.cat(represented(lower, upper, unit, self.law.representation), dim=1)

    def follow(self, views: torch.Tensor, change: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return follow_bins(views, change, self.law.representation)


class _OnDevice:
    """Tables that are built once and copied once to each device."""

    def __init__(self, *tables: np.ndarray):
        self._by_device = {torch.device("cpu"): [torch.from_numpy(table) for table in tables]}

    def __call__(self, device: torch.device) -> list[torch.Tensor]:
        if device not in self._by_device:
            self._by_device[device] = [table.to(device) for table in self._by_device[torch.device("cpu")]]
        return self._by_device[device]


class _GridSplits:
    """Draws dividers and periods from words: int32 in steps, arguments of `grid_bins`."""

    def __init__(self, law: FractionalLaw, levels: int):
        table = law.table(levels)
        self.levels = levels
        self._widths = GridNoise(table.widths)
        self._tables = _OnDevice(table.starts, table.cells)

    def draw(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        starts, cells = self._tables(words.device)
        width = self._widths.draw(words).int()
        divider = (words - starts[width]).div_(cells[width], rounding_mode="floor").int()
        return divider.masked_fill_(width == self.levels, self.levels + 1), width.add_(1)


class _FloatSplits:
    """Draws widths, and dividers as fractions of them, from words: float64, arguments of `float_bins`."""

    def __init__(self, law: FractionalLaw):
        self._tables = _OnDevice(law.float_widths())

    def draw(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (widths,) = self._tables(words.device)
        u = (words & (2**DIVIDER_BITS - 1)).double().add_(0.5).mul_(2.0**-DIVIDER_BITS)
        return widths[words >> DIVIDER_BITS], u


_grid_splits = lru_cache(maxsize=16)(_GridSplits)
_float_splits = lru_cache(maxsize=16)(_FloatSplits)
