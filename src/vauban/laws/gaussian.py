"""Isotropic Gaussian noise against L2 attacks. [Cohen2019], [Jia2020] Theorem 1 and 2"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import mpmath
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr as Phi
from scipy.special import ndtri as Phi_inverse

from vauban.bounds.clopper_pearson import Floats
from vauban.laws.law import Law, register
from vauban.laws.rounded_noise import RoundedNoise, rounded_noise
from vauban.specs import Parameter, one_sigma, positive
from vauban.threats import L2, Threat


@register
@dataclass(frozen=True)
class GaussianLaw(Law):
    """N(0, sigma^2 I): the worst events are half-spaces. [Jia2020] Lemma 2

    >>> GaussianLaw(sigma=0.5).spec
    Spec(name='gaussian', params={'sigma': '0.5'})
    """

    sigma: float
    name: ClassVar[str] = "gaussian"
    parameters: ClassVar[dict[str, Parameter]] = {"sigma": Parameter(positive, required=True, example="0.5")}

    def __post_init__(self) -> None:
        one_sigma(self.sigma)

    @property
    def threat(self) -> Threat:
        return L2

    def most(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return Phi(Phi_inverse(p) + np.asarray(r) / self.sigma)

    def least(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return Phi(Phi_inverse(p) - np.asarray(r) / self.sigma)

    @property
    def scale(self) -> float:
        return self.sigma

    def rounded(self, levels: int) -> RoundedNoise:
        return rounded_noise(_tail, self.sigma, levels)

    def deviation(self, shape: Sequence[int], levels: int | None) -> float:
        return 0.0 if levels is None else self.rounded(levels).packed_deviation(math.prod(shape))


def _tail(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2
