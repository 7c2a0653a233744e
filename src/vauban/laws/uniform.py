"""Uniform and splitting noise against L1 attacks: what an attack can move is proportional to its size. [Lee2019]"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import mpmath
import numpy as np
from numpy.typing import ArrayLike

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws.law import Law
from vauban.laws.rounding import BITS, RoundedNoise, rounded_noise
from vauban.specs import Parameter, flag, one_sigma, positive
from vauban.threats import L1, Threat

_UP = 1 + 2.0**-50  # more than the rounding of r / width can lose


@dataclass(frozen=True)
class UniformLaw(Law):
    """Independent noise, uniform on [-lambda, lambda] with lambda = sigma sqrt 3: U = min(1, p + r / (2 lambda)).

    [Levine2023] Theorem 3.1 ([Lee2019]): the cubes around two points at L1 distance r share at least 1 - r / (2 lambda) of
    their volume, and no more than that if one coordinate moves, so the shift is exact. Rounding to the grid costs nothing:
    between grid points the total variation is still r / (2 lambda), up to a step short of 1.

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
        """2 lambda: what the noise spans, and the distance at which two inputs have no view in common."""
        return 2 * math.sqrt(3) * self.sigma

    def most(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return raised(p, np.asarray(r) * (_UP / self.width))

    def least(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return lowered(p, np.asarray(r) * (_UP / self.width))

    @property
    def scale(self) -> float:
        return self.width / 2

    def rounded(self, levels: int) -> RoundedNoise:
        if self.width * levels <= 1:
            raise BadInput(f"sigma={self.sigma} is noise narrower than the grid's step 1/{levels}: make it larger")
        return rounded_noise(_tail, self.sigma, levels)

    def deviation(self, shape: Sequence[int], levels: int | None) -> float:
        return 0.0 if levels is None else math.prod(shape) * self.rounded(levels).deviation


@dataclass(frozen=True)
class SplittingLaw(UniformLaw):
    """Each coordinate is seen as the bin it falls in, between dividers one width apart, uniformly placed; here
    independently (`sampled`). [Levine2023] Theorem 3.2 (general case)

    Two values are told apart with probability min(1, |difference| / width), so by a union bound views differ with
    probability at most r / width: U is that of uniform noise. On the grid [Levine2023] Corollary 3.1 wants a whole number
    of steps; the width is rounded up to one, which can only make the bound truer.

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
            raise BadInput("this is the sampled form; certificates.splitting has the exact one")

    def period(self, levels: int) -> int:
        """The width in steps of the grid: the least whole number N >= levels * 2 sqrt 3 sigma, in exact arithmetic."""
        return math.isqrt(math.ceil(12 * (Fraction(self.sigma) * levels) ** 2) - 1) + 1

    def rounded(self, levels: int) -> RoundedNoise:
        """The first divider's place: j stands for the half step between the levels j and j + 1.

        A place has floor((2^63 - 1) / period) words; places at or beyond `levels`, and the few words left over, are one
        outcome in which nothing is told apart. So no place is likelier than 1 / period, and U holds for what is sampled.
        """
        period = self.period(levels)
        places = np.arange(1, min(period, levels) + 1, dtype=np.int64)
        return RoundedNoise((2**BITS - 1) // period * places, 0, 0.0)

    def deviation(self, shape: Sequence[int], levels: int | None) -> float:
        """Zero on the grid. Off it dividers have 52 bits, so a stretch t of the width holds up to 2^-52 more than t of them."""
        return 0.0 if levels is not None else math.prod(shape) * 2.0**-52


def raised(p: ArrayLike, moved: ArrayLike) -> Floats:
    """The most that an event of probability p can weigh where at most `moved` of the views are others."""
    return np.minimum(np.asarray(p) + moved, 1.0)


def lowered(p: ArrayLike, moved: ArrayLike) -> Floats:
    """The least that an event of probability p can weigh where at most `moved` of the views are others."""
    return np.maximum(np.asarray(p) - moved, 0.0)


def _tail(x: mpmath.mpf) -> mpmath.mpf:
    return max((1 - x / mpmath.sqrt(3)) / 2, mpmath.mpf(0))
