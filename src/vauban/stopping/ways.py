"""When enough votes are cast: at a number, at a radius, on a grid of radii, or whenever somebody interrupts.

A `Stop` is the wish (`target:radius=0.5`); with a law, n, alpha and k it makes a `Rule`, which says at how many votes to look
and what cumulative wins mean there.

**From radius to probability.** One count is watched: the label's. If its probability p is large enough that
L(p, r) > U(1 - p, r) / k, it stays among the top k within r, whatever the rivals: k rivals share at most 1 - p, and the
least of them has at most a k-th of what 1 - p can become (BinoCP's bound, for every k; [Jia2020] Eq. 4). So a radius is a
threshold for p, and both tests reject "at most p". Views that deviate from the law in total variation move p by at most
that, which is added to the threshold.

SimuEM and half are not offered here. They bound rivals from above too: what the label needs would depend on other counts, a
claim would not be a boundary for one count, and neither the dynamic programme nor the e-process is about that. For k > 1 a
fixed n with SimuEM may therefore certify more. The label must be given or chosen by votes that are not counted.

**Many radii need no correction.** A radius is claimed only when every smaller one of the grid has been. For a false claim
the test at the smallest radius that is false must reject: probability at most alpha.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.bounds import clopper_pearson, eprocess, group_sequential
from vauban.bounds.clopper_pearson import Floats
from vauban.bounds.futility import futility
from vauban.errors import BadInput
from vauban.laws.law import Law
from vauban.laws.topk import stays
from vauban.specs import Parameter, Spec, choose, positive, read_params
from vauban.stopping.rules import MOST_VOTES, AnytimeRule, FixedRule, GridRule, Rule, radius_of

TESTS = ("group", "eprocess")
MOST_RADII = 500

_BELOW_ONE = 1 - 2.0**-53
_HALVINGS = 64
_TEST = Parameter(lambda text: choose("sequential test", text, TESTS), "group")


class Stop(ABC):
    """A wish for when to stop; subclasses are frozen dataclasses whose fields are the parameters of the text form."""

    name: ClassVar[str]
    parameters: ClassVar[dict[str, Parameter]] = {}

    def rule(
        self, law: Law, *, n: int | None, alpha: float, k: int = 1, deviation: float = 0.0, cache: bool = True
    ) -> Rule:
        """The rule for at most n votes under this law; a radius that n votes can never certify is refused.

        `deviation`: how far, in total variation per view, the sampled noise may be from the law. `cache`: whether boundaries
        may be read from disk; who checks somebody else's claims says False.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise BadInput(f"k={k}: a whole number, 1 or more, is needed")
        if not 0 < alpha < 0.5:
            raise BadInput(f"alpha={alpha}: a probability between 0 and 1/2 is needed, for example 0.001")
        if not 0 <= deviation < 1:
            raise BadInput(f"deviation={deviation}: a total variation is at least 0 and below 1")
        return self._rule(Settings(law, self._last_vote(n), alpha, int(k), deviation, cache))

    @abstractmethod
    def _rule(self, settings: Settings) -> Rule:
        """The rule under settings that have been checked."""

    def _last_vote(self, n: Any) -> int:
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise BadInput(f"n={n!r}: the largest number of votes per input, a whole number, is needed")
        return int(n)

    @property
    def spec(self) -> Spec:
        """The text form that rebuilds it."""
        values = {key: getattr(self, key) for key in self.parameters}
        shown = {k: v for k, v in values.items() if self.parameters[k].required or v != self.parameters[k].default}
        return Spec(self.name, {k: repr(v) if isinstance(v, float) else str(v) for k, v in shown.items()})

    @classmethod
    def from_spec(cls, spec: Spec) -> Self:
        """Build it from its text form."""
        return cls(**read_params(spec, cls.parameters))


@dataclass(frozen=True)
class Fixed(Stop):
    """All n votes, whatever they say; BinoCP for every k (`vauban.claims.derive` has the other bounds)."""

    name: ClassVar[str] = "fixed"

    def _rule(self, settings: Settings) -> Rule:
        return FixedRule(settings.law, settings.n, settings.alpha, settings.k, settings.deviation)


@dataclass(frozen=True)
class Target(Stop):
    """Is the label certified at this radius, yes or no."""

    radius: float
    test: str = "group"
    name: ClassVar[str] = "target"
    parameters: ClassVar[dict[str, Parameter]] = {
        "radius": Parameter(positive, required=True, example="0.5"),
        "test": _TEST,
    }

    def _rule(self, settings: Settings) -> Rule:
        return settings.grid_rule([_radius("radius", self.radius, settings.law)], self.test)


@dataclass(frozen=True)
class Grid(Stop):
    """The largest certified radius among the multiples of a step (0 among them where radii are counted)."""

    step: float
    test: str = "group"
    name: ClassVar[str] = "grid"
    parameters: ClassVar[dict[str, Parameter]] = {
        "step": Parameter(positive, required=True, example="0.25"),
        "test": _TEST,
    }

    def _rule(self, settings: Settings) -> Rule:
        step = Fraction(repr(_radius("step", self.step, settings.law)))
        first = 0 if settings.law.threat.integer else 1
        points = int(Fraction(settings.farthest) / step)
        if points - first + 1 > MOST_RADII:
            least = settings.farthest / (MOST_RADII - 1)
            raise BadInput(
                f"step={self.step:g} makes {float(points):,.10g} radii up to {settings.farthest:g}, the largest that "
                f"n={settings.n:,} can certify: at most {MOST_RADII} make sense, so "
                f"step={math.ceil(least) if first == 0 else least:.3g} or more"
            )
        return settings.grid_rule([float(i * step) for i in range(first, max(points, first) + 1)], self.test)


@dataclass(frozen=True)
class Anytime(Stop):
    """No last vote: the radius grows until somebody interrupts, and what is earned by then is kept."""

    name: ClassVar[str] = "anytime"

    def _rule(self, settings: Settings) -> Rule:
        return AnytimeRule(settings.law, settings.alpha, settings.k, settings.deviation)

    def _last_vote(self, n: Any) -> int:
        if n is not None:
            raise BadInput(f"n={n} with anytime, which has no last vote: leave n out, or use grid or target")
        return MOST_VOTES


STOPS: dict[str, type[Stop]] = {stop.name: stop for stop in (Fixed, Target, Grid, Anytime)}


def stop(text: str | Spec) -> Stop:
    """The wish behind a text: fixed, target:radius=0.5, grid:step=0.25 or anytime.

    >>> stop("target:radius=0.5")
    Target(radius=0.5, test='group')
    """
    spec = Spec.parse(text) if isinstance(text, str) else text
    return STOPS[choose("way to stop", spec.name, STOPS)].from_spec(spec)


def needed(law: Law, radii: ArrayLike, k: int = 1) -> Floats:
    """For each radius [g] a probability, rounded up, that keeps a label among the top k within it; NaN where none below 1 does.

    The least p with L(p, r) > U(1 - p, r) / k, by bisection: L grows with p and U(1 - p) falls. A returned p passes the test
    itself, with its margin for rounding errors, and so does every larger one.

    >>> from vauban.laws import law
    >>> needed(law("gaussian:sigma=0.25"), [0.25, 0.5]).round(5).tolist()
    [0.84134, 0.97725]
    """
    r = np.asarray(radii, dtype=float)
    inside = np.minimum(r, law.farthest)

    def enough(p: Floats) -> NDArray[np.bool_]:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            held: NDArray[np.bool_] = stays(law, p, np.repeat((1.0 - p)[:, None], k, axis=1), inside)
        return held

    low, high = np.zeros(len(r)), np.full(len(r), _BELOW_ONE)
    possible = enough(high) & (r <= law.farthest)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        good = enough(middle)
        low, high = np.where(good, low, middle), np.where(good, middle, high)
    return np.where(possible, high, np.nan)


@dataclass(frozen=True)
class Settings:
    """What the tests at all radii of one rule share."""

    law: Law
    n: int
    alpha: float
    k: int
    deviation: float
    cache: bool

    @property
    def farthest(self) -> float:
        """The largest radius that n votes can certify, all of them won; 0 if none."""
        p = clopper_pearson.lower_bound(np.array([self.n]), self.n, self.alpha)
        return float(np.nan_to_num(radius_of(self.law, p - self.deviation, self.k))[0])

    def grid_rule(self, radii: list[float], test: str) -> GridRule:
        """The tests at these radii, as far as n votes reach; the first must be within reach."""
        choose("sequential test", test, TESTS)
        p = np.nextafter(needed(self.law, radii, self.k) + self.deviation, 2.0)
        looks = group_sequential.geometric_looks(self.n)
        tests = []
        for threshold in p:
            least = self._boundaries(float(threshold), looks, test) if threshold < 1 else None
            if least is None or least[-1] > self.n:
                break
            tests.append(least)
        if not tests:
            raise BadInput(self._out_of_reach(radii[0], float(p[0]), test))
        g = len(tests)
        hopeless = np.stack([futility(looks, int(least[-1])) for least in tests])
        return GridRule(tuple(radii[:g]), tuple(float(q) for q in p[:g]), looks, np.stack(tests), hopeless)

    def _boundaries(self, p: float, looks: tuple[int, ...], test: str) -> NDArray[np.int64]:
        if test == "eprocess":
            return eprocess.boundaries(p, looks, self.alpha)
        spends = group_sequential.spending(looks, self.alpha)
        return group_sequential.boundaries(p, looks, self.alpha, spends, cache=self.cache)

    def _out_of_reach(self, radius: float, p: float, test: str) -> str:
        beginning = (
            f"radius {radius:g} is out of reach of n={self.n:,} votes at alpha={self.alpha:g} under {self.law.spec}"
        )
        if not p < 1:
            return f"{beginning}, and of any number of votes: ask for a smaller one"
        least = (eprocess if test == "eprocess" else group_sequential).least_votes(p, self.alpha)
        return f"{beginning}: n={least:,} could certify it; ask for that many, or for a smaller radius"


def _radius(name: str, value: float, law: Law) -> float:
    """The value, refused where it cannot be a radius under this threat."""
    if not 0 < value < math.inf:
        raise BadInput(f"{name}={value}: a finite number above zero is needed")
    if law.threat.integer and value != int(value):
        raise BadInput(f"{name}={value:g}: {law.threat.metric} is counted, so a whole number is needed")
    return float(value)
