"""Laplace noise against L1 attacks: the exact shift, and the two weaker bounds it replaces. [Teng2020], [Lecuyer2019]"""

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
from vauban.specs import Parameter, choose, one_sigma, positive
from vauban.threats import L1, Threat

BOUNDS = ("exact", "theorem1", "lecuyer")

_MAX_EXPONENT = 700.0  # for larger x, e^-x is not a normal number


@register
@dataclass(frozen=True)
class LaplaceLaw(Law):
    """Independent Laplace noise of scale b = sigma / sqrt 2. With F its cdf and x = |change|_1 / b, `bound` is one of

    - "exact": U = F(F^-1(p) + r), L = F(F^-1(p) - r). Move one coordinate by a: the likelihood ratio depends on that
      coordinate alone and is monotone in it, so half-lines are the worst events and p becomes at most U(p, a). U is
      monotone and U(U(p, a), a') = U(p, a + a'), so moving all coordinates one after the other gives U(p, |change|_1),
      which moving a single one attains. For two classes it is [Teng2020] Theorem 2, R = -b log(2 (1 - p)).
    - "theorem1": U = e^x p, L = max(e^-x p, 1 - e^x (1 - p)), the inequalities 8 and 9 in the proof of [Teng2020]
      Theorem 1; for the top class R = max(b/2 log(p_A / p_B), -b log(1 - p_A + p_B)), as it is stated there.
    - "lecuyer": U = e^x p, L = e^-x p, differential privacy. [Lecuyer2019] For the top class R = b/2 log(p_A / p_B).

    >>> LaplaceLaw(sigma=0.5).spec
    Spec(name='laplace', params={'sigma': '0.5'})
    """

    sigma: float
    bound: str = "exact"
    name: ClassVar[str] = "laplace"
    parameters: ClassVar[dict[str, Parameter]] = {
        "sigma": Parameter(positive, required=True, example="0.5"),
        "bound": Parameter(str, default="exact"),
    }

    def __post_init__(self) -> None:
        one_sigma(self.sigma)
        choose("bound under Laplace noise", self.bound, BOUNDS)

    @property
    def threat(self) -> Threat:
        return L1

    def most(self, p: ArrayLike, r: ArrayLike) -> Floats:
        p, decay = np.asarray(p, dtype=float), self._decay(r)
        grown = p / np.where(p > decay, 1.0, np.maximum(decay, math.exp(-_MAX_EXPONENT)))
        if self.bound != "exact":
            return np.where(p > decay, 1.0, grown)
        middle = 1 - decay / (4 * np.maximum(p, decay / 2) + (p == 0))
        return np.where(p <= decay / 2, grown, np.where(p < 0.5, middle, 1 - decay * (1 - p)))

    def least(self, p: ArrayLike, r: ArrayLike) -> Floats:
        p, decay = np.asarray(p, dtype=float), self._decay(r)
        if self.bound == "exact":
            rest = 1 - p
            middle = decay / (4 * np.maximum(rest, decay / 2) + (rest == 0))
            complement = 1 - rest / np.where(rest > decay / 2, 1.0, np.maximum(decay, math.exp(-_MAX_EXPONENT)))
            return np.where(p <= 0.5, decay * p, np.where(rest > decay / 2, middle, complement))
        if self.bound == "lecuyer":
            return decay * p
        return np.maximum(decay * p, 1 - self.most(1 - p, r) * UP)

    def _decay(self, r: ArrayLike) -> Floats:
        """e^(-r/b), never too large; 0 where it would not be a normal number."""
        x = np.asarray(r, dtype=float) * (math.sqrt(2) / self.sigma * UP)
        return np.where(x > _MAX_EXPONENT, 0.0, np.exp(-x))

    @property
    def scale(self) -> float:
        return self.sigma

    def rounded(self, levels: int) -> RoundedNoise:
        if self.sigma * levels < 0.1:
            raise BadInput(f"sigma={self.sigma} is less than a tenth of the grid's step 1/{levels}: make it larger")
        return rounded_noise(_tail, self.sigma, levels)

    def deviation(self, shape: Sequence[int], levels: int | None) -> float:
        return 0.0 if levels is None else math.prod(shape) * self.rounded(levels).deviation


def _tail(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.exp(-mpmath.sqrt(2) * x) / 2
