"""Splitting noise against L1 attacks: each number is replaced by the bin it falls in. [Levine2023] chapter 3

Sampled: dividers are placed at random, independently per coordinate. Exact: one view for every position of the dividers, and
every view votes.
"""

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
from vauban.laws.exact import ExactLaw, Ints, check_view_list, digest, offsets_of
from vauban.laws.law import register
from vauban.laws.rounded_noise import BITS, RoundedNoise
from vauban.laws.uniform import UniformLaw
from vauban.specs import Parameter, flag, natural, one_sigma, positive
from vauban.threats import L1, Threat


@register
@dataclass(frozen=True)
class ExactSplittingLaw(ExactLaw):
    """Dividers N steps apart, N = floor(2 lambda q) with lambda = sigma sqrt 3, q = `levels`; in view j the first divider of
    coordinate i is half a step above level (j + offset_i) mod N, with offsets from the seed `offsets` or in a `layout`
    (`offsets_of`). [Levine2023] Corollary 3.1 (general case)

    Values z steps apart are separated in min(z, N) of the N views, whatever the offset: so an attack of z steps in total
    changes at most z views, and T tolerated views give the closed L1 radius T / q.

    >>> law = ExactSplittingLaw(sigma=0.5)
    >>> law.views, law.radius_tolerating([3])
    (441, array([0.01176471]))
    """

    sigma: float
    offsets: int = 0
    levels: int = 255
    layout: str = "random"
    name: ClassVar[str] = "splitting"
    parameters: ClassVar[dict[str, Parameter]] = {
        "sigma": Parameter(positive, required=True, example="0.5"),
        "offsets": Parameter(natural, default=0),
        "levels": Parameter(natural, default=255),
        "layout": Parameter(str, default="random", example="lattice"),
    }

    def __post_init__(self) -> None:
        one_sigma(self.sigma)
        if self.levels < 1:
            raise BadInput(f"levels={self.levels}: a grid has one step or more, and 8-bit pictures have 255")
        check_view_list(self.views, self.offsets, self.layout, "make sigma smaller")
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

    def first_dividers(self, shape: Sequence[int]) -> Ints:
        """The level below each coordinate's first divider in view 0 [...shape]."""
        return offsets_of(self.layout, self.offsets, shape, self.views, self.levels)

    def views_hash(self, shape: Sequence[int]) -> str:
        return digest(self.first_dividers(shape))

    def radius_tolerating(self, changed: ArrayLike) -> Floats:
        return np.asarray(changed) / self.levels


@register
@dataclass(frozen=True)
class SplittingLaw(UniformLaw):
    """Each coordinate is replaced by the bin it falls in, between dividers one width apart, placed uniformly at random and
    here independently (`sampled`). [Levine2023] Theorem 3.2 (general case)

    Two values are separated with probability min(1, |difference| / width), so by a union bound views differ with
    probability at most r / width: U is that of uniform noise. On the grid [Levine2023] Corollary 3.1 needs a whole number
    of steps; the width is rounded up to one, so values are separated at most that often.

    >>> SplittingLaw(sigma=0.5, sampled=True).spec
    Spec(name='splitting', params={'sigma': '0.5', 'sampled': 'true'})
    """

    sampled: bool = True
    name: ClassVar[str] = "splitting"
    parameters: ClassVar[dict[str, Parameter]] = {
        **UniformLaw.parameters,
        "sampled": Parameter(flag, default=False, example="true"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sampled:
            raise BadInput("this is the sampled form; ExactSplittingLaw is the exact one")

    def period(self, levels: int) -> int:
        """The width in steps of the grid: the least whole number N >= levels * 2 sqrt 3 sigma, in exact arithmetic."""
        return math.isqrt(math.ceil(12 * (Fraction(self.sigma) * levels) ** 2) - 1) + 1

    def rounded(self, levels: int) -> RoundedNoise:
        """The first divider's position: j means half a step above level j.

        A position has floor((2^63 - 1) / period) words; positions at or beyond `levels`, and the few words left over, are one
        outcome in which nothing is separated. So no position is likelier than 1 / period, and U holds for the sampled views.
        """
        period = self.period(levels)
        positions = np.arange(1, min(period, levels) + 1, dtype=np.int64)
        return RoundedNoise((2**BITS - 1) // period * positions, 0, 0.0)

    def deviation(self, shape: Sequence[int], levels: int | None) -> float:
        """Zero on the grid. Off it dividers have 52 bits: a fraction t of the width holds at most t + 2^-52 of them."""
        return 0.0 if levels is not None else math.prod(shape) * 2.0**-52
