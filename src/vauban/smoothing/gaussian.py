"""Views with Gaussian noise added to every number of the input."""

from __future__ import annotations

import torch

from vauban.laws.gaussian import GaussianLaw
from vauban.smoothing.base import Smoothing, register
from vauban.smoothing.grid import grid_noise, uniforms
from vauban.specs import one_sigma


@register("gaussian")
class Gaussian(Smoothing):
    """Independent Gaussian noise of standard deviation sigma, in the units of the input. [Cohen2019]

    >>> Gaussian(sigma=0.5)
    Gaussian(sigma=0.5)
    """

    law: GaussianLaw

    def __init__(self, sigma: float):
        self.law = GaussianLaw(one_sigma(sigma))

    @property
    def sigma(self) -> float:
        return self.law.sigma

    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        return shape.numel() if levels is None else sum(self.law.rounded(levels).packed_words(shape.numel()))

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        shape = (len(words), *x.shape[1:])
        if levels is None:
            noise = torch.special.ndtri(uniforms(words)).mul_(self.sigma)
            return (x.double() + noise.view(shape)).float()
        return grid_noise(self.law, levels).noisy(x.flatten(1), words, levels).reshape(shape)

    def follow(self, views: torch.Tensor, change: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return views + change
