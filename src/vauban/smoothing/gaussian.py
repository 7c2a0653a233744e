"""Views with Gaussian noise added to every number of the input."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from vauban.laws.gaussian import GaussianLaw
from vauban.smoothing.base import Smoothing, register
from vauban.smoothing.grid import GridNoise, grid_noise, uniforms
from vauban.specs import sigmas


@register("gaussian")
class Gaussian(Smoothing):
    """Independent Gaussian noise of standard deviation sigma, in the units of the input. [Cohen2019]

    Several sigmas are those of the numbers of an input, in order: radii then measure the L2 norm of a change in which every
    number is divided by its own sigma.

    >>> Gaussian(sigma=0.5)
    Gaussian(sigma=0.5)
    """

    law: GaussianLaw

    def __init__(self, sigma: float | Sequence[float]):
        self.law = GaussianLaw(sigmas(sigma))

    @property
    def sigma(self) -> float | tuple[float, ...]:
        return self.law.sigma

    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        return shape.numel() if levels is None else sum(self.law.rounded(levels).packed_words(shape.numel()))

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        shape = (len(words), *x.shape[1:])
        if levels is None:
            several = isinstance(self.sigma, tuple)
            sigma = torch.tensor(self.sigma, dtype=torch.float64, device=words.device) if several else self.sigma
            noise = torch.special.ndtri(uniforms(words)).mul_(sigma)
            return (x.double() + noise.view(shape)).float()
        return self.packed(levels).noisy(x.flatten(1), words, levels).reshape(shape)

    def packed(self, levels: int) -> GridNoise:
        return grid_noise(self.law, levels)

    def follow(self, views: torch.Tensor, change: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return views + change
