"""What cumulative wins mean at each look: go on, a certified radius, or give up. Pure functions, so replay is possible."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vauban.bounds import clopper_pearson, eprocess
from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws.law import Law
from vauban.laws.topk import radius as certified_radius

MOST_VOTES = 10**12
PER_DECADE = 20
FIRST = 10


@dataclass(frozen=True)
class Decision:
    """What the looks so far say of m inputs.

    `radius` [m]: what is certified by now, NaN where nothing is. `going` [m]: where more votes are wanted. `looks` [m]: how
    many looks were used; wins at later ones were not read.
    """

    radius: Floats
    going: NDArray[np.bool_]
    looks: NDArray[np.int64]

    @property
    def certified(self) -> NDArray[np.bool_]:
        """Where a radius has been earned [m]; it is kept even if the votes stop here."""
        return ~np.isnan(self.radius)

    @property
    def gave_up(self) -> NDArray[np.bool_]:
        """Where it is over and nothing was earned [m]: abstained."""
        return ~self.going & ~self.certified


class Rule(ABC):
    """Where to look and what to decide there."""

    @abstractmethod
    def next_look(self, votes: int) -> int | None:
        """The first look after this many votes; None if there is none."""

    @abstractmethod
    def decide(self, wins: ArrayLike) -> Decision:
        """Decide from `wins` [m, j], each row the label's cumulative wins at the first j looks, -1 where not cast yet."""

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
        """Whether more votes are wanted for one input after these cumulative wins, one number a look."""
        return bool(self.decide(np.array([wins], dtype=np.int64)).going[0])

    @property
    def last_look(self) -> int | None:
        """How many votes there can be at most; None where there is no last one."""
        return None

    def _columns(self, wins: ArrayLike) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.bool_]]]:
        """For each look its votes, the wins [m] there and which rows have got that far; a row no vote could make is refused."""
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


@dataclass(frozen=True)
class FixedRule(Rule):
    """All n votes, then the radius of the Clopper-Pearson bound (BinoCP for every k)."""

    law: Law
    n: int
    alpha: float
    k: int = 1
    deviation: float = 0.0

    def next_look(self, votes: int) -> int | None:
        return self.n if votes < self.n else None

    @property
    def last_look(self) -> int | None:
        return self.n

    def decide(self, wins: ArrayLike) -> Decision:
        rows = len(np.asarray(wins))
        radius, going, looks = np.full(rows, np.nan), np.ones(rows, dtype=bool), np.zeros(rows, dtype=np.int64)
        for _, column, there in self._columns(wins):
            lower = clopper_pearson.lower_bound(column[there], self.n, self.alpha)
            radius[there] = radius_of(self.law, lower - self.deviation, self.k)
            going, looks = ~there, there.astype(np.int64)
        return Decision(radius, going, looks)


@dataclass(frozen=True, eq=False)
class GridRule(Rule):
    """Radii claimed in rising order, each by its own test on the same votes.

    `radii` [g] rising; `p` [g]: the probability each is a test against; `looks` [J]; `least` [g, J]: wins from which a radius
    passes its test; `futile` [g, J]: wins up to which going on for it is hopeless.
    """

    radii: tuple[float, ...]
    p: tuple[float, ...]
    looks: tuple[int, ...]
    least: NDArray[np.int64]
    futile: NDArray[np.int64]

    def next_look(self, votes: int) -> int | None:
        i = bisect_right(self.looks, votes)
        return self.looks[i] if i < len(self.looks) else None

    @property
    def last_look(self) -> int | None:
        return self.looks[-1]

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


@dataclass(frozen=True)
class AnytimeRule(Rule):
    """The e-process at ever more votes: the largest lower bound seen so far holds at all times at once."""

    law: Law
    alpha: float
    k: int = 1
    deviation: float = 0.0

    def next_look(self, votes: int) -> int | None:
        i = max(0, int(PER_DECADE * np.log10(max(votes, FIRST) / FIRST)) - 1)
        while (look := round(FIRST * 10 ** (i / PER_DECADE))) <= votes:
            i += 1
        return look if look <= MOST_VOTES else None

    def goes_on(self, wins: Sequence[int]) -> bool:
        """As `decide`, which an earlier bound would have stopped before, from the last look alone."""
        if np.isinf(self.law.farthest):
            return True
        lower = eprocess.lower_bound([wins[-1]], self.votes_at(len(wins)), self.alpha)
        return not radius_of(self.law, lower - self.deviation, self.k)[0] >= self.law.farthest

    def decide(self, wins: ArrayLike) -> Decision:
        rows = len(np.asarray(wins))
        best, looks = np.zeros(rows), np.zeros(rows, dtype=np.int64)
        for votes, column, there in self._columns(wins):
            best[there] = np.maximum(best[there], eprocess.lower_bound(column[there], votes, self.alpha))
            looks += there
        radius = radius_of(self.law, best - self.deviation, self.k)
        return Decision(radius, ~(radius >= self.law.farthest), looks)


def radius_of(law: Law, p_lower: Floats, k: int) -> Floats:
    """The certified radius [m] when nothing but a lower bound [m] of the label's probability is known."""
    p = np.maximum(p_lower, 0.0)
    return certified_radius(law, p, np.repeat((1.0 - p)[:, None], k, axis=1))


def _leading(passed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many of the first columns are all true [m]."""
    return np.cumprod(passed, axis=1, dtype=np.int64).sum(axis=1)
