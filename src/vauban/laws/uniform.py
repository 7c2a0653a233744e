"""Uniform noise against L1 attacks. [Lee2019]"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import mpmath
import numpy as np
from numpy.typing import ArrayLike

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws.law import Law, register
from vauban.laws.rounded_noise import RoundedNoise, rounded_noise
from vauban.numerics import UP
from vauban.specs import Parameter, one_sigma, positive
from vauban.threats import L1, Threat


@register
@dataclass(frozen=True)
class UniformLaw(Law):
    """Independent noise, uniform on [-lambda, lambda] with lambda = sigma sqrt 3: U = min(1, p + r / (2 lambda)).

    [Levine2023] Theorem 3.1 ([Lee2019]): the cubes around two points at L1 distance r share at least 1 - r / (2 lambda) of
    their volume, and exactly that if one coordinate moves, so the shift is exact. Rounding to the grid loses nothing: between
    grid points the total variation is still r / (2 lambda), up to a step short of 1.

    >>> UniformLaw(sigma=0.5).spec
    Spec(name='uniform', params={'sigma': '0.5'})
    """

    sigma: float
    name: ClassVar[str] = "uniform"
    parameters: ClassVar[dict[str, Parameter]] = {"sigma": Parameter(positive, required=True, example="0.5")}

    def __post_init__(self) -> None:
        one_sigma(self.sigma)

    @property
    def threat(self) -> Threat:
        return L1

    @property
    def width(self) -> float:
        """2 lambda: the noise's range, and the distance along one coordinate at which two inputs have no view in common."""
        return 2 * math.sqrt(3) * self.sigma

    def most(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return shifted_up(p, np.asarray(r) * (UP / self.width))

    def least(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return shifted_down(p, np.asarray(r) * (UP / self.width))

    @property
    def scale(self) -> float:
        return self.width / 2

    def rounded(self, levels: int) -> RoundedNoise:
        if self.width * levels <= 1:
            raise BadInput(f"sigma={self.sigma} is noise narrower than the grid's step 1/{levels}: make it larger")
        return rounded_noise(_tail, self.sigma, levels)

    def deviation(self, shape: Sequence[int], levels: int | None) -> float:
        return 0.0 if levels is None else math.prod(shape) * self.rounded(levels).deviation


def shifted_up(p: ArrayLike, changed: ArrayLike) -> Floats:
    """The largest probability of an event of probability p after at most a fraction `changed` of the views changed."""
    return np.minimum(np.asarray(p) + changed, 1.0)


def shifted_down(p: ArrayLike, changed: ArrayLike) -> Floats:
    """The least probability of an event of probability p after at most a fraction `changed` of the views changed."""
    return np.maximum(np.asarray(p) - changed, 0.0)


def _tail(x: mpmath.mpf) -> mpmath.mpf:
    return max((1 - x / mpmath.sqrt(3)) / 2, mpmath.mpf(0))
