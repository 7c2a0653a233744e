"""The fixed policy: n votes for every input, regardless of the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from vauban.bounds import clopper_pearson
from vauban.laws.law import Law
from vauban.laws.topk import radius_of_label
from vauban.stopping.policies import Decision, Policy, Rule, _Test


@dataclass(frozen=True)
class Fixed(Policy):
    """Casts all n votes; its rule is BinoCP for every k (`vauban.certificates.derive` has the other bounds)."""

    name: ClassVar[str] = "fixed"
    fixed: ClassVar[bool] = True

    def _rule(self, test: _Test) -> Rule:
        return FixedRule(test.law, test.n, test.alpha, test.k, test.deviation)


@dataclass(frozen=True)
class FixedRule(Rule):
    """One look at n votes; the radius comes from the label's Clopper-Pearson bound."""

    law: Law
    n: int
    alpha: float
    k: int = 1
    deviation: float = 0.0

    def next_look(self, votes: int) -> int | None:
        return self.n if votes < self.n else None

    @property
    def last_look(self) -> int | None:  # type: ignore[override]
        return self.n

    def decide(self, wins: ArrayLike) -> Decision:
        rows = len(np.asarray(wins))
        radius, going, looks = np.full(rows, np.nan), np.ones(rows, dtype=bool), np.zeros(rows, dtype=np.int64)
        for _, column, reached in self._columns(wins):
            lower = clopper_pearson.lower_bound(column[reached], self.n, self.alpha)
            radius[reached] = radius_of_label(self.law, lower - self.deviation, self.k)
            going, looks = ~reached, reached.astype(np.int64)
        return Decision(radius, going, looks)
