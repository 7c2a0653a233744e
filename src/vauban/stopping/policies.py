"""When an input has enough votes: policies as users write them, and the rules they become for a law, n, alpha and k.

A policy is read from text (`target:radius=0.5`). Its rule says at how many votes to look and what the label's cumulative wins
mean there: go on, a certified radius, or give up. Rules are pure functions of counts, so every decision can be replayed.

**From radius to probability.** A rule watches one count: the label's. If its probability p is large enough that
L(p, r) > U(1 - p, r) / k, it stays among the top k within r, whatever the rivals: k rivals share at most 1 - p, and the
least of them has at most a k-th of what 1 - p can become (BinoCP's bound, for every k; [Jia2020] Eq. 4). So a radius is a
threshold for p, and both tests reject "at most p". Views that deviate from the law in total variation move p by at most
that, which is added to the threshold. SimuEM and half bound rivals from above too: a claim would not be a boundary for one
count, and neither test is about that. For k > 1 a fixed n with SimuEM may therefore certify more. The label must be given or
chosen by votes that are not counted.

**Many radii need no correction.** A radius is claimed only when every smaller one of the grid has been. For a false claim
the test at the smallest radius that is false must reject: probability at most alpha.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
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
from vauban.laws.topk import probability_needed, radius_of_label
from vauban.specs import Parameter, Spec, choose, positive, read_params
from vauban.validation import check_alpha, check_deviation, is_whole

TESTS = ("group", "eprocess")
MOST_RADII = 500

_FEW = 2_000  # boundaries that a manifest shows
_TEST = Parameter(lambda text: choose("sequential test", text, TESTS), "group")


@dataclass(frozen=True)
class Decision:
    """What the looks so far say of m inputs.

    `radius` [m]: what is certified by now, NaN where nothing is. `going` [m]: where more votes are needed. `looks` [m]: how
    many looks were used; wins at later ones were not read.
    """

    radius: Floats
    going: NDArray[np.bool_]
    looks: NDArray[np.int64]

    @property
    def certified(self) -> NDArray[np.bool_]:
        """Where a radius has been certified [m]; it stays so even if the votes stop here."""
        return ~np.isnan(self.radius)

    @property
    def gave_up(self) -> NDArray[np.bool_]:
        """Where votes have stopped and nothing was certified [m]: abstained."""
        return ~self.going & ~self.certified


class Rule(ABC):
    """Where to look and what to decide there."""

    last_look: int | None = None
    """How many votes there can be at most; None where there is no last one."""

    @abstractmethod
    def next_look(self, votes: int) -> int | None:
        """The first look after this many votes; None if there is none."""

    @abstractmethod
    def decide(self, wins: ArrayLike) -> Decision:
        """Decide from `wins` [m, j], each row the label's cumulative wins at the first j looks, -1 where not cast yet."""

    def describe(self) -> dict[str, Any]:
        """What a manifest says of the rule, in plain values."""
        return {"test": "eprocess", "looks": None}

    def looks_until(self, votes: int) -> list[int]:
        """Every look at or before this many votes."""
        found: list[int] = []
        while (look := self.next_look(found[-1] if found else 0)) is not None and look <= votes:
            found.append(look)
        return found

    def votes_at(self, looks: int) -> int:
        """How many votes have been cast when so many looks have been taken."""
        votes = 0
        for _ in range(looks):
            look = self.next_look(votes)
            if look is None:
                raise BadInput(f"there are no {looks} looks: the last is at {votes:,} votes")
            votes = look
        return votes

    def goes_on(self, wins: Sequence[int]) -> bool:
        """Whether more votes are needed for one input after these cumulative wins, one number a look."""
        return bool(self.decide(np.array([wins], dtype=np.int64)).going[0])

    def _columns(self, wins: ArrayLike) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.bool_]]]:
        """For each look its votes, the wins [m] there and which rows have got that far; an impossible row is refused."""
        table = np.asarray(wins)
        if table.ndim != 2 or table.dtype.kind not in "iu":
            raise BadInput(
                f"wins of shape {table.shape}, {table.dtype}: whole numbers, a row per input, a column per look"
            )
        before, votes, there = np.zeros(len(table), dtype=np.int64), 0, np.ones(len(table), dtype=bool)
        for column in table.astype(np.int64).T:
            look = self.next_look(votes)
            if look is None:
                raise BadInput(f"wins at {table.shape[1]} looks are given, but there is none after {votes:,} votes")
            there = there & (column >= 0)
            new = np.where(there, column - before, 0)
            if (new < 0).any() or (new > look - votes).any():
                row = int(np.flatnonzero((new < 0) | (new > look - votes))[0])
                raise BadInput(
                    f"input {row} has {column[row]} wins at {look} votes and {before[row]} at {votes}: wins are cumulative"
                )
            yield look, column, there
            before, votes = np.where(there, column, before), look


@dataclass(frozen=True, eq=False)
class GridRule(Rule):
    """Radii claimed in rising order, each by its own test on the same votes.

    `radii` [g] rising; `p` [g]: the probability each is a test against; `looks` [J]; `least` [g, J]: wins from which a radius
    passes its test; `futile` [g, J]: wins up to which going on for it is hopeless. `test`: "group" or "eprocess".
    """

    radii: tuple[float, ...]
    p: tuple[float, ...]
    looks: tuple[int, ...]
    least: NDArray[np.int64]
    futile: NDArray[np.int64]
    test: str = "group"

    def next_look(self, votes: int) -> int | None:
        i = bisect_right(self.looks, votes)
        return self.looks[i] if i < len(self.looks) else None

    @property
    def last_look(self) -> int | None:  # type: ignore[override]
        return self.looks[-1]

    def describe(self) -> dict[str, Any]:
        """Boundaries [radii, looks] are given by their hash where they are more than a page."""
        said = {"test": self.test, "looks": list(self.looks), "radii": list(self.radii)}
        if self.test == "group":
            said["spending"] = f"early={group_sequential.EARLY},power={group_sequential.POWER}"
        boundaries = self.least.tolist()
        text = json.dumps(boundaries, separators=(",", ":"))
        return said | {
            "boundaries": boundaries if self.least.size <= _FEW else hashlib.sha256(text.encode()).hexdigest()
        }

    def goes_on(self, wins: Sequence[int]) -> bool:
        """As `decide` for an input that has not been decided before its last look, in one step."""
        j = len(wins) - 1
        passed: NDArray[np.bool_] = np.any(np.asarray(wins) >= self.least[:, : j + 1], axis=1)
        reached = len(passed) if passed.all() else int(passed.argmin())
        return reached < len(passed) and j < len(self.looks) - 1 and bool(wins[j] > self.futile[reached, j])

    def decide(self, wins: ArrayLike) -> Decision:
        rows = len(np.asarray(wins))
        passed = np.zeros((rows, len(self.radii)), dtype=bool)
        going, looks = np.ones(rows, dtype=bool), np.zeros(rows, dtype=np.int64)
        for j, (_, column, there) in enumerate(self._columns(wins)):
            (now,) = np.nonzero(going & there)
            passed[now] |= column[now, None] >= self.least[:, j]
            reached = _leading(passed[now])
            goal = np.minimum(reached, len(self.radii) - 1)
            over = (reached == len(self.radii)) | (column[now] <= self.futile[goal, j]) | (j == len(self.looks) - 1)
            looks[now] += 1
            going[now[over]] = False
        return Decision(np.array([np.nan, *self.radii])[_leading(passed)], going, looks)


def _leading(passed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many of the first columns are all true [m]."""
    return np.cumprod(passed, axis=1, dtype=np.int64).sum(axis=1)


POLICIES: dict[str, type[Policy]] = {}


class Policy(ABC):
    """When to stop; subclasses are frozen dataclasses whose fields are the parameters of the text form."""

    name: ClassVar[str]
    parameters: ClassVar[dict[str, Parameter]] = {}
    fixed: ClassVar[bool] = False
    endless: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        POLICIES[cls.name] = cls

    def rule(self, law: Law, *, n: int | None, alpha: float, k: int = 1, deviation: float = 0.0) -> Rule:
        """The rule for at most n votes under this law; a radius that n votes can never certify is refused.

        `deviation`: how far, in total variation per view, the sampled noise may be from the law.
        """
        if not is_whole(k) or k < 1:
            raise BadInput(f"k={k}: a whole number, 1 or more, is needed")
        last = self.last_vote(n)
        return self._rule(_Test(law, last, check_alpha(alpha, below=0.5), int(k), check_deviation(deviation)))

    @abstractmethod
    def _rule(self, test: _Test) -> Rule:
        """The rule under settings that have been checked."""

    def last_vote(self, n: Any) -> int:
        """The largest number of votes an input can get."""
        if not is_whole(n) or n < 1:
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


def policy(text: str | Spec) -> Policy:
    """The policy behind a text: fixed, target:radius=0.5, grid:step=0.25 or anytime.

    >>> policy("target:radius=0.5")
    Target(radius=0.5, test='group')
    """
    spec = Spec.parse(text) if isinstance(text, str) else text
    return POLICIES[choose("way to stop", spec.name, POLICIES)].from_spec(spec)


@dataclass(frozen=True)
class Target(Policy):
    """Is the label certified at this radius, yes or no."""

    radius: float
    test: str = "group"
    name: ClassVar[str] = "target"
    parameters: ClassVar[dict[str, Parameter]] = {
        "radius": Parameter(positive, required=True, example="0.5"),
        "test": _TEST,
    }

    def _rule(self, test: _Test) -> Rule:
        return test.grid_rule([_radius("radius", self.radius, test.law)], self.test)


@dataclass(frozen=True)
class Grid(Policy):
    """The largest certified radius among the multiples of a step (0 among them where radii are counted)."""

    step: float
    test: str = "group"
    name: ClassVar[str] = "grid"
    parameters: ClassVar[dict[str, Parameter]] = {
        "step": Parameter(positive, required=True, example="0.25"),
        "test": _TEST,
    }

    def _rule(self, test: _Test) -> Rule:
        step = Fraction(repr(_radius("step", self.step, test.law)))
        first = 0 if test.law.threat.integer else 1
        points = int(Fraction(test.farthest) / step)
        if points - first + 1 > MOST_RADII:
            least = test.farthest / (MOST_RADII - 1)
            raise BadInput(
                f"step={self.step:g} makes {float(points):,.10g} radii up to {test.farthest:g}, the largest that "
                f"n={test.n:,} can certify: at most {MOST_RADII} make sense, so "
                f"step={math.ceil(least) if first == 0 else least:.3g} or more"
            )
        return test.grid_rule([float(i * step) for i in range(first, max(points, first) + 1)], self.test)


@dataclass(frozen=True)
class _Test:
    """What the tests at all radii of one rule share."""

    law: Law
    n: int
    alpha: float
    k: int
    deviation: float

    @property
    def farthest(self) -> float:
        """The largest radius that n votes can certify, all of them won; 0 if none."""
        p = clopper_pearson.lower_bound(np.array([self.n]), self.n, self.alpha)
        return float(np.nan_to_num(radius_of_label(self.law, p - self.deviation, self.k))[0])

    def grid_rule(self, radii: list[float], test: str) -> GridRule:
        """The tests at these radii, as far as n votes reach; the first must be within reach."""
        choose("sequential test", test, TESTS)
        p = np.nextafter(probability_needed(self.law, radii, self.k) + self.deviation, 2.0)
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
        return GridRule(tuple(radii[:g]), tuple(float(q) for q in p[:g]), looks, np.stack(tests), hopeless, test)

    def _boundaries(self, p: float, looks: tuple[int, ...], test: str) -> NDArray[np.int64]:
        if test == "eprocess":
            return eprocess.boundaries(p, looks, self.alpha)
        return group_sequential.boundaries(p, looks, self.alpha, group_sequential.spending(looks, self.alpha))

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
