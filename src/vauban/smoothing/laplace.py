"""Views with Laplace noise added to every number of the input."""

from __future__ import annotations

import torch

from vauban.laws.laplace import LaplaceLaw
from vauban.smoothing.base import Smoothing, register
from vauban.smoothing.grid import grid_noise, to_unit, uniforms
from vauban.specs import one_sigma


@register("laplace")
class Laplace(Smoothing):
    """Independent Laplace noise of standard deviation sigma, in the units of the input. [Teng2020]

    >>> Laplace(sigma=0.5)
    Laplace(sigma=0.5)
    """

    law: LaplaceLaw

    def __init__(self, sigma: float, bound: str = "exact"):
        self.law = LaplaceLaw(one_sigma(sigma), bound)

    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        return shape.numel()

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        shape = (len(words), *x.shape[1:])
        if levels is None:
            centred = uniforms(words).mul_(2).sub_(1)
            noise = torch.log1p(-centred.abs()).mul_(centred.sign()).mul_(-self.law.sigma / 2**0.5)
            return (x.double() + noise.view(shape)).float()
        return to_unit(grid_noise(self.law, levels).draw(words).view(shape).add(x), levels)

    def follow(self, views: torch.Tensor, change: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return views + change
