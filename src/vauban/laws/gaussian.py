"""Gaussian noise against L2 attacks, isotropic or with a sigma for each number. [Cohen2019], [Jia2020] Theorem 1 and 2"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import mpmath
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr as Phi
from scipy.special import ndtri as Phi_inverse

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws.law import Law, register
from vauban.laws.rounded_noise import RoundedNoise, rounded_noise
from vauban.specs import Parameter, read_sigmas, sigmas
from vauban.threats import L2, L2_SCALED, Threat


@register
@dataclass(frozen=True)
class GaussianLaw(Law):
    """N(0, sigma^2 I): the worst events are half-spaces. [Jia2020] Lemma 2

    With a sigma for each number the noise is N(0, I) once every number is divided by its own: radii are in that distance.

    >>> GaussianLaw(sigma=0.5).spec
    Spec(name='gaussian', params={'sigma': '0.5'})
    """

    sigma: float | tuple[float, ...]
    name: ClassVar[str] = "gaussian"
    parameters: ClassVar[dict[str, Parameter]] = {"sigma": Parameter(read_sigmas, required=True, example="0.5")}

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", sigmas(self.sigma))

    @property
    def threat(self) -> Threat:
        return L2_SCALED if isinstance(self.sigma, tuple) else L2

    def for_shape(self, shape: Sequence[int]) -> Self:
        if isinstance(self.sigma, tuple) and len(self.sigma) != math.prod(shape):
            raise BadInput(
                f"{len(self.sigma)} sigmas, and inputs of shape {tuple(shape)} have {math.prod(shape)} numbers: give one sigma, "
                "or one for each"
            )
        return self

    def most(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return Phi(Phi_inverse(p) + np.asarray(r) / self.scale)

    def least(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return Phi(Phi_inverse(p) - np.asarray(r) / self.scale)

    @property
    def scale(self) -> float:
        return 1.0 if isinstance(self.sigma, tuple) else self.sigma

    def rounded(self, levels: int) -> RoundedNoise:
        if isinstance(self.sigma, tuple):
            raise BadInput(
                "several sigmas, and inputs on the 8-bit grid: they are for floats; use one sigma, or arithmetic='float' "
                "(--arithmetic float)"
            )
        return rounded_noise(_tail, self.sigma, levels)

    def deviation(self, shape: Sequence[int], levels: int | None) -> float:
        return 0.0 if levels is None else self.rounded(levels).packed_deviation(math.prod(shape))


def _tail(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2
