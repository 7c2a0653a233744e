"""Random ablation: a few pixels are kept and the rest hidden, against attacks on few pixels. [Levine2020], [Jia2022]"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from vauban.bounds.clopper_pearson import Floats
from vauban.bounds.simultaneous import ProbabilityBounds
from vauban.errors import BadInput
from vauban.laws.law import Law, register
from vauban.laws.subsets import draw_deviation, hit_probability
from vauban.numerics import DOWN, PROBABILITY, UP
from vauban.specs import Parameter, choose
from vauban.threats import L0, L0_FEATURES, Threat

NULLS = ("multichannel", "mean", "standardised")
UNITS = ("pixel", "feature")

_MAX_FEATURES = 10**7


def per_channel(value: float | tuple[float, ...]) -> tuple[float, ...]:
    """The numbers of a setting that is one number or one for each channel."""
    return value if isinstance(value, tuple) else (value,)


def joined(value: float | tuple[float, ...]) -> str:
    """Such a setting as text."""
    return "/".join(map(repr, per_channel(value)))


def read_numbers(text: str) -> float | tuple[float, ...]:
    """Read one number, or several joined by /.

    >>> read_numbers("0.5"), read_numbers("0.49/0.48/0.45")
    (0.5, (0.49, 0.48, 0.45))
    """
    numbers = tuple(float(part) for part in text.split("/"))
    return numbers[0] if len(numbers) == 1 else numbers


@register
@dataclass(frozen=True)
class AblationLaw(Law):
    """`retained` of d pixels (or features) are kept, chosen uniformly without replacement; the others become NULL.

    With e = `retained`, a fraction Delta(r) = 1 - C(d-r, e) / C(d, e) of the views keeps one of r changed pixels; every other
    view is the same before and after the attack. So U = min(1, p + Delta), L = max(0, p - Delta), whatever NULL looks like.
    [Levine2020] Theorem 1, [Jia2022] Theorem 1

    Probabilities are multiples of 1 / C(d, e), so a lower bound may be rounded up to the next one and an upper bound down:
    p' of [Jia2022] Eq. 4. Bounds are taken to be right to 1e-12 and no better, hence p' = ceil((p - 1e-12) C) / C for a
    lower bound: that is less than p as soon as C >= 1e12, so p' is skipped there and nothing is lost. With p' the radius is
    tight up to ties for every k, and not only "almost" ([Jia2022] Theorem 2): each rival's gap to the label is a whole number
    of views. It needs a base classifier that always gives the same answer to a view; `deterministic` False leaves it out.
    `features` (d) is taken from the input's shape if it is not given. `mean` and `std`: one number, or one for each channel,
    for the ways to write NULL that use them; the certificate does not depend on them.

    >>> law = AblationLaw(retained=45, features=784)
    >>> float(law.most(0.0, 8).round(4)), float(law.least(1.0, 8).round(4))
    (0.3782, 0.6218)
    """

    retained: int
    null: str = "multichannel"
    unit: str = "pixel"
    features: int | None = None
    mean: float | tuple[float, ...] = 0.5
    std: float | tuple[float, ...] = 1.0
    deterministic: bool = True
    name: ClassVar[str] = "ablation"
    parameters: ClassVar[dict[str, Parameter]] = {
        "retained": Parameter(int, required=True, example="45"),
        "null": Parameter(lambda text: choose("way to write NULL", text, NULLS), "multichannel"),
        "unit": Parameter(lambda text: choose("unit", text, UNITS), "pixel"),
        "features": Parameter(int),
        "mean": Parameter(read_numbers, 0.5, example="0.49/0.48/0.45"),
        "std": Parameter(read_numbers, 1.0),
    }

    def __post_init__(self) -> None:
        choose("way to write NULL", self.null, NULLS)
        choose("unit", self.unit, UNITS)
        if not isinstance(self.retained, int) or self.retained < 1:
            raise BadInput(
                f"retained={self.retained}: how many {self.unit}s are kept, one or more, is needed; for example 45 of 784"
            )
        if self.features is not None and self.features > _MAX_FEATURES:
            raise BadInput(f"features={self.features}: at most {_MAX_FEATURES:,} are supported")
        if self.features is not None and self.features <= self.retained:
            raise BadInput(f"retained={self.retained} of {self.features} {self.unit}s hides nothing: keep fewer")
        self._check_scaling()

    def _check_scaling(self) -> None:
        """Refuse means and deviations that are no numbers, or that this way to write NULL does not use."""
        said = joined(self.mean)
        if not all(map(math.isfinite, per_channel(self.mean))):
            raise BadInput(f"mean={said}: a finite number is needed, for example 0.5, or one for each channel")
        if not all(0 < value < math.inf for value in per_channel(self.std)):
            raise BadInput(f"std={joined(self.std)}: a finite number above zero is needed, or one for each channel")
        if self.null == "multichannel" and self.mean != 0.5:
            raise BadInput(f"mean={said} has no effect with null={self.null}: write null=mean,mean={said}")
        if self.null != "standardised" and self.std != 1.0:
            raise BadInput(f"std={joined(self.std)} has no effect with null={self.null}: write null=standardised")

    @property
    def threat(self) -> Threat:
        return L0 if self.unit == "pixel" else L0_FEATURES

    def for_shape(self, shape: Sequence[int]) -> Self:
        """The law on inputs [channels, height, width], where a pixel is all its channels; else every number is a unit."""
        pixels = math.prod(shape[1:] if self.unit == "pixel" and len(shape) == 3 else shape)
        if self.features not in (None, pixels):
            raise BadInput(f"features={self.features}, but inputs of shape {tuple(shape)} have {pixels} {self.unit}s")
        channels = shape[0] if len(shape) == 3 else 1
        for name, values in (("mean", self.mean), ("std", self.std)):
            if isinstance(values, tuple) and len(values) != channels:
                raise BadInput(f"{name}={joined(values)}: inputs of shape {tuple(shape)} have {channels} channels")
        return replace(self, features=pixels)

    @property
    def total(self) -> int:
        """d: how many pixels or features an input has."""
        if self.features is None:
            raise BadInput(f"ablation needs to know the input's size: write retained={self.retained},features=784")
        return self.features

    def most(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return np.minimum(1.0, (self.rounded_down(p) + self._delta(r)) * UP)

    def least(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return np.maximum(0.0, self.rounded_up(p) * DOWN - self._delta(r) * UP)

    def _delta(self, r: ArrayLike) -> Floats:
        table = hit_probability(self.total, self.retained)
        return table[np.minimum(np.ceil(r), len(table) - 1).astype(np.int64)]

    def rounded_up(self, p: ArrayLike) -> Floats:
        """The least multiple of 1 / C(d, e) at or above lower bounds p [...]: [Jia2022] Eq. 4, never less than p."""
        p, outcomes = np.asarray(p, dtype=float), self._outcomes
        return p if outcomes is None else np.maximum(p, np.ceil((p - PROBABILITY) * outcomes) / outcomes)

    def rounded_down(self, p: ArrayLike) -> Floats:
        """The largest multiple of 1 / C(d, e) at or below upper bounds p [...]: [Jia2022] Eq. 4, never more than p."""
        p, outcomes = np.asarray(p, dtype=float), self._outcomes
        return p if outcomes is None else np.minimum(p, np.floor((p + PROBABILITY) * outcomes) / outcomes)

    @property
    def _outcomes(self) -> int | None:
        return _outcomes(self.total, self.retained) if self.deterministic else None

    def without_determinism(self) -> Self:
        return replace(self, deterministic=False)

    def calibrated(self, bounds: ProbabilityBounds) -> ProbabilityBounds:
        """Every bound as p' before rivals are summed: a sum of floors may be less than the floor of the sum."""
        return ProbabilityBounds(self.rounded_up(bounds.label), self.rounded_down(bounds.rivals))

    @property
    def scale(self) -> float:
        return float(max(1, self.total // (2 * self.retained)))

    @property
    def max_distance(self) -> float:
        return float(self.total - self.retained)

    def deviation(self, shape: Sequence[int], levels: int | None) -> float:
        total = self.for_shape(shape).total
        return draw_deviation(total, min(self.retained, total - self.retained))

    def information(self, values: int) -> float:
        """Bits of information in a view, if each unit takes `values` equally likely values. [Levine2020] Eq. 20"""
        return self.retained * math.log2(values)


@lru_cache(maxsize=64)
def _outcomes(total: int, retained: int) -> int | None:
    """C(d, e), or None where it is too large for p' to change anything."""
    logarithm = math.lgamma(total + 1) - math.lgamma(retained + 1) - math.lgamma(total - retained + 1)
    if logarithm > 1 - math.log(PROBABILITY):
        return None
    outcomes = math.comb(total, retained)
    return outcomes if outcomes < 1 / PROBABILITY else None
