"""Views with Gaussian noise added to every number of the input."""

from __future__ import annotations

import torch

from vauban.certificates.gaussian import GaussianLaw
from vauban.smoothing.base import Smoothing
from vauban.smoothing.grid import grid_noise, to_unit, uniforms


class Gaussian(Smoothing):
    """Independent Gaussian noise of standard deviation sigma, in the units of the input. [Cohen2019]

    >>> Gaussian(sigma=0.5)
    Gaussian(sigma=0.5)
    """

    law_type = GaussianLaw
    law: GaussianLaw

    def __init__(self, sigma: float):
        self.law = GaussianLaw(float(sigma))

    @property
    def sigma(self) -> float:
        return self.law.sigma

    def words(self, shape: torch.Size) -> int:
        return shape.numel()

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        shape = (len(words), *x.shape[1:])
        if levels is None:
            noise = torch.special.ndtri(uniforms(words)).mul_(self.sigma)
            return (x.double() + noise.view(shape)).float()
        return to_unit(grid_noise(self.law, levels).draw(words).view(shape).add(x), levels)
