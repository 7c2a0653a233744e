"""Splitting with bins of varying width against fractional Lp attacks, sampled and exact. [Levine2023] chapter 4"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import mpmath
import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws.designs.law import LIST_PARAMETERS, REPRESENTATIONS, DesignLaw, fraction
from vauban.laws.designs.metrics import Power
from vauban.laws.law import Law, register
from vauban.laws.rounded_noise import BITS, RoundedNoise
from vauban.laws.uniform import shifted_down, shifted_up
from vauban.numerics import BIN_PAD, DIGITS, POWER_UP
from vauban.specs import Parameter, choose, flag, positive
from vauban.threats import Threat, lp

WIDTH_BITS = 16
DIVIDER_BITS = BITS - WIDTH_BITS

_NARROWEST = 2.0**-160


@dataclass(frozen=True)
class SplitTable:
    """Maps a random word to a bin width and a divider on the grid, independently of the input.

    `widths` maps a word w to k: a width of k + 1 steps, or no bins at all (the coordinate is ablated) if k = levels.
    The divider is half a step above level (w - starts[k]) // cells[k]; `starts`, `cells` are int64 [levels + 1].
    """

    widths: RoundedNoise
    starts: NDArray[np.int64]
    cells: NDArray[np.int64]


@register
@dataclass(frozen=True)
class FractionalLaw(Law):
    """Bins of a random width Lambda per coordinate: values z apart are separated with probability g(z) = z^p / scale.

    [Levine2023] Corollary 4.1: Lambda has density p (1-p) z^(p-1) / scale below 1, is 1 with probability p / scale, and
    infinite (ablated) otherwise: P[separated] = P[Lambda <= z] + z E[1 / Lambda; z < Lambda <= 1]
    = (1-p) z^p / scale + z (p z^(p-1) - p) / scale + z p / scale = g(z). By a union bound U = min(1, p_event + D) with
    D = sum |change|^p / scale; a radius r in Lp units is r^p in that sum, so D = r^p / scale.

    >>> FractionalLaw(Fraction(1, 2), 9.0, sampled=True).spec
    Spec(name='fractional', params={'p': '1/2', 'scale': '9.0', 'sampled': 'true'})
    """

    p: Fraction
    scale: float = 1.0
    sampled: bool = True
    representation: str = "upper_lower"
    name: ClassVar[str] = "fractional"
    parameters: ClassVar[dict[str, Parameter]] = {
        "p": Parameter(Fraction, required=True, example="1/2"),
        "scale": Parameter(positive, required=True, example="9"),
        "sampled": Parameter(flag, default=False, example="true"),
        "representation": Parameter(str, default="upper_lower"),
    }

    def __post_init__(self) -> None:
        if not (0 < self.p <= 1 and float(self.p) > 0):
            raise BadInput(f"p={self.p}: a fraction above 0 and at most 1 is needed, for example 1/2")
        if not (self.scale >= 1 and math.isfinite(self.scale)):
            raise BadInput(f"scale={self.scale}: a finite number of at least 1 is needed, for example 9")
        choose("representation of a bin", self.representation, REPRESENTATIONS)
        if not self.sampled:
            raise BadInput("this is the sampled form; ExactFractionalLaw is the exact one")

    @property
    def threat(self) -> Threat:
        return lp(self.p)

    def most(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return shifted_up(p, self._separated(r))

    def least(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return shifted_down(p, self._separated(r))

    def _separated(self, r: ArrayLike) -> Floats:
        """D = r^p / scale, rounded up."""
        return np.asarray(r, dtype=float) ** float(self.p) * (POWER_UP / self.scale)

    def table(self, levels: int) -> SplitTable:
        """Widths and dividers on the grid, each at most as likely as in [Levine2023] Theorem 4.3-c."""
        return _split_table(self.p, self.scale, levels)

    def rounded(self, levels: int) -> RoundedNoise:
        """The width of a coordinate's bins in steps, minus one; `levels` means that the coordinate is ablated."""
        return self.table(levels).widths

    def float_widths(self) -> Floats:
        """Widths off the grid [2^16], each at least as wide as Lambda anywhere between its quantile and the next one.

        Wider bins separate less. Each is wider still by 2^-26: float32 numbers differ by 2^-24 of the larger one or not at all,
        so this covers the rounding of x / width, and of the power here.
        """
        cells = 2**WIDTH_BITS
        density, finite = (int(cells * mass / Fraction(self.scale)) for mass in (1 - self.p, Fraction(1)))
        quantiles = np.arange(1, density + 1) / cells * (self.scale / max(float(1 - self.p), _NARROWEST))
        widths = np.full(cells, np.inf)
        widths[:finite] = 1.0
        widths[:density] = np.clip(quantiles ** (1 / float(self.p)), _NARROWEST, 1.0)
        return widths * BIN_PAD

    def deviation(self, shape: Sequence[int], levels: int | None) -> float:
        """Zero on the grid. Off it dividers have 47 bits: a fraction t of the width holds at most t + 2^-47 of them."""
        return 0.0 if levels is not None else math.prod(shape) * 2.0**-DIVIDER_BITS


@register
@dataclass(frozen=True)
class ExactFractionalLaw(DesignLaw):
    """A list of views of which at most the rate times the sum of |change|^p change; radii in Lp units.

    [Levine2023] Theorem 4.3, C.3. With T tolerated views r is the largest number with B r^p < T + 1: at least that of C.77.

    >>> law = ExactFractionalLaw(Fraction(1, 2), Fraction(18))
    >>> law.views, law.radius_tolerating([4000, 8999])
    (18000, array([16.008001, 81.      ]))
    >>> law.radius_tolerating([8999]) < 81, round(law.error, 4)
    (array([ True]), 0.0172)
    """

    p: Fraction
    scale: Fraction = Fraction(1)
    offsets: int = 0
    representation: str = "upper_lower"
    coupling: str = "cyclic"
    budget: int = 1000
    levels: int = 255
    layout: str = "random"
    name: ClassVar[str] = "fractional"
    parameters: ClassVar[dict[str, Parameter]] = {
        "p": Parameter(Fraction, required=True, example="1/2"),
        "scale": Parameter(fraction, default=Fraction(1), example="18"),
        **LIST_PARAMETERS,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        Power(self.p)
        if self.p == 1 and self.budget % self.levels:
            raise BadInput(
                f"budget={self.budget}: at p=1 (the L1 norm) every width is the widest, and the budget must be a multiple of "
                f"levels={self.levels}: write budget={self.levels * max(1, round(self.budget / self.levels))}"
            )

    @property
    def metric(self) -> Power:
        return Power(self.p)

    @property
    def threat(self) -> Threat:
        return replace(lp(self.p), ball="closed")


@lru_cache(maxsize=16)
def _split_table(p: Fraction, scale: float, levels: int) -> SplitTable:
    """Tabulate Theorem 4.3-c: a width of j steps with a given divider has the weight -(second difference of g at j).

    Each pair of width and divider has floor(2^63 weight) words; the words left over ablate. Values z = k steps apart are
    separated with probability sum over j of min(j, k) weight_j, so rounding weights down leaves it at most g(z) for every k.
    """
    with mpmath.workdps(DIGITS):
        power = mpmath.mpf(p.numerator) / p.denominator
        g = [mpmath.power(mpmath.mpf(z) / levels, power) / mpmath.mpf(scale) for z in range(levels + 1)]
        weights = [2 * g[j] - g[j - 1] - g[j + 1] for j in range(1, levels)] + [g[levels] - g[levels - 1]]
        tiny = mpmath.mpf(2) ** -80
        cells = [max(int(mpmath.floor(2**BITS * w - tiny)), 0) for w in weights]
    ends = np.cumsum([j * cell for j, cell in enumerate(cells, start=1)], dtype=np.int64)
    starts = np.concatenate([[0], ends])
    divisors = np.array([max(cell, 1) for cell in cells] + [2**BITS - 1], dtype=np.int64)
    return SplitTable(RoundedNoise(ends, 0, 0.0), starts, divisors)
