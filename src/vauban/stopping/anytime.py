"""The anytime policy: votes continue until interrupted, under an e-process that is valid at every number of votes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from vauban.bounds import eprocess
from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws.law import Law
from vauban.laws.topk import radius_of_label
from vauban.stopping.policies import Decision, Policy, Rule, _Test
from vauban.validation import MOST_VOTES

PER_DECADE = 20  # looks while the number of votes grows tenfold
FIRST = 10  # votes at the first look


@dataclass(frozen=True)
class Anytime(Policy):
    """Casts votes until the run is interrupted; the radius certified by then is kept."""

    name: ClassVar[str] = "anytime"
    endless: ClassVar[bool] = True

    def _rule(self, test: _Test) -> Rule:
        return AnytimeRule(test.law, test.alpha, test.k, test.deviation)

    def last_vote(self, n: Any) -> int:
        if n is not None:
            raise BadInput(f"n={n} with anytime, which has no last vote: leave n out, or use grid or target")
        return MOST_VOTES


@dataclass(frozen=True)
class AnytimeRule(Rule):
    """The e-process at ever more votes: its lower bounds hold at all looks simultaneously, so the largest is used."""

    law: Law
    alpha: float
    k: int = 1
    deviation: float = 0.0

    def next_look(self, votes: int) -> int | None:
        return _look_after(votes)

    def sure_votes(self, most: int) -> int:
        return _last_look(self, most) if np.isinf(self.law.max_distance) else 0

    def lower_bound(self, wins: ArrayLike, votes: ArrayLike) -> Floats:
        """A lower bound of the label's probability from each number of wins in so many votes; all hold simultaneously."""
        return eprocess.lower_bound(wins, votes, self.alpha)

    def radius(self, lower: Floats) -> Floats:
        """The radius certified by lower bounds of the label's probability; NaN where nothing is."""
        return radius_of_label(self.law, lower - self.deviation, self.k)

    def goes_on(self, wins: Sequence[int]) -> bool:
        """As `decide`, from the last look alone, for an input that earlier looks did not stop."""
        if np.isinf(self.law.max_distance):
            return True
        lower = self.lower_bound([wins[-1]], self.votes_at(len(wins)))
        return not self.radius(lower)[0] >= self.law.max_distance

    def decide(self, wins: ArrayLike) -> Decision:
        rows = len(np.asarray(wins))
        columns = list(self._columns(wins))
        looks = np.sum([reached for _, _, reached in columns], axis=0, dtype=np.int64) + np.zeros(rows, dtype=np.int64)
        best = np.zeros(rows)
        if columns:
            table = np.stack([np.where(reached, column, 0) for _, column, reached in columns], axis=1)
            best = self.lower_bound(table, np.array([votes for votes, _, _ in columns])).max(axis=1)
        radius = self.radius(best)
        return Decision(radius, ~(radius >= self.law.max_distance), looks)


@lru_cache(1024)
def _look_after(votes: int) -> int | None:
    """The first look after so many votes, the same under every law and alpha; asked for with every count."""
    i = max(0, int(PER_DECADE * np.log10(max(votes, FIRST) / FIRST)) - 1)
    while (look := round(FIRST * 10 ** (i / PER_DECADE))) <= votes:
        i += 1
    return look if look <= MOST_VOTES else None


@lru_cache(256)
def _last_look(rule: AnytimeRule, most: int) -> int:
    """The last look within this many votes; 0 if there is none."""
    return max(rule.looks_until(most), default=0)
