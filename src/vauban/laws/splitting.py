"""Splitting noise without randomness: a view for every place of the dividers, every one voted on. [Levine2023] chapter 3"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws.exact import ExactLaw, Ints, check_list, digest, offsets
from vauban.specs import Parameter, natural, one_sigma, positive
from vauban.threats import L1, Threat


@dataclass(frozen=True)
class ExactSplittingLaw(ExactLaw):
    """Dividers N steps apart, N = floor(2 lambda q) with lambda = sigma sqrt 3; view j has coordinate i's first one at place
    (j + offset_i) mod N, a half step, with offsets from the seed `offsets`. [Levine2023] Corollary 3.1 (general case)

    Values z steps apart are told apart in min(z, N) of the N views, whatever the offset: so an attack of z steps in all
    changes at most z views, and T tolerated ones make the closed L1 radius T / q.

    >>> law = ExactSplittingLaw(sigma=0.5)
    >>> law.views, law.within([3])
    (441, array([0.01176471]))
    """

    sigma: float
    offsets: int = 0
    levels: int = 255
    name: ClassVar[str] = "splitting"
    parameters: ClassVar[dict[str, Parameter]] = {
        "sigma": Parameter(positive, required=True, example="0.5"),
        "offsets": Parameter(natural, default=0),
        "levels": Parameter(natural, default=255),
    }

    def __post_init__(self) -> None:
        one_sigma(self.sigma)
        if self.levels < 1:
            raise BadInput(f"levels={self.levels}: a grid has one step or more, and 8-bit pictures have 255")
        check_list(self.views, self.offsets, "make sigma smaller")
        if self.views < 1:
            raise BadInput(
                f"sigma={self.sigma}: dividers are less than a step of 1/{self.levels} apart: make it larger"
            )

    @property
    def threat(self) -> Threat:
        return replace(L1, ball="closed")

    @property
    def views(self) -> int:
        """floor(2 sqrt 3 sigma levels), in exact arithmetic."""
        return math.isqrt(math.floor(12 * (Fraction(self.sigma) * self.levels) ** 2))

    def places(self, shape: Sequence[int]) -> Ints:
        """Where each coordinate's first divider is in view 0 [...shape]."""
        return offsets(self.offsets, shape, self.views)

    def listed(self, shape: Sequence[int]) -> str:
        return digest(self.places(shape))

    def within(self, changed: ArrayLike) -> Floats:
        return np.asarray(changed) / self.levels
