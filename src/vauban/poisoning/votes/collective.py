"""Claims about one poisoning against many inputs at once, from the votes of an ensemble; no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vauban.errors import BadInput
from vauban.laws.poisoning.collective import best_weights, collective_scores, weighed
from vauban.laws.poisoning.programme import solved
from vauban.poisoning.votes.certificates import PoisoningCertificates
from vauban.poisoning.votes.ensemble_votes import EnsembleVotes
from vauban.specs import choose

OF = ("answers", "correct")
PROOFS = {
    "one by one": "the count of labels whose own radius is smaller, which bounds what any one poisoning changes",
    "weights": "a weighted sum over all inputs, evaluated in integers",
    "solver": "the bound that the solver HiGHS proved in floating point, with a margin for its tolerances",
}


@dataclass(frozen=True)
class CollectiveClaim:
    """How many of `claimed` labels one and the same poisoning of at most `budget` can change.

    `of`: "correct" claims those inputs whose certified label is the true one, "answers" all that are not abstained. `inputs`: all
    inputs of the run. `one_by_one`: how many labels some poisoning of that size might change, another one for each. `changed`: at
    most how many one poisoning changes; never more than `one_by_one`. `proof`: what proves `changed`, a key of `PROOFS`.
    """

    budget: int
    of: str
    inputs: int
    claimed: int
    one_by_one: int
    changed: int
    proof: str
    k: int
    against: str
    metric: str
    unit: str
    scope: str = ""

    @property
    def kept(self) -> int:
        """At least how many labels stay, whatever the poisoning."""
        return self.claimed - self.changed

    @property
    def accuracy(self) -> float:
        """At least this fraction of all inputs keeps its label."""
        return self.kept / self.inputs

    @property
    def claim(self) -> str:
        """What the numbers guarantee, in words."""
        stay = "the vote's winner" if self.k == 1 else f"among the top {self.k} of the vote"
        which = "correctly answered inputs" if self.of == "correct" else "inputs that are not abstained"
        return (
            f"For every changed training set whose {self.metric} is at most {self.budget:,} ({self.unit}), the label of at "
            f"least {self.kept:,} of the {self.claimed:,} {which} stays {stay} of the ensemble trained anew. Which ones may "
            f"depend on the change. No probability is involved.{self.scope}"
        )

    def summary(self) -> dict[str, Any]:
        """The numbers as plain values."""
        names = ("budget", "of", "inputs", "claimed", "one_by_one", "changed", "kept", "proof", "k", "against")
        return {name: getattr(self, name) for name in names} | {"claim": self.claim}


def collective_claim(
    votes: EnsembleVotes,
    certs: PoisoningCertificates,
    budget: int,
    *,
    of: str | None = None,
    solver_seconds: float = 0.0,
) -> CollectiveClaim:
    """The claim about one poisoning of at most `budget` against all inputs of `certs`, which are the certificates of `votes`.

    `of`: "correct" (the default where true labels are known) or "answers". Where votes were not kept one by one, and for a
    run-off, the count one by one is all that is proven. `solver_seconds`: search that long for a better bound by an integer
    programme.
    """
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or budget < 1:
        raise BadInput(f"budget={budget!r}: a whole number from 1 is needed, the size of the poisoning")
    of = choose("claim", ("answers" if certs.truth is None else "correct") if of is None else of, OF)
    claimed = ~certs.abstained
    if of == "correct":
        if certs.truth is None:
            raise BadInput("of=correct: the true labels are not known; take of=answers")
        claimed &= certs.label == certs.truth
    reached = np.flatnonzero(claimed & ~(certs.radius >= budget))
    changed, proof = len(reached), "one by one"
    if len(reached) and votes.ballots is not None and certs.aggregate == "plurality":
        changed, proof = _bound(votes, certs, reached, int(budget), solver_seconds)
    return CollectiveClaim(
        budget=int(budget),
        of=of,
        inputs=len(certs),
        claimed=int(claimed.sum()),
        one_by_one=len(reached),
        changed=changed,
        proof=proof,
        k=certs.k,
        against=certs.against,
        metric=certs.threat.metric,
        unit=certs.threat.unit,
        scope=certs.scope,
    )


def _bound(
    votes: EnsembleVotes, certs: PoisoningCertificates, reached: Any, budget: int, seconds: float
) -> tuple[int, str]:
    """The least bound of all that were tried, and what proves it; of equal ones the simplest."""
    assert votes.ballots is not None
    classes = votes.counts.shape[1]
    scores = collective_scores(votes.ballots[reached], classes, votes.spread, certs.label[reached], budget, certs.k)
    least, proof = len(reached), "one by one"
    weights = weighed(scores, best_weights(scores))
    if weights < least:
        least, proof = weights, "weights"
    if seconds > 0:
        by_solver = solved(scores, seconds)
        if by_solver < least:
            least, proof = by_solver, "solver"
    return least, proof
