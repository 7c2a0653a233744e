"""What a radius needs, before any vote: the least noise level, the share of views the label must win, and what more votes buy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from vauban.errors import BadInput
from vauban.laws import law as law_of
from vauban.laws import sampled_law
from vauban.laws.from_counts import largest_radius, radii_of_counts
from vauban.laws.law import LAWS, Law
from vauban.laws.rounded_noise import TooWide
from vauban.laws.topk import probability_needed
from vauban.specs import Spec
from vauban.validation import check_alpha

LEVEL = "sigma"
"""The parameter that says how strong the noise is, in the laws for which it can be searched."""
BOUNDS = "binocp"
USUAL_VOTES = (100, 1_000, 10_000, 100_000, 1_000_000)
_SHARES_OF_RADIUS = (0.5, 0.75, 1.0, 1.5, 2.0)
_DOUBLINGS, _HALVINGS = 60, 40


@dataclass(frozen=True)
class Need:
    """What the radius needs of one noise level at n votes.

    `probability`: that of the label among views, which certifies it as n grows, rounded up; NaN where none does. `wins`: the
    least of n votes that certify it; None where even n do not. `largest_radius`: that of an input on which all n votes agree.
    """

    smoothing: str
    n: int
    probability: float
    wins: int | None
    largest_radius: float | None


@dataclass(frozen=True)
class RadiusPlan:
    """What one radius needs. `levels`: by noise level, the least one first; `votes`: by number of votes, at one noise level."""

    radius: float
    k: int
    alpha: float
    n: int
    levels: list[Need]
    votes: list[Need]

    def to_json(self) -> dict[str, Any]:
        """Plain values; a probability that does not exist is null."""
        values = asdict(self)
        for need in (*values["levels"], *values["votes"]):
            need["probability"] = None if math.isnan(need["probability"]) else need["probability"]
        return values


def plan_radius(
    radius: float,
    smoothing: str = "gaussian",
    *,
    n: int = 10_000,
    k: int = 1,
    alpha: float = 0.001,
    shape: Sequence[int] = (1, 28, 28),
    levels: int | None = 255,
) -> RadiusPlan:
    """What certifying `radius` needs of the noise, of the base classifier and of the number of votes, by the label's own bound.

    `smoothing` without its sigma: the least sigma that can reach the radius with n votes is searched. `shape`, `levels`: of the
    inputs, for laws that depend on them.

    >>> plan = plan_radius(0.5, "gaussian:sigma=0.5")
    >>> [(need.n, need.wins) for need in plan.votes]
    [(100, 95), (1000, 877), (10000, 8526), (100000, 84492), (1000000, 842474)]
    """
    if not 0 < radius < math.inf:
        raise BadInput(f"radius {radius}: a finite number above zero is needed, for example 0.5")
    check_alpha(alpha)
    if n < 1:
        raise BadInput(f"n={n}: at least one vote is needed")
    given = Spec.parse(smoothing)
    need = partial(_need, radius=radius, k=k, alpha=alpha, shape=shape, levels=levels)
    if LEVEL in given.params or not _searchable(given):
        law = sampled_law(given)
        return RadiusPlan(radius, k, alpha, n, [need(law, n)], _by_votes(need, law, n))
    at = partial(_at_level, given)
    least = _least_level(at, need, radius=radius, n=n, k=k, alpha=alpha)
    chosen = [least, *(_rounded_up(share * radius) for share in _SHARES_OF_RADIUS if share * radius > least)]
    middle = at(max(least, _rounded_up(radius)))
    return RadiusPlan(radius, k, alpha, n, [need(at(sigma), n) for sigma in chosen], _by_votes(need, middle, n))


def _need(law: Law, n: int, *, radius: float, k: int, alpha: float, shape: Sequence[int], levels: int | None) -> Need:
    shaped = law.for_shape(shape)
    deviation = shaped.deviation(shape, levels)
    return Need(
        smoothing=str(law.spec),
        n=n,
        probability=float(probability_needed(shaped, [radius], k)[0]),
        wins=_wins(shaped, radius, n, k, alpha, deviation),
        largest_radius=largest_radius(n, k, alpha, max(2, k + 1), BOUNDS, shaped, deviation),
    )


def _wins(law: Law, radius: float, n: int, k: int, alpha: float, deviation: float) -> int | None:
    """The least wins of n votes that certify the radius, by bisection: more wins never certify less."""

    def certified(wins: int) -> bool:
        counts = np.zeros((1, max(2, k + 1)), dtype=np.int64)
        counts[0, :2] = wins, n - wins
        found = radii_of_counts(counts, np.array([0]), law, k=k, alpha=alpha, bounds=BOUNDS, deviation=deviation)
        return bool(found[0] >= radius)

    if not certified(n):
        return None
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if certified(middle) else (middle, high)
    return high


def _by_votes(need: Callable[..., Need], law: Law, n: int) -> list[Need]:
    return [need(law, votes) for votes in sorted({*USUAL_VOTES, n})]


def _searchable(spec: Spec) -> bool:
    """Whether the law of this name has the parameter sigma."""
    return any(LEVEL in form.parameters for form in LAWS[spec.name] if not form.exact)


def _at_level(spec: Spec, sigma: float) -> Law:
    """The sampled law of this spec at one noise level."""
    both = {form.exact for form in LAWS[spec.name]} == {True, False}
    found = law_of(Spec(spec.name, {**spec.params, LEVEL: repr(sigma), **({"sampled": "true"} if both else {})}))
    if not isinstance(found, Law):
        raise BadInput(f"{found.spec} is exact, and a sampled form is needed here")
    return found


def _least_level(at: Callable[[float], Law], need: Callable[..., Need], **wanted: Any) -> float:
    """The least noise level, rounded up to four digits, at which n unanimous votes certify the radius.

    It is searched without the noise's deviation from its law, which takes long to compute, and then raised until it is enough.
    """
    radius, n = wanted["radius"], wanted["n"]

    def enough(sigma: float) -> bool:
        law = at(sigma)
        found = largest_radius(n, wanted["k"], wanted["alpha"], max(2, wanted["k"] + 1), BOUNDS, law)
        return found is not None and found >= radius

    high = radius
    for _ in range(_DOUBLINGS):
        if enough(high):
            break
        high *= 2
    else:
        raise BadInput(
            f"{n} votes certify radius {radius:g} at no noise level when alpha is {wanted['alpha']:g}: give more votes"
        )
    low = high / 2
    while enough(low):
        low, high = low / 2, low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    least = _rounded_up(high)
    try:
        while need(at(least), n).wins is None:
            least = _rounded_up(least * (1 + 2e-4))
    except TooWide as problem:
        raise BadInput(
            f"radius {radius:g} needs {LEVEL}={least:g} or more, and {problem}; give a smaller radius, in units of inputs from 0 "
            "to 1, or more votes"
        ) from None
    return least


def _rounded_up(level: float) -> float:
    """A noise level rounded up to four digits."""
    step = 10.0 ** (math.floor(math.log10(level)) - 3)
    return float(f"{math.ceil(level / step - 1e-9) * step:.4g}")
