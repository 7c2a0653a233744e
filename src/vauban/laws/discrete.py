"""Discrete noise: each feature is kept or replaced by another value, against attacks on few features. [Lee2019]"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import ClassVar, Self

import mpmath
import numpy as np
from numpy.typing import ArrayLike

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws.law import Law, register
from vauban.laws.rounded_noise import BITS, RoundedNoise
from vauban.numerics import DIGITS, DOWN, UP
from vauban.specs import Parameter, flag
from vauban.threats import L0_CODES, L0_FEATURES, Threat

MAX_RADIUS = 4096
MAX_VALUES = 1 << 14

_MAX_EXPONENT = 900  # likelihood ratios above 2^900 are left out: views that have them have probability below 2^-900


@register
@dataclass(frozen=True)
class DiscreteLaw(Law):
    """Each feature keeps its value, one of `values`, with probability `keep`; else it takes another, all equally likely.

    A view shows some of the r changed features at the old value, some at the new one, some at neither. Its likelihood ratio
    depends only on the number at the new value minus the number at the old one, so these differences are the Neyman-Pearson
    regions, and the worst event of probability p takes them from the largest ratio down: exact, and the same for every input
    size. [Lee2019] section 4. `keep` is taken as the exact decimal number it is written as. No radius above 4,096 is claimed.
    `codes`: features are codes, whole numbers from 0 to values - 1 in 8 bits; the claim covers changes to other codes only.

    >>> law = DiscreteLaw(keep=0.1, values=256)
    >>> bool(law.least(0.5964, 1) < 0.5 < law.least(0.5965, 1))  # the example of [Levine2020]
    True
    """

    keep: float
    values: int = 256
    features: int | None = None
    codes: bool = False
    name: ClassVar[str] = "discrete"
    parameters: ClassVar[dict[str, Parameter]] = {
        "keep": Parameter(float, required=True, example="0.8"),
        "values": Parameter(int, 256),
        "features": Parameter(int),
        "codes": Parameter(flag, False),
    }

    def __post_init__(self) -> None:
        if not isinstance(self.values, int) or not 2 <= self.values <= MAX_VALUES:
            raise BadInput(
                f"values={self.values}: a whole number from 2 to {MAX_VALUES} is needed, 256 for 8-bit pictures"
            )
        if not 1 / self.values < self.keep < 1:
            raise BadInput(
                f"keep={self.keep}: a probability above 1/{self.values} and below 1 is needed; at 1/{self.values} views do not "
                "depend on the input"
            )
        if self.codes and self.values > 256:
            raise BadInput(f"values={self.values} with codes=true: codes are numbers of 8 bits, so at most 256 of them")
        if self.features is not None and self.features < 1:
            raise BadInput(f"features={self.features}: at least one is needed")

    @property
    def threat(self) -> Threat:
        return L0_CODES if self.codes else L0_FEATURES

    def for_shape(self, shape: Sequence[int]) -> Self:
        numbers = math.prod(shape)
        if self.features not in (None, numbers):
            raise BadInput(f"features={self.features}, but inputs of shape {tuple(shape)} have {numbers}")
        return replace(self, features=numbers)

    @property
    def exact_keep(self) -> Fraction:
        """`keep` as the exact decimal number that is written."""
        return Fraction(repr(float(self.keep)))

    def most(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return self._shift_by_radius(p, r, 1.0, LikelihoodRegions.most)

    def least(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return self._shift_by_radius(p, r, 0.0, LikelihoodRegions.least)

    def _shift_by_radius(self, p: ArrayLike, r: ArrayLike, beyond: float, shift: Shift) -> Floats:
        """`shift` with the regions of each r, broadcast; `beyond` for r above MAX_RADIUS."""
        p, r = np.broadcast_arrays(np.asarray(p, dtype=float), np.ceil(np.asarray(r, dtype=float)))
        flat, sizes = p.ravel(), r.ravel()
        order = np.argsort(sizes, kind="stable")
        ends = np.flatnonzero(np.diff(sizes[order], append=np.inf)) + 1
        result = np.where((flat <= 0) | (flat >= 1), flat, beyond)
        for same_r in np.split(order, ends[:-1]):
            if len(same_r) and sizes[same_r[0]] <= MAX_RADIUS:
                regions = likelihood_regions(self.exact_keep, self.values, int(sizes[same_r[0]]))
                result[same_r] = shift(regions, flat[same_r])
        return result.reshape(p.shape)

    @property
    def scale(self) -> float:
        return float(min(64, math.ceil(1 / (2 * (self.exact_keep - self._other)))))

    @property
    def max_distance(self) -> float:
        return float(min(MAX_RADIUS, self.features or MAX_RADIUS))

    @property
    def _other(self) -> Fraction:
        """The probability of each other value."""
        return (1 - self.exact_keep) / (self.values - 1)

    def rounded(self, levels: int) -> RoundedNoise:
        """What is added to a value, modulo `values`: 0 where it is kept, else 1 .. values - 1.

        Every other value has exactly the same number of words, so the deviation is the rounding of `keep`.
        """
        if levels < self.values - 1 if self.codes else levels != self.values - 1:
            raise BadInput(
                f"values={self.values} on a grid of {levels + 1} values: write values={levels + 1} for these inputs, or "
                "codes=true where features are codes below values"
            )
        each = round(self._other * 2**BITS)
        first = 2**BITS - each * (self.values - 1)
        rounding = abs(Fraction(first, 2**BITS) - self.exact_keep)
        thresholds = first + each * np.arange(self.values - 1, dtype=np.int64)
        return RoundedNoise(thresholds, 0, math.nextafter(float(rounding), 1.0))

    def deviation(self, shape: Sequence[int], levels: int | None) -> float:
        if levels is None:
            raise BadInput(
                "discrete replaces values by other values of a grid: give 8-bit pictures, or round the inputs to 1/255"
            )
        return math.prod(shape) * self.rounded(levels).deviation * UP

    def information(self, features: int) -> float:
        """Bits of information in a view of `features` features, all inputs equally likely. [Levine2020] Eq. 21"""
        keep, other = float(self.exact_keep), float(self._other)
        return features * (math.log2(self.values) + keep * math.log2(keep) + (1 - keep) * math.log2(other))


@dataclass(frozen=True)
class LikelihoodRegions:
    """The corners of U for one r: the events of largest likelihood ratio, growing by one region at a time.

    `at_input` [2r+2], rounded down, and `at_attacked` [2r+2], rounded up: their probabilities at the input and at the attacked
    input. U is concave and made of segments of slope `ratio_up` [2r+1], and every segment's line lies above it everywhere, so a
    wrong segment can only make U larger. L is U's inverse: its lines, of slope `inverse_down`, lie below it.
    """

    at_input: Floats
    at_attacked: Floats
    ratio_up: Floats
    inverse_down: Floats
    first: int

    def most(self, p: Floats) -> Floats:
        """U(p), rounded up."""
        i = np.clip(np.searchsorted(self.at_input, p, side="right") - 1, self.first, len(self.ratio_up) - 1)
        line = (self.at_attacked[i] + np.maximum(p - self.at_input[i], 0.0) * self.ratio_up[i]) * UP
        return np.where(p <= 0, 0.0, np.minimum(line, 1.0))

    def least(self, p: Floats) -> Floats:
        """L(p), rounded down."""
        i = np.minimum(np.searchsorted(self.at_attacked, p, side="right") - 1, len(self.inverse_down) - 1)
        line = (self.at_input[i] + (p - self.at_attacked[i]) * self.inverse_down[i]) * DOWN
        return np.where(p >= 1, 1.0, np.maximum(line, 0.0))


Shift = Callable[[LikelihoodRegions, Floats], Floats]


@lru_cache(maxsize=1024)
def likelihood_regions(keep: Fraction, values: int, r: int) -> LikelihoodRegions:
    """The regions of r changed features, from exact integers.

    The number j of features at the new value minus the number at the old one has probability
    [z^j] (keep / z + neither + other z)^r at the input, and that of -j at the attacked one; the likelihood ratio is
    (keep / other)^j.
    """
    other = (1 - keep) / (values - 1)
    common = math.lcm(keep.denominator, other.denominator)
    at_old, at_new, at_neither = (int(part * common) for part in (keep, other, (values - 2) * other))
    masses, total = trinomials(at_new, at_neither, at_old, r), common**r
    at_input = np.array([mass / total for mass in accumulate(masses, initial=0)])
    at_attacked = np.array([mass / total for mass in accumulate(reversed(masses), initial=0)])
    at_input, at_attacked = np.nextafter(at_input, 0.0), np.minimum(np.nextafter(at_attacked, 2.0), 1.0)
    at_input[0] = at_attacked[0] = 0.0
    at_input[-1] = at_attacked[-1] = 1.0
    limit = min(r, int(_MAX_EXPONENT / max(math.log2(keep / other), _MAX_EXPONENT / MAX_RADIUS)))
    with mpmath.workdps(DIGITS):
        falling = np.array(
            [float(mpmath.mpf(at_old) ** j / mpmath.mpf(at_new) ** j) for j in range(limit, -limit - 1, -1)]
        )
    ratio = np.pad(falling, r - limit, mode="edge") * UP
    inverse = np.pad(falling[::-1], r - limit, mode="edge") * DOWN
    inverse[: r - limit] = 0.0
    return LikelihoodRegions(at_input, at_attacked, ratio, inverse, r - limit)


def trinomials(a: int, b: int, c: int, r: int) -> list[int]:
    """Coefficients of (a + b z + c z^2)^r, a > 0: P Q' = r P' Q for Q = P^r gives each from the previous two, exactly.

    >>> trinomials(1, 1, 1, 3)
    [1, 3, 6, 7, 6, 3, 1]
    """
    coefficients = [a**r]
    for j in range(1, 2 * r + 1):
        second_last = coefficients[j - 2] if j > 1 else 0
        coefficients.append((b * (r - j + 1) * coefficients[j - 1] + c * (2 * r - j + 2) * second_last) // (a * j))
    return coefficients
