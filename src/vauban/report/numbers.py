"""Numbers as text, rounded to the safe side: radii, their means and certified shares down, shares of errors, distances
of attacks and needed probabilities up, a confidence never to 1."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from vauban.threats import Threat

_RADIUS_STEP = Decimal("1e-9")
_WIDE = Context(prec=800)  # digits enough for the exact value of any float
_MOST_INPUTS = 10**7  # shares of up to this many inputs differ by more than a float's rounding
_SHOWN_DIGITS = 6


def floor_text(radius: float, step: Decimal = _RADIUS_STEP) -> str:
    """A radius in decimal, rounded down.

    >>> floor_text(0.99999999999)
    '0.999999999'
    """
    return format(Decimal(radius).quantize(step, ROUND_FLOOR, _WIDE), "f")


def radius_text(radius: float, threat: Threat) -> str:
    """A radius as it is written: a whole number where the threat counts, else rounded down."""
    return str(int(radius)) if threat.integer else floor_text(radius)


def as_written(radius: float, threat: Threat) -> float:
    """A radius as the number that is written of it: what a claim says, and never more than the radius itself.

    >>> from vauban.threats import L2
    >>> as_written(0.99999999999, L2)
    0.999999999
    """
    return float(radius_text(radius, threat)) if math.isfinite(radius) else radius


def short_median(median: float) -> str:
    """A median of radii for a table, with the digits of `short_radius`: it is a radius `as_written`, and is read as that decimal,
    not as its float, which may be a little less.

    >>> short_median(0.3), short_radius(0.3)
    ('0.3', '0.2999')
    """
    if not math.isfinite(median):
        return str(median)
    return _trimmed(format(Decimal(repr(median)).quantize(_short_step(median), ROUND_FLOOR, _WIDE), "f"))


def short_radius(radius: float) -> str:
    """A radius for a table: rounded down to four decimals, or to four significant digits where those are more.

    >>> short_radius(138.46067), short_radius(0.0151559)
    ('138.4606', '0.01515')
    """
    return _trimmed(floor_text(radius, _short_step(radius)))


def short_distance(distance: float) -> str:
    """A distance at which an attack succeeded, for a table, with the digits of `short_radius`: rounded up, since it bounds radii
    from above; 0.1, whose float is a little more, is 0.1.

    >>> short_distance(138.46067), short_distance(0.1), short_distance(0.0151559)
    ('138.4607', '0.1', '0.01516')
    """
    written = Decimal(repr(float(distance)))
    return _trimmed(format(written.quantize(_short_step(distance), ROUND_CEILING, _WIDE), "f"))


def mean_radius(mean: float) -> str:
    """A mean of radii for a table, with the digits of `short_radius`: rounded down, so that it is never more than what is proven.
    The mean of whole numbers is rounded exactly, as if it had never been a float: 3 / 10 is 0.3 and not 0.2999.

    >>> mean_radius(3 / 10), mean_radius(0.92199), mean_radius(0.0151559)
    ('0.3', '0.9219', '0.01515')
    """
    step = _short_step(mean)
    return _trimmed(format(Decimal(_counted(mean) / Fraction(step) // 1) * step, "f"))


def asked_radius(radius: float) -> str:
    """A radius that was asked for, as it was written: the shortest decimal that reads back as this float, where nine decimals
    are enough, else rounded down.

    >>> asked_radius(0.3), asked_radius(138.46067), asked_radius(1 / 3)
    ('0.3', '138.46067', '0.333333333')
    """
    written = Decimal(repr(float(radius)))
    return _trimmed(format(written, "f") if _decimals(written) <= 9 else floor_text(radius))


def percent(fraction: float) -> str:
    """A fraction in percent, rounded down; that of a count is rounded exactly, as if it had never been a float.

    >>> percent(29 / 100), percent(0.9999999999999)
    ('29.00 %', '99.99 %')
    """
    hundredths = _counted(fraction) * 10_000 // 1
    return f"{Decimal(hundredths).scaleb(-2):.2f} %"


def percent_up(fraction: float) -> str:
    """A fraction of errors, or of inputs without a claim, in percent: rounded up, with the digits of `percent`.

    >>> percent_up(5 / 143), percent_up(29 / 100), percent_up(0.0)
    ('3.50 %', '29.00 %', '0.00 %')
    """
    hundredths = -(-_counted(fraction) * 10_000 // 1)
    return f"{Decimal(hundredths).scaleb(-2):.2f} %"


def confidence(failure: float) -> str:
    """1 - failure, exact: a decimal where six digits are enough, else a difference. It never reads 1.

    >>> confidence(0.001), confidence(1e-20)
    ('0.999', '1 - 1e-20')
    """
    written = Decimal(repr(float(failure)))
    return _trimmed(format(1 - written, "f")) if _decimals(written) <= _SHOWN_DIGITS else f"1 - {float(failure)!r}"


def total(*failures: float) -> str:
    """The sum of failure probabilities, exact.

    >>> total(0.001, 0.001), total(0.1, 0.2)
    ('0.002', '0.3')
    """
    added = Decimal(0)
    for failure in failures:
        added = _WIDE.add(added, Decimal(repr(float(failure))))
    return format(_WIDE.normalize(added), "g")


def rounded_up(value: float, digits: int = _SHOWN_DIGITS) -> str:
    """A number that is needed at least, rounded up to this many significant digits.

    >>> rounded_up(0.84134474606), rounded_up(0.5)
    ('0.841345', '0.5')
    """
    exact = Decimal(value)
    step = Decimal(1).scaleb(exact.adjusted() - digits + 1 if exact else 0)
    return _trimmed(format(exact.quantize(step, ROUND_CEILING, _WIDE), "f"))


def needed_probability(p: float) -> str:
    """A probability that is needed, rounded up to six digits; as a difference where that would be 1.

    >>> needed_probability(0.999), needed_probability(1 - 2**-30)
    ('0.999', '1 - 9.31e-10')
    """
    text = rounded_up(p)
    if text != "1" or p == 1:
        return text
    rest = _WIDE.subtract(Decimal(1), Decimal(p))
    return f"1 - {rest.quantize(Decimal(1).scaleb(rest.adjusted() - 2), ROUND_FLOOR, _WIDE):.2e}"


def _short_step(number: float) -> Decimal:
    """What a number in a table is rounded to: four decimals, or four significant digits where those are more."""
    exact = Decimal(number)
    return Decimal(1).scaleb(min(-4, exact.adjusted() - 3) if exact else 0)


def _counted(value: float) -> Fraction:
    """The quotient of a count and a number of inputs that this float is nearest to; else the float's own value."""
    quotient = Fraction(value).limit_denominator(_MOST_INPUTS)
    return quotient if float(quotient) == value else Fraction(value)


def _decimals(number: Decimal) -> int:
    """How many digits a number has after the point."""
    exponent = number.normalize().as_tuple().exponent
    assert isinstance(exponent, int)
    return max(0, -exponent)


def _trimmed(text: str) -> str:
    """A decimal without zeros at its end."""
    return text.rstrip("0").rstrip(".") if "." in text else text
