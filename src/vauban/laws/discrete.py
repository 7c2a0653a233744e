"""Keeping each feature or replacing it by another value, against attacks that change a few. [Lee2019]"""

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
from vauban.specs import Parameter
from vauban.threats import L0_FEATURES, Threat

LARGEST = 4096
MOST_VALUES = 1 << 14

_EXPONENT = 900  # likelihood ratios above 2^900 are left out: what has them weighs less than 2^-900


@register
@dataclass(frozen=True)
class DiscreteLaw(Law):
    """Each feature keeps its value, one of `values`, with probability `keep`; else it takes any other, all as likely.

    Of r changed features a view shows some at the old value, some at the new one, some at neither. Its likelihood ratio
    depends on r and new minus old alone, so these differences are the regions of Neyman and Pearson, and the worst event
    of probability p takes them from the largest ratio down: exact, and the same for every input size. [Lee2019] section 4
    `keep` stands for the decimal number it is written as. No radius above 4,096 is claimed.

    >>> law = DiscreteLaw(keep=0.1, values=256)
    >>> bool(law.least(0.5964, 1) < 0.5 < law.least(0.5965, 1))  # the example of [Levine2020]
    True
    """

    keep: float
    values: int = 256
    features: int | None = None
    name: ClassVar[str] = "discrete"
    parameters: ClassVar[dict[str, Parameter]] = {
        "keep": Parameter(float, required=True, example="0.8"),
        "values": Parameter(int, 256),
        "features": Parameter(int),
    }

    def __post_init__(self) -> None:
        if not isinstance(self.values, int) or not 2 <= self.values <= MOST_VALUES:
            raise BadInput(
                f"values={self.values}: a whole number from 2 to {MOST_VALUES} is needed, 256 for 8-bit pictures"
            )
        if not 1 / self.values < self.keep < 1:
            raise BadInput(
                f"keep={self.keep}: a probability above 1/{self.values}, at which a view tells nothing, and below 1 is needed"
            )
        if self.features is not None and self.features < 1:
            raise BadInput(f"features={self.features}: at least one is needed")

    @property
    def threat(self) -> Threat:
        return L0_FEATURES

    def for_shape(self, shape: Sequence[int]) -> Self:
        numbers = math.prod(shape)
        if self.features not in (None, numbers):
            raise BadInput(f"features={self.features}, but inputs of shape {tuple(shape)} have {numbers}")
        return replace(self, features=numbers)

    @property
    def kept(self) -> Fraction:
        """`keep` as the exact number that is written."""
        return Fraction(repr(float(self.keep)))

    def most(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return self._by_size(p, r, 1.0, LikelihoodRegions.most)

    def least(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return self._by_size(p, r, 0.0, LikelihoodRegions.least)

    def _by_size(self, p: ArrayLike, r: ArrayLike, beyond: float, shift: Shift) -> Floats:
        """`shift` of the table of each r, broadcast; `beyond` where there is none."""
        p, r = np.broadcast_arrays(np.asarray(p, dtype=float), np.ceil(np.asarray(r, dtype=float)))
        flat, sizes = p.ravel(), r.ravel()
        order = np.argsort(sizes, kind="stable")
        ends = np.flatnonzero(np.diff(sizes[order], append=np.inf)) + 1
        result = np.where((flat <= 0) | (flat >= 1), flat, beyond)
        for some in np.split(order, ends[:-1]):
            if len(some) and sizes[some[0]] <= LARGEST:
                result[some] = shift(regions(self.kept, self.values, int(sizes[some[0]])), flat[some])
        return result.reshape(p.shape)

    @property
    def scale(self) -> float:
        return float(min(64, math.ceil(1 / (2 * (self.kept - self._other)))))

    @property
    def farthest(self) -> float:
        return float(min(LARGEST, self.features or LARGEST))

    @property
    def _other(self) -> Fraction:
        return (1 - self.kept) / (self.values - 1)

    def rounded(self, levels: int) -> RoundedNoise:
        """What is added to a value, modulo `values`, as a table of words: 0 where it is kept, else 1 .. values - 1.

        Every other value has exactly the same number of words, so the table deviates only by what `keep` is rounded.
        """
        if levels != self.values - 1:
            raise BadInput(
                f"values={self.values} on a grid of {levels + 1}: write values={levels + 1} for these inputs"
            )
        each = round(self._other * 2**BITS)
        first = 2**BITS - each * (self.values - 1)
        missed = abs(Fraction(first, 2**BITS) - self.kept)
        thresholds = first + each * np.arange(self.values - 1, dtype=np.int64)
        return RoundedNoise(thresholds, 0, math.nextafter(float(missed), 1.0))

    def deviation(self, shape: Sequence[int], levels: int | None) -> float:
        if levels is None:
            raise BadInput(
                "discrete replaces values by others of a grid: give 8-bit pictures, or round the inputs to 1/255"
            )
        return math.prod(shape) * self.rounded(levels).deviation * UP

    def information(self, features: int) -> float:
        """Bits that a view tells of an input of `features` features, all inputs as likely. [Levine2020] Eq. 21"""
        keep, other = float(self.kept), float(self._other)
        return features * (math.log2(self.values) + keep * math.log2(keep) + (1 - keep) * math.log2(other))


@dataclass(frozen=True)
class LikelihoodRegions:
    """The corners of U for one r: events of the largest likelihood ratios, one region more at a time.

    `here` [2r+2], rounded down: their probabilities at the input; `there`, rounded up: at the changed one. U is concave
    and made of segments of slope `ratio` [2r+1], and every segment's line lies above it everywhere, so a wrong segment
    could only make U larger. L is U's inverse: there, the lines lie below.
    """

    here: Floats
    there: Floats
    ratio_up: Floats
    inverse_down: Floats
    first: int

    def most(self, p: Floats) -> Floats:
        """U(p), rounded up."""
        i = np.clip(np.searchsorted(self.here, p, side="right") - 1, self.first, len(self.ratio_up) - 1)
        line = (self.there[i] + np.maximum(p - self.here[i], 0.0) * self.ratio_up[i]) * UP
        return np.where(p <= 0, 0.0, np.minimum(line, 1.0))

    def least(self, p: Floats) -> Floats:
        """L(p), rounded down."""
        i = np.minimum(np.searchsorted(self.there, p, side="right") - 1, len(self.inverse_down) - 1)
        line = (self.here[i] + (p - self.there[i]) * self.inverse_down[i]) * DOWN
        return np.where(p >= 1, 1.0, np.maximum(line, 0.0))


Shift = Callable[[LikelihoodRegions, Floats], Floats]


@lru_cache(maxsize=1024)
def regions(keep: Fraction, values: int, r: int) -> LikelihoodRegions:
    """The regions of r changed features, from exact integers.

    The difference j of features at the new and at the old value has probability [z^j] (keep / z + neither + other z)^r at
    the input, and that of -j at the changed one; the likelihood ratio is (keep / other)^j.
    """
    other = (1 - keep) / (values - 1)
    common = math.lcm(keep.denominator, other.denominator)
    at_old, at_new, at_neither = (int(part * common) for part in (keep, other, (values - 2) * other))
    masses, whole = trinomials(at_new, at_neither, at_old, r), common**r
    here = np.array([total / whole for total in accumulate(masses, initial=0)])
    there = np.array([total / whole for total in accumulate(reversed(masses), initial=0)])
    here, there = np.nextafter(here, 0.0), np.minimum(np.nextafter(there, 2.0), 1.0)
    here[0] = there[0] = 0.0
    here[-1] = there[-1] = 1.0
    limit = min(r, int(_EXPONENT / max(math.log2(keep / other), _EXPONENT / LARGEST)))
    with mpmath.workdps(DIGITS):
        falling = np.array(
            [float(mpmath.mpf(at_old) ** j / mpmath.mpf(at_new) ** j) for j in range(limit, -limit - 1, -1)]
        )
    ratio = np.pad(falling, r - limit, mode="edge") * UP
    inverse = np.pad(falling[::-1], r - limit, mode="edge") * DOWN
    inverse[: r - limit] = 0.0
    return LikelihoodRegions(here, there, ratio, inverse, r - limit)


def trinomials(a: int, b: int, c: int, r: int) -> list[int]:
    """Coefficients of (a + b z + c z^2)^r, a > 0: P Q' = r P' Q for Q = P^r gives each from the two before it, exactly.

    >>> trinomials(1, 1, 1, 3)
    [1, 3, 6, 7, 6, 3, 1]
    """
    found = [a**r]
    for j in range(1, 2 * r + 1):
        before = found[j - 2] if j > 1 else 0
        found.append((b * (r - j + 1) * found[j - 1] + c * (2 * r - j + 2) * before) // (a * j))
    return found
