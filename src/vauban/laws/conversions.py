"""Conversion of radii from one threat to another: always a weaker claim, always rounded down.

Inputs hold numbers in [0, 1] before and after an attack, so that no feature changes by more than 1. A real-valued radius keeps
the ball (open or closed) of its source; an integer radius is closed. With |d| the changes, n features, c channels:

| from           | to             | radius           | because                                                            |
| -------------- | -------------- | ---------------- | ------------------------------------------------------------------ |
| l2             | l1             | max(R, R^2)      | the L2 norm is at most the L1 norm; sum d^2 <= sum abs d           |
| l1             | lq, q < 1      | max(R, R^(1/q))  | L1 is at most Lq; sum abs d <= sum abs d^q ([Levine2023] 4.27)     |
| lp, p < 1      | l1             | R n^(1 - 1/p)    | sum abs d^p <= n^(1-p) (sum abs d)^p, by concavity                 |
| l2, l1, lp     | linf           | R / n^(1/p)      | n changes of e each have the size e n^(1/p), whatever the values   |
| l2, l1, lp     | l0-features    | most k < R^p     | k features change sum abs d^p by at most k                         |
| l2, l1, lp     | l0             | most k < R^p / c | a pixel is c features                                              |
| l0-features    | l0             | R / c            | the same                                                           |
| l0             | l0-features    | R                | R features lie in at most R pixels                                 |
| any of these   | patch          | side of a square | a change inside an m x m square changes at most m^2 pixels         |
| l1             | wasserstein    | R / (2 mass)     | a move of mass changes two pixels by it and costs at least it      |
| l1             | wasserstein-l2 | R / (2 mass)     | the same: any two pixels are at least 1 apart (Corollary D.1)      |
| wasserstein    | wasserstein-l2 | R / sqrt 2       | abs z_1 <= sqrt 2 abs z_2 in the plane (Corollary D.3)             |
| wasserstein-l2 | wasserstein    | R                | abs z_2 <= abs z_1                                                 |

From closed balls, k <= R^p. No radius converts from Wasserstein to L1, whose attacks need not keep the mass.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from fractions import Fraction

import mpmath
import numpy as np
from numpy.typing import ArrayLike

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.threats import Threat

INTEGER_TARGETS = ["l0", "l0-features", "patch"]
_TARGETS = {
    "l2": ["l1", *INTEGER_TARGETS, "linf"],
    "l1": [*INTEGER_TARGETS, "linf", "wasserstein", "wasserstein-l2"],
    "l0": ["l0-features", "patch"],
    "l0-features": ["l0", "patch"],
    "wasserstein": ["wasserstein-l2"],
    "wasserstein-l2": ["wasserstein"],
}
_MAX_EXACT_EXPONENT = 64


def targets(source: Threat) -> list[str]:
    """Names of the threats to which radii of `source` can be converted; l1 also converts to any lq, 0 < q < 1, as l1/2.

    >>> from vauban.threats import L2
    >>> targets(L2)
    ['l1', 'l0', 'l0-features', 'patch', 'linf']
    """
    return ["l1", *INTEGER_TARGETS, "linf"] if _fraction(source.name) else list(_TARGETS.get(source.name, []))


def convert(
    radius: ArrayLike, source: Threat, target: str, shape: Sequence[int], *, mass: ArrayLike | None = None
) -> Floats:
    """Radii of `source`, any shape, as radii of the threat named `target`, for inputs of `shape` [c, h, w], [h, w] or [w].

    NaN stays NaN; an open ball of radius 0, which does not even contain the input, has no integer radius: NaN too. `mass`: of
    each picture, for Wasserstein targets (1 if pictures were normalised); by default the largest possible, all white.

    >>> from vauban.threats import L2
    >>> convert([0.5, 2.0, float("nan")], L2, "l0", (3, 32, 32))
    array([ 0.,  1., nan])
    """
    if target not in targets(source) and not (source.name == "l1" and _fraction(target)):
        known = ", ".join(targets(source)) + (" and lq with 0 < q < 1, as l1/2" if source.name == "l1" else "")
        into = f"only to: {known}" if known else "nor to any other threat: no conversion of it is known"
        raise BadInput(f"a radius in {source.name} cannot be converted to {target!r}, {into}")
    if not 1 <= len(shape) <= 3:
        raise BadInput(f"inputs of shape {tuple(shape)}: pictures [c, h, w] or [h, w], or lines [w], are needed here")
    radii = np.asarray(radius, dtype=float)
    if (radii < 0).any():
        raise BadInput(f"radius {radii[radii < 0].flat[0]:g}: a radius is at least 0")
    size = math.prod(shape)
    masses = np.broadcast_to(np.asarray(size if mass is None else mass, dtype=float), radii.shape)
    if not ((masses > 0) & (masses < math.inf)).all():
        raise BadInput(f"mass {masses.min():g}: a picture's mass is a finite number above 0")
    pairs = zip(radii.flat, masses.flat, strict=True)
    if target in INTEGER_TARGETS:
        values = [_integer_radius(float(r), source, target, shape) for r in radii.flat]
    else:
        values = [r if not 0 < r < math.inf else _real_radius(Fraction(r), source, target, size, m) for r, m in pairs]
    return np.array(values, dtype=float).reshape(radii.shape)


def _real_radius(r: Fraction, source: Threat, target: str, size: int, mass: float) -> float:
    """A real-valued radius from a real-valued one."""
    if target == "linf":
        return _rounded_down(r * _power(Fraction(1, size), 1 / _exponent(source)))
    if source.name == "l2":
        return _rounded_down(max(r, r * r))
    if target == "wasserstein-l2" and source.name == "wasserstein":
        return _rounded_down(r * _power(Fraction(1, 2), Fraction(1, 2)))
    if target == "wasserstein" and source.name == "wasserstein-l2":
        return _rounded_down(r)
    if source.name == "l1" and (q := _fraction(target)):
        return _rounded_down(max(r, _power(r, 1 / q)))
    if p := _fraction(source.name):
        return _rounded_down(r * _power(Fraction(size), 1 - 1 / p))
    return _rounded_down(r / (2 * Fraction(mass)))


def in_unit_range(source: Threat, target: str) -> bool:
    """Whether a conversion presupposes that all numbers are in [0, 1] before and after an attack."""
    return target != "linf" and not source.integer and not source.name.startswith("wasserstein")


def implied(source: Threat, target: str, shape: Sequence[int]) -> tuple[str, ...]:
    """What a converted radius is worth, in words, where it could be taken for more."""
    if target != "linf":
        return ()
    root, features = 1 / _exponent(source), math.prod(shape)
    factor = f"{features:,}" if root == 1 else f"{features:,}^{root if root.denominator == 1 else f'({root})'}"
    return (
        f"these L-infinity radii are what the {source.metric} radii imply, and no more: a change of e in each of the "
        f"{features:,} features has the {source.metric} e x {factor}, so every radius was divided by {factor}",
    )


def _exponent(source: Threat) -> Fraction:
    """The p of an Lp threat."""
    return _fraction(source.name) or Fraction({"l1": 1, "l2": 2}[source.name])


def _integer_radius(r: float, source: Threat, target: str, shape: Sequence[int]) -> float:
    """The number of features or pixels, or the side of a square, that the radius covers."""
    if math.isnan(r) or (r == 0 and source.ball == "open"):
        return math.nan
    size, channels = math.prod(shape), shape[0] if len(shape) == 3 else 1
    pixels = size // channels
    if source.integer:
        in_features, in_pixels = (r, r) if source.name == "l0" else (r, r // channels)
        if source.name == "l0" and r >= pixels:
            in_features = size
    elif r == math.inf:
        in_features, in_pixels = size, pixels
    else:
        budget = _power(Fraction(r), _exponent(source))
        in_features, in_pixels = _largest_integer(budget, source), _largest_integer(budget / channels, source)
    if target == "l0-features":
        return float(math.floor(min(in_features, size)))
    covered = math.floor(min(in_pixels, pixels))
    return float(covered if target == "l0" else _square_side(covered, (1, 1, *shape)[-2:]))


def _largest_integer(budget: Fraction, source: Threat) -> int:
    """The largest integer in the ball."""
    return math.ceil(budget) - 1 if source.ball == "open" else math.floor(budget)


def _square_side(pixels: int, picture: Sequence[int]) -> int:
    """The side of the largest square with at most `pixels` pixels inside the picture [height, width]."""
    height, width = picture
    sides = np.arange(max(height, width) + 1)
    return int(np.flatnonzero(np.minimum(sides, height) * np.minimum(sides, width) <= pixels)[-1])


def _fraction(name: str) -> Fraction | None:
    """The p of a threat named lp with 0 < p < 1, such as l1/2 or l0.5; None for others."""
    try:
        p = Fraction(name[1:]) if name[:1] == "l" else Fraction(0)
    except (ValueError, ZeroDivisionError):
        return None
    return p if Fraction(1, 100) <= p < 1 else None


def _power(r: Fraction, exponent: Fraction) -> Fraction:
    """r^exponent: exact where it is rational, but for exponents that are too large; else smaller by a part in 10^40."""
    if abs(exponent.numerator) <= _MAX_EXACT_EXPONENT:
        roots = [_whole_root(part, exponent.denominator) for part in (r.numerator, r.denominator)]
        if None not in roots:
            return Fraction(*roots) ** exponent.numerator  # type: ignore[arg-type]
    with mpmath.workdps(60):
        base, power = (mpmath.mpf(x.numerator) / x.denominator for x in (r, exponent))
        value = base**power * (1 - mpmath.mpf(10) ** -40)
        mantissa, shift = value.man_exp
    return mantissa * Fraction(2) ** shift


def _whole_root(number: int, degree: int) -> int | None:
    """The root of that degree of a whole number, if it is whole."""
    with mpmath.workprec(number.bit_length() + 20):
        root = int(mpmath.nint(mpmath.root(number, degree)))
    return root if root**degree == number else None


def _rounded_down(value: Fraction) -> float:
    """The largest float that is not above `value`."""
    nearest = float(min(value, Fraction(sys.float_info.max)))
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, 0.0)
