"""Sums of a concave function of each coordinate's change, counted in exact arithmetic. [Levine2023] Definition 4.1"""

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

_FINEST = 1000  # largest denominator of p: numbers as long as this many times 64 bits are compared


class Metric(ABC):
    """d(x, y) = sum of g(|x_i - y_i|) with g increasing, concave and zero at zero, on a grid of `levels` steps.

    A `rate` R turns it into views: an attack of size d may change R d of them.
    """

    @abstractmethod
    def most(self, k: int, levels: int, rate: Fraction) -> int:
        """floor(R g(k / levels)): the views that a change of k steps may change."""

    @abstractmethod
    def excess(self, count: int, k: int, levels: int, rate: Fraction) -> int | Fraction:
        """Above zero where count > R g(k / levels), zero where they are equal, below zero otherwise; exact."""

    def enough(self, k: int, levels: int, rate: Fraction) -> int:
        """ceil(R g(k / levels))."""
        most = self.most(k, levels, rate)
        return most if self.excess(most, k, levels, rate) == 0 else most + 1

    @abstractmethod
    def reach(self, changed: int, rate: Fraction) -> float:
        """The largest float r such that no attack of size r or less may change more than `changed` views."""


@dataclass(frozen=True)
class Power(Metric):
    """g(z) = z^p with p = a / b, its sizes stated as the Lp quasi-norm: d^(1/p).

    >>> Power(Fraction(1, 2)).most(255, 255, Fraction(1000)), Power(Fraction(1, 2)).most(1, 255, Fraction(1000))
    (1000, 62)
    """

    p: Fraction

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise BadInput(f"p={self.p}: a fraction above 0 and at most 1 is needed, for example 1/2")
        if self.p.denominator > _FINEST:
            near = self.p.limit_denominator(100)
            raise BadInput(
                f"p={self.p}: exact checks raise numbers to the power {self.p.denominator}, and {_FINEST} is the most: "
                f"take a simpler fraction{f', such as {near}' if near else ''}"
            )

    def most(self, k: int, levels: int, rate: Fraction) -> int:
        a, b = self.p.numerator, self.p.denominator
        return _root(rate.numerator**b * k**a // (rate.denominator**b * levels**a), b)

    def excess(self, count: int, k: int, levels: int, rate: Fraction) -> int | Fraction:
        """count^b levels^a against R^b k^a, in integers."""
        a, b = self.p.numerator, self.p.denominator
        return (count * rate.denominator) ** b * levels**a - rate.numerator**b * k**a

    def reach(self, changed: int, rate: Fraction) -> float:
        """R r^p < changed + 1, that is (R^b)(r^a) < (changed + 1)^b."""
        return _reach(self.p, changed, rate)


@dataclass(frozen=True)
class Tabled(Metric):
    """g by its values [levels + 1] at 0, 1 / levels, … 1; sizes are sums of g."""

    values: tuple[Fraction, ...]

    @classmethod
    def of(cls, g: Callable[[float], float | Fraction] | Sequence[float | Fraction], levels: int) -> Tabled:
        """From a function on [0, 1] or its values; refused unless increasing, concave, zero at zero and at most 1.

        A function is given Fractions, or floats if it cannot take them. Values that are floats count as roundings of the true
        g and are lowered by 2^-48 of themselves, so that what is proven of the table is proven of g; whole numbers and
        Fractions are taken as they are.
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

    def most(self, k: int, levels: int, rate: Fraction) -> int:
        return math.floor(rate * self.values[k])

    def excess(self, count: int, k: int, levels: int, rate: Fraction) -> int | Fraction:
        return count - rate * self.values[k]

    def reach(self, changed: int, rate: Fraction) -> float:
        return _below(Fraction(changed + 1) / rate, lambda r, bound: r < bound)


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
    """Refuse what is no elementwise-concave metric, up to a share `slack` of g for the rounding of floats."""
    last = len(g) - 1
    if g[0] != 0:
        raise BadInput(f"g(0) is {float(g[0])}: a metric is zero where nothing changes; subtract g(0)")
    if last < 1 or g[1] <= 0:
        raise BadInput("g is not above zero at the first step: changes of that size would cost nothing")
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
def _reach(p: Fraction, changed: int, rate: Fraction) -> float:
    a, b = p.numerator, p.denominator
    bound = (Fraction(changed + 1) / rate) ** b
    with mpmath.workdps(DIGITS):
        guess = mpmath.root(mpmath.mpf(bound.numerator) / bound.denominator, a)
        start = float(min(guess, sys.float_info.max))
    return _below(bound, lambda r, most: r**a < most, start)


def _below(bound: Fraction, fits: Callable[[Fraction, Fraction], bool], guess: float | None = None) -> float:
    """The largest float that fits, found near the guess (or the bound itself)."""
    r = float(bound) if guess is None else guess
    while r > 0 and not fits(Fraction(r), bound):
        r = math.nextafter(r, 0.0)
    while r < sys.float_info.max and fits(Fraction(math.nextafter(r, math.inf)), bound):
        r = math.nextafter(r, math.inf)
    return r
