"""Stopping policies as users write them, and the rules they become for a law, n, alpha and k.

A policy is read from text (`target:radius=0.5`). Its rule says at how many votes to look and what to decide there from the
label's cumulative wins: continue, certify a radius, or give up. Rules are pure functions of counts, so every decision can be
replayed.

**From radius to probability.** A rule uses one count: the label's. If its probability p is large enough that
L(p, r) > U(1 - p, r) / k, it stays among the top k within r, whatever the rivals: k rivals share at most 1 - p, and the
least of them has at most a k-th of what 1 - p can become (BinoCP's bound, for every k; [Jia2020] Eq. 4). So a radius is a
threshold for p, and both tests reject "at most p". Views that deviate from the law in total variation move p by at most
the deviation, which is added to the threshold. SimuEM and half also bound rivals from above: their claims depend on several
counts, and both tests are for one. For k > 1 a fixed n with SimuEM may therefore certify more. The label must be given or
chosen by votes that are not counted.

**Many radii need no correction.** A radius is claimed only after every smaller radius of the grid. A false claim requires
that the test at the smallest false radius rejects, which has probability at most alpha.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
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
from vauban.votes import CountRequest, CountRequests, KeptCounts

TESTS = ("group", "eprocess")
MAX_RADII = 500

_MAX_LISTED = 2_000  # boundaries that a manifest lists; more are hashed
_TEST = Parameter(lambda text: choose("sequential test", text, TESTS), "group")


@dataclass(frozen=True)
class Decision:
    """The state of m inputs after the looks so far.

    `radius` [m]: the certified radius, NaN where nothing is certified. `going` [m]: whether more votes are needed. `looks` [m]:
    how many looks were used; wins at later looks were not read.
    """

    radius: Floats
    going: NDArray[np.bool_]
    looks: NDArray[np.int64]

    @property
    def certified(self) -> NDArray[np.bool_]:
        """Where a radius is certified [m]; it stays certified even if voting stops here."""
        return ~np.isnan(self.radius)

    @property
    def gave_up(self) -> NDArray[np.bool_]:
        """Where voting stopped and nothing is certified [m]: abstained."""
        return ~self.going & ~self.certified


class Rule(ABC):
    """At how many votes to look, and what to decide there."""

    last_look: int | None = None
    """The largest number of votes; None if there is no limit."""

    @abstractmethod
    def next_look(self, votes: int) -> int | None:
        """The first look after this many votes; None if there is none."""

    @abstractmethod
    def decide(self, wins: ArrayLike) -> Decision:
        """Decide from `wins` [m, j], each row the label's cumulative wins at the first j looks, -1 where not cast yet."""

    def describe(self) -> dict[str, Any]:
        """What a manifest stores about the rule, in plain values."""
        return {"test": "eprocess", "looks": None}

    def looks_until(self, votes: int) -> list[int]:
        """Every look at or before this many votes."""
        found: list[int] = []
        while (look := self.next_look(found[-1] if found else 0)) is not None and look <= votes:
            found.append(look)
        return found

    def sure_votes(self, most: int) -> int:
        """Votes up to the last look within `most` that are needed regardless of the outcome, as far as that is known."""
        return 0

    def votes_at(self, looks: int) -> int:
        """The number of votes at look number `looks`, counted from 1; 0 for none."""
        votes = 0
        for _ in range(looks):
            look = self.next_look(votes)
            if look is None:
                raise BadInput(f"there are no {looks} looks: the last is at {votes:,} votes")
            votes = look
        return votes

    def goes_on(self, wins: Sequence[int]) -> bool:
        """Whether one input needs more votes after these cumulative wins, one number per look."""
        return bool(self.decide(np.array([wins], dtype=np.int64)).going[0])

    def _columns(self, wins: ArrayLike) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.bool_]]]:
        """For each look: its votes, the wins [m] at it, and which rows [m] have reached it; refuses impossible wins."""
        table = np.asarray(wins)
        if table.ndim != 2 or table.dtype.kind not in "iu":
            raise BadInput(
                f"wins of shape {table.shape}, {table.dtype}: whole numbers, a row per input, a column per look"
            )
        before, votes, reached = np.zeros(len(table), dtype=np.int64), 0, np.ones(len(table), dtype=bool)
        for column in table.astype(np.int64).T:
            look = self.next_look(votes)
            if look is None:
                raise BadInput(f"wins at {table.shape[1]} looks are given, but there is none after {votes:,} votes")
            reached = reached & (column >= 0)
            new = np.where(reached, column - before, 0)
            if (new < 0).any() or (new > look - votes).any():
                row = int(np.flatnonzero((new < 0) | (new > look - votes))[0])
                raise BadInput(
                    f"input {row} has {column[row]} wins at {look} votes and {before[row]} at {votes}: wins are cumulative"
                )
            yield look, column, reached
            before, votes = np.where(reached, column, before), look


@dataclass(frozen=True, eq=False)
class GridRule(Rule):
    """Radii claimed in ascending order, each by its own test on the same votes.

    `radii` [g], ascending; `p` [g]: each test rejects "the label's probability is at most p"; `looks` [J]; `least` [g, J]: the
    least wins with which a radius passes its test; `futile` [g, J]: the most wins at which more votes are not worth casting for
    it. `test`: "group" or "eprocess".
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
        """As in `Rule`; boundaries [radii, looks] are replaced by their hash if there are more than _MAX_LISTED."""
        fields = {"test": self.test, "looks": list(self.looks), "radii": list(self.radii)}
        if self.test == "group":
            fields["spending"] = f"early={group_sequential.EARLY},power={group_sequential.POWER}"
        boundaries = self.least.tolist()
        text = json.dumps(boundaries, separators=(",", ":"))
        return fields | {
            "boundaries": boundaries if self.least.size <= _MAX_LISTED else hashlib.sha256(text.encode()).hexdigest()
        }

    def goes_on(self, wins: Sequence[int]) -> bool:
        """As `decide`, in one step, for an input that was undecided before its last look."""
        j = len(wins) - 1
        passed: NDArray[np.bool_] = np.any(np.asarray(wins) >= self.least[:, : j + 1], axis=1)
        claimed = len(passed) if passed.all() else int(passed.argmin())
        return claimed < len(passed) and j < len(self.looks) - 1 and bool(wins[j] > self.futile[claimed, j])

    def decide(self, wins: ArrayLike) -> Decision:
        rows = len(np.asarray(wins))
        passed = np.zeros((rows, len(self.radii)), dtype=bool)
        going, looks = np.ones(rows, dtype=bool), np.zeros(rows, dtype=np.int64)
        for j, (_, column, reached) in enumerate(self._columns(wins)):
            (now,) = np.nonzero(going & reached)
            passed[now] |= column[now, None] >= self.least[:, j]
            claimed = _leading(passed[now])
            goal = np.minimum(claimed, len(self.radii) - 1)
            over = (claimed == len(self.radii)) | (column[now] <= self.futile[goal, j]) | (j == len(self.looks) - 1)
            looks[now] += 1
            going[now[over]] = False
        return Decision(np.array([np.nan, *self.radii])[_leading(passed)], going, looks)


def _leading(passed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many leading columns are True in each row [m]."""
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
        """The rule for at most n votes under this law; radii that n votes can never certify are refused.

        `deviation`: how far, in total variation per view, the sampled noise may be from the law.
        """
        if not is_whole(k) or k < 1:
            raise BadInput(f"k={k}: a whole number, 1 or more, is needed")
        last = self.last_vote(n)
        return self._rule(_Test(law, last, check_alpha(alpha, below=0.5), int(k), check_deviation(deviation)))

    @abstractmethod
    def _rule(self, test: _Test) -> Rule:
        """The rule for checked settings."""

    def last_vote(self, n: Any) -> int:
        """The largest number of votes an input can get."""
        if not is_whole(n) or n < 1:
            raise BadInput(f"n={n!r}: the largest number of votes per input, a whole number, is needed")
        return int(n)

    @property
    def spec(self) -> Spec:
        """The text form that rebuilds this policy."""
        values = {key: getattr(self, key) for key in self.parameters}
        shown = {k: v for k, v in values.items() if self.parameters[k].required or v != self.parameters[k].default}
        return Spec(self.name, {k: repr(v) if isinstance(v, float) else str(v) for k, v in shown.items()})

    @classmethod
    def from_spec(cls, spec: Spec) -> Self:
        """Build the policy from its text form."""
        return cls(**read_params(spec, cls.parameters))


def policy(text: str | Spec) -> Policy:
    """The policy of a text: fixed, target:radius=0.5, grid:step=0.25 or anytime.

    >>> policy("target:radius=0.5")
    Target(radius=0.5, test='group')
    """
    spec = text if isinstance(text, Spec) else Spec.parse(text)
    return POLICIES[choose("way to stop", spec.name, POLICIES)].from_spec(spec)


@dataclass(frozen=True)
class Target(Policy):
    """Decides whether the label is certified at one radius."""

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
    """The largest certified radius among the multiples of a step (0 included if radii are integers)."""

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
        points = int(Fraction(test.max_radius) / step)
        if points - first + 1 > MAX_RADII:
            from vauban.report.numbers import rounded_up, short_radius

            least = test.max_radius / (MAX_RADII - 1)
            raise BadInput(
                f"step={self.step} makes {float(points):,.10g} radii up to {short_radius(test.max_radius)}, the largest that "
                f"n={test.n:,} can certify: at most {MAX_RADII} are supported, so "
                f"take step={math.ceil(least) if first == 0 else rounded_up(least, 3)} or more"
            )
        return test.grid_rule([float(i * step) for i in range(first, max(points, first) + 1)], self.test)


@dataclass(frozen=True)
class _Test:
    """The settings shared by the tests at all radii of one rule."""

    law: Law
    n: int
    alpha: float
    k: int
    deviation: float

    @property
    def max_radius(self) -> float:
        """The radius certified if all n votes are for the label: the largest possible; 0 if none."""
        p = clopper_pearson.lower_bound(np.array([self.n]), self.n, self.alpha)
        return float(np.nan_to_num(radius_of_label(self.law, p - self.deviation, self.k))[0])

    def grid_rule(self, radii: list[float], test: str) -> GridRule:
        """The rule of the tests at these radii, up to the largest that n votes can certify; refused if the first is too large."""
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
        futile = np.stack([futility(looks, int(least[-1])) for least in tests])
        return GridRule(tuple(radii[:g]), tuple(float(q) for q in p[:g]), looks, np.stack(tests), futile, test)

    def _boundaries(self, p: float, looks: tuple[int, ...], test: str) -> NDArray[np.int64]:
        if test == "eprocess":
            return eprocess.boundaries(p, looks, self.alpha)
        return group_sequential.boundaries(p, looks, self.alpha, group_sequential.spending(looks, self.alpha))

    def _out_of_reach(self, radius: float, p: float, test: str) -> str:
        from vauban.report.numbers import asked_radius

        asked = asked_radius(radius)
        prefix = f"radius {asked} is out of reach of n={self.n:,} votes at alpha={self.alpha} under {self.law.spec}"
        if not p < 1:
            return f"{prefix}, and of any number of votes: ask for a smaller one"
        least = (eprocess if test == "eprocess" else group_sequential).least_votes(p, self.alpha)
        return f"{prefix}: n={least:,} could certify it; ask for that many, or for a smaller radius"


def refuse_other_claims(own: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """What a stopped run may still claim: what its votes were stopped for, with its `own` settings, and nothing else.

    When to stop depended on k, alpha and radius; under other ones the same votes are no sample of a size fixed beforehand.
    """
    others = [f"{key}={value}" for key, value in asked.items() if value != own[key]]
    if others:
        raise BadInput(
            f"{', '.join(others)}: this run stopped each input by {own['stop']} at k={own['k']}, alpha={own['alpha']:g}, and "
            "votes stopped for one claim cannot prove another; certify again with these settings, or cast a fixed number of "
            "votes (--stop fixed), from which any claim can be derived"
        )


def _radius(name: str, value: float, law: Law) -> float:
    """The value; refused if it cannot be a radius under this threat."""
    if not 0 < value < math.inf:
        raise BadInput(f"{name}={value}: a finite number above zero is needed")
    if law.threat.integer and value != int(value):
        raise BadInput(f"{name}={value:g}: {law.threat.metric} is counted, so a whole number is needed")
    return float(value)


def looks_up_to(n: int) -> list[int]:
    """Sample sizes at which counts are kept: 100, 200, 500, 1,000, … and n. Claims at a smaller n then need no new votes.

    >>> looks_up_to(1_500)
    [100, 200, 500, 1000, 1500]
    """
    steps = [digit * 10**power for power in range(2, 19) for digit in (1, 2, 5)]
    return [look for look in steps if look < n] + [n]


def until_decided(rule: Rule, label: int | None, n0: int, kept: KeptCounts) -> CountRequests:
    """Requests for counts at the rule's looks until it has decided about `label`; None lets n0 uncounted votes choose it."""
    if label is None:
        chosen = yield CountRequest("choose", n0, most=n0)
        label = int(chosen.argmax())
    wins = [int(counts[label]) for counts in kept.looks]
    after = votes = rule.votes_at(len(wins))
    before = kept.looks[-1] if wins else None
    while not wins or rule.goes_on(wins):
        look = rule.next_look(votes)
        if look is None:
            return
        counts = yield CountRequest("count", look, most=rule.last_look, after=after, before=before)
        wins.append(int(counts[label]))
        votes = look
