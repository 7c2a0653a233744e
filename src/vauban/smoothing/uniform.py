"""Views with uniform noise added to every number of the input."""

from __future__ import annotations

import torch

from vauban.laws.uniform import UniformLaw
from vauban.smoothing.base import Smoothing, register
from vauban.smoothing.grid import grid_noise, to_unit, uniforms
from vauban.specs import one_sigma


@register("uniform")
class Uniform(Smoothing):
    """Independent uniform noise of standard deviation sigma, in the units of the input. [Lee2019], [Yang2020]

    >>> Uniform(sigma=0.5)
    Uniform(sigma=0.5)
    """

    law: UniformLaw

    def __init__(self, sigma: float):
        self.law = UniformLaw(one_sigma(sigma))

    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        return shape.numel()

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        shape = (len(words), *x.shape[1:])
        if levels is None:
            noise = uniforms(words).sub_(0.5).mul_(self.law.width)
            return (x.double() + noise.view(shape)).float()
        return to_unit(grid_noise(self.law, levels).draw(words).view(shape).add(x), levels)

    def follow(self, views: torch.Tensor, change: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return views + change
