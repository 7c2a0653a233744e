"""Metrics that sum a concave function of each coordinate's change, in exact arithmetic. [Levine2023] Definition 4.1"""

from __future__ import annotations

import hashlib
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import mpmath

from vauban.errors import BadInput
from vauban.numerics import DIGITS, FLOAT_VALUES

_MAX_DENOMINATOR = 1000  # of p: exact comparisons use integers of this many times 64 bits


class Metric(ABC):
    """d(x, y) = sum of g(|x_i - y_i|) with g increasing, concave and zero at zero, on a grid of `levels` steps.

    A `rate` R converts sizes to views: an attack of size d may change R d of them.
    """

    @abstractmethod
    def floor_views(self, k: int, levels: int, rate: Fraction) -> int:
        """floor(R g(k / levels)): how many views a change of k steps may change."""

    @abstractmethod
    def excess(self, count: int, k: int, levels: int, rate: Fraction) -> int | Fraction:
        """Positive where count > R g(k / levels), zero where they are equal, negative otherwise; exact."""

    def ceil_views(self, k: int, levels: int, rate: Fraction) -> int:
        """ceil(R g(k / levels))."""
        floor = self.floor_views(k, levels, rate)
        return floor if self.excess(floor, k, levels, rate) == 0 else floor + 1

    @abstractmethod
    def radius_tolerating(self, changed: int, rate: Fraction) -> float:
        """The largest float r such that no attack of size r or less may change more than `changed` views."""


@dataclass(frozen=True)
class Power(Metric):
    """g(z) = z^p with p = a / b; radii are in units of the Lp quasi-norm d^(1/p).

    >>> [Power(Fraction(1, 2)).floor_views(k, 255, Fraction(1000)) for k in (255, 1)]
    [1000, 62]
    """

    p: Fraction

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise BadInput(f"p={self.p}: a fraction above 0 and at most 1 is needed, for example 1/2")
        if self.p.denominator > _MAX_DENOMINATOR:
            near = self.p.limit_denominator(100)
            raise BadInput(
                f"p={self.p}: exact checks raise numbers to the power {self.p.denominator}, and {_MAX_DENOMINATOR} is the "
                f"most: take a simpler fraction{f', such as {near}' if near else ''}"
            )

    def floor_views(self, k: int, levels: int, rate: Fraction) -> int:
        a, b = self.p.numerator, self.p.denominator
        return _root(rate.numerator**b * k**a // (rate.denominator**b * levels**a), b)

    def excess(self, count: int, k: int, levels: int, rate: Fraction) -> int | Fraction:
        """count^b levels^a - R^b k^a, scaled to integers."""
        a, b = self.p.numerator, self.p.denominator
        return (count * rate.denominator) ** b * levels**a - rate.numerator**b * k**a

    def radius_tolerating(self, changed: int, rate: Fraction) -> float:
        """The largest r with R r^p < changed + 1, that is (R^b)(r^a) < (changed + 1)^b."""
        return _power_radius(self.p, changed, rate)


@dataclass(frozen=True)
class Tabulated(Metric):
    """g by its values [levels + 1] at 0, 1 / levels, … 1; sizes are sums of g."""

    values: tuple[Fraction, ...]

    @classmethod
    def of(cls, g: Callable[[float], float | Fraction] | Sequence[float | Fraction], levels: int) -> Tabulated:
        """From a function on [0, 1] or its values; refused unless increasing, concave, zero at zero and at most 1.

        The function is called with Fractions, or with floats if it does not accept them. Float values count as roundings of the
        true g and are reduced by 2^-48 of themselves, so that a proof for the table is a proof for g; integers and Fractions
        are used exactly.
        """
        if not callable(g) and not hasattr(g, "__iter__"):
            raise BadInput(f"g={g!r}: a function on [0, 1], or its values on the grid, is needed")
        raw = _evaluated(g, levels) if callable(g) else list(g)
        if len(raw) != levels + 1:
            raise BadInput(
                f"g has {len(raw)} values: a grid of levels={levels} steps needs {levels + 1}, at 0, 1/{levels}, … 1"
            )
        exact = [_fraction(value, k, levels) for k, value in enumerate(raw)]
        _check(exact, 0 if all(isinstance(value, int | Fraction) for value in raw) else 1 - FLOAT_VALUES)
        return cls(
            tuple(
                value if isinstance(given, int | Fraction) else value * FLOAT_VALUES
                for value, given in zip(exact, raw, strict=True)
            )
        )

    @cached_property
    def hash(self) -> str:
        """A short hash of the values."""
        return hashlib.sha256(" ".join(map(str, self.values)).encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        return hash(self.hash)

    def floor_views(self, k: int, levels: int, rate: Fraction) -> int:
        return math.floor(rate * self.values[k])

    def excess(self, count: int, k: int, levels: int, rate: Fraction) -> int | Fraction:
        return count - rate * self.values[k]

    def radius_tolerating(self, changed: int, rate: Fraction) -> float:
        return _largest_float(Fraction(changed + 1) / rate, lambda r, bound: r < bound)


def _evaluated(g: Callable[[float], float | Fraction], levels: int) -> list[float | Fraction]:
    try:
        return [g(Fraction(k, levels)) for k in range(levels + 1)]  # type: ignore[arg-type]
    except (TypeError, AttributeError):
        return [g(k / levels) for k in range(levels + 1)]


def _fraction(value: object, k: int, levels: int) -> Fraction:
    try:
        return Fraction(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"g({k}/{levels}) is {value!r}: a finite int, float or Fraction is needed") from None


def _check(g: list[Fraction], slack: Fraction | int) -> None:
    """Refuse a g that is no elementwise-concave metric, up to a fraction `slack` of g for the rounding of floats."""
    last = len(g) - 1
    if g[0] != 0:
        raise BadInput(f"g(0) is {float(g[0])}: a metric is zero where nothing changes; subtract g(0)")
    if last < 1 or g[1] <= 0:
        raise BadInput("g is not above zero at the first step: changes of that size would have size 0")
    if g[last] > 1:
        raise BadInput(f"g(1) is {float(g[last])}: at most 1 is needed; divide g by it, and the scale too")
    for k in range(1, last + 1):
        if g[k] < (1 - slack) * g[k - 1]:
            raise BadInput(f"g falls from step {k - 1} to step {k} of {last}: an increasing function is needed")
        if k < last and 2 * g[k] - g[k - 1] - g[k + 1] < -slack * 4 * g[k]:
            raise BadInput(f"g is not concave around step {k} of {last}: its steps must not grow")


def _root(n: int, b: int) -> int:
    """floor(n^(1/b)) by Newton's method from above."""
    if n < 2 or b == 1:
        return n
    x = 1 << -(-n.bit_length() // b)
    while (y := ((b - 1) * x + n // x ** (b - 1)) // b) < x:
        x = y
    return x


@lru_cache(maxsize=2**16)
def _power_radius(p: Fraction, changed: int, rate: Fraction) -> float:
    a, b = p.numerator, p.denominator
    bound = (Fraction(changed + 1) / rate) ** b
    with mpmath.workdps(DIGITS):
        guess = mpmath.root(mpmath.mpf(bound.numerator) / bound.denominator, a)
        start = float(min(guess, sys.float_info.max))
    return _largest_float(bound, lambda r, bound: r**a < bound, start)


def _largest_float(bound: Fraction, fits: Callable[[Fraction, Fraction], bool], guess: float | None = None) -> float:
    """The largest float r for which fits(r, bound), searched from the guess (or the bound itself)."""
    r = float(bound) if guess is None else guess
    while r > 0 and not fits(Fraction(r), bound):
        r = math.nextafter(r, 0.0)
    while r < sys.float_info.max and fits(Fraction(math.nextafter(r, math.inf)), bound):
        r = math.nextafter(r, math.inf)
    return r
