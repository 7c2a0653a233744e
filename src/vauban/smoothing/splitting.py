"""Views in which every number is replaced by the bin it falls in, between dividers placed at random."""

from __future__ import annotations

from functools import lru_cache

import torch

from vauban.laws.splitting import ExactSplittingLaw, SplittingLaw
from vauban.numerics import BIN_PAD
from vauban.smoothing.base import Smoothing, refuse_exact_settings, register
from vauban.smoothing.grid import grid_noise, to_unit, uniforms
from vauban.specs import one_sigma


@register("splitting")
class Splitting(Smoothing):
    """The middle of each number's bin; bins span 2 sqrt 3 sigma. Exact: one divider position per view, offset per coordinate by
    the seed `offsets` or by `layout`; `sampled`: positions are independent per coordinate.

    [Levine2023] Theorem 3.2 and Corollary 3.1 (general case)

    >>> Splitting(sigma=0.5), Splitting(sigma=0.5, sampled=True)
    (Splitting(sigma=0.5), Splitting(sigma=0.5, sampled=true))
    """

    law: ExactSplittingLaw | SplittingLaw

    def __init__(self, sigma: float, *, offsets: int = 0, layout: str = "random", sampled: bool = False):
        exact = ExactSplittingLaw(one_sigma(sigma), offsets, layout=layout)
        if sampled:
            refuse_exact_settings(offsets=(offsets, 0), layout=(layout, "random"))
        self.law = SplittingLaw(one_sigma(sigma)) if sampled else exact

    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        return 1 if isinstance(self.law, ExactSplittingLaw) else shape.numel()

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        shape = (len(words), *x.shape[1:])
        if isinstance(self.law, ExactSplittingLaw):
            period = self.law.views
            first = _first_dividers(self.law, x.shape[1:], x.device)
            divider = (first + (words % period).int().view(-1, *[1] * (x.dim() - 1))) % period
            lower, upper = grid_bins(x, divider, period, self.law.levels)
            return to_unit(lower.add_(upper), 4 * self.law.levels)
        if levels is None:
            lower, upper = float_bins(x, uniforms(words).view(shape), self.law.width * BIN_PAD)
            return lower.add_(upper).div_(2).float()
        divider = grid_noise(self.law, levels).draw(words).view(shape)
        lower, upper = grid_bins(x, divider, min(self.law.period(levels), levels + 1), levels)
        return to_unit(lower.add_(upper), 4 * levels)


@lru_cache(maxsize=16)
def _first_dividers(law: ExactSplittingLaw, shape: torch.Size, device: torch.device) -> torch.Tensor:
    """The level below the first divider of each coordinate in view 0: int32 [...shape]."""
    return torch.from_numpy(law.first_dividers(shape)).int().to(device)


def grid_bins(
    x: torch.Tensor, divider: torch.Tensor, period: torch.Tensor | int, levels: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The ends (lower, upper) of the bin of each x, int32 in half steps from 0 to 2 * levels.

    `x`: integers 0..levels. `divider`: the position of the first divider, j for the half step between the levels j and j + 1;
    `period`: the distance of dividers in steps, 1 or more. All broadcast. A divider on a half step is equal to no level, so
    comparisons are exact. A position at or beyond the period means no dividers at all: the bin is [0, 2 * levels].
    """
    x, divider = x.int(), divider.int()
    ordinal = torch.div(x - divider - 1, period, rounding_mode="floor")
    lower = ordinal.mul_(period).add_(divider).mul_(2).add_(1)
    upper = lower + 2 * period
    undivided = divider >= period
    return lower.clamp_(min=0).masked_fill_(undivided, 0), upper.clamp_(max=2 * levels).masked_fill_(
        undivided, 2 * levels
    )


def float_bins(x: torch.Tensor, u: torch.Tensor, width: torch.Tensor | float) -> tuple[torch.Tensor, torch.Tensor]:
    """The ends (lower, upper) of the bin of each x in [0, 1], float64, dividers at (u + n) * width for n = 0, 1, …

    `x`: float32. `u`: in (0, 1), float64. `width`: float64, infinite for no dividers. All broadcast. The ends are
    functions of u, the width and the number of dividers below x only, so values in one bin give the same bits. That number
    is computed exactly from the rounded x / width. A width larger than the law's by 2^-27 or more makes up for this rounding:
    float32 numbers differ by 2^-24 of the larger one or not at all, so the difference of two quotients is at most
    (1 + 2^-28) times too large.
    """
    position = x.double() / width
    whole = position.floor()
    below = whole + ((position - whole) > u)
    upper = (below + u).mul_(width).clamp_(max=1)
    lower = (below - 1 + u).mul_(width).clamp_(min=0)
    return lower, upper
