"""Threats: the metric of an attack, its unit, and whether the certified ball includes its boundary."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from vauban.errors import BadInput


@dataclass(frozen=True)
class Threat:
    """A set of attacks of size up to a radius.

    `ball` is "open" (every change strictly smaller than the radius) or "closed" (the radius itself included);
    `integer` says whether the radius is a count.
    """

    name: str
    metric: str
    unit: str
    ball: str
    integer: bool = False

    def sentence(self, radius: str = "r") -> str:
        """Say in words which changes a radius covers."""
        relation = "less than" if self.ball == "open" else "at most"
        return f"every change whose {self.metric} is {relation} {radius} ({self.unit})"


L2 = Threat("l2", "L2 norm", "units of the input, pictures in [0,1]", "open")
L2_SCALED = Threat(
    "l2-scaled", "L2 norm, every number divided by its own sigma,", "sigmas, which the smoothing lists", "open"
)
L1 = Threat("l1", "L1 norm", "units of the input, pictures in [0,1]", "open")
LINF = Threat("linf", "L-infinity norm", "units of the input, pictures in [0,1]", "open")
L0 = Threat("l0", "number of changed pixels", "a pixel counts once, whatever its channels", "closed", integer=True)
L0_FEATURES = Threat(
    "l0-features", "number of changed features", "every channel of a pixel counts", "closed", integer=True
)
L0_CODES = Threat(
    "l0-codes",
    "number of changed features",
    "every feature is a code, a whole number below the smoothing's values; changes to anything else are not covered",
    "closed",
    integer=True,
)
PATCH = Threat("patch", "smallest enclosing square", "its side in pixels", "closed", integer=True)
OWN_MASS = "pixels moved by the whole mass, of pictures whose mass in all is not changed"
"""The unit of Wasserstein distances where pictures are not normalised, so that an attack has to leave their mass as it is."""
WASSERSTEIN = Threat(
    "wasserstein",
    "1-Wasserstein distance, ground metric l1, every channel keeping its mass,",
    "pixels moved by the whole mass, pictures normalised to mass 1",
    "open",
)
WASSERSTEIN_L2 = Threat(
    "wasserstein-l2",
    "1-Wasserstein distance, ground metric l2, every channel keeping its mass,",
    "pixels moved by the whole mass, pictures normalised to mass 1",
    "open",
)


def lp(p: Fraction) -> Threat:
    """The fractional Lp "norm" (sum |change|^p)^(1/p), 0 < p <= 1."""
    return L1 if p == 1 else Threat(f"l{p}", f"L{p} quasi-norm", "units of the input, pictures in [0,1]", "open")


def named(name: str) -> Threat:
    """The threat of this name: l2, l1, linf, l0, l0-features, patch, wasserstein, wasserstein-l2, or l1/2 and the like."""
    known = {t.name: t for t in (L2, L1, LINF, L0, L0_FEATURES, PATCH, WASSERSTEIN, WASSERSTEIN_L2)}
    if name in known:
        return known[name]
    try:
        p = Fraction(name.removeprefix("l"))
    except (ValueError, ZeroDivisionError):
        p = Fraction(0)
    if not name.startswith("l") or not Fraction(1, 100) <= p < 1:
        raise BadInput(f"{name!r} is not a known threat; known: {', '.join(known)}, and lp with 0 < p < 1 as l1/2")
    return lp(p)


def converted(source: Threat, name: str) -> Threat:
    """The threat of this name as radii that were converted from `source` measure it: with its ball, and with its masses."""
    other = named(name)
    if other.integer:
        return other
    unit = other.unit
    if name.startswith("wasserstein"):
        unit = source.unit if source.name.startswith("wasserstein") else OWN_MASS
    return replace(other, ball=source.ball, unit=unit)
