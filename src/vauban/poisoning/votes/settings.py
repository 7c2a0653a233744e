"""The choices a poisoning certificate depends on besides the votes, checked once; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from vauban.errors import BadInput
from vauban.poisoning.votes.ensemble_votes import AGGREGATES
from vauban.specs import choose
from vauban.validation import check_k

LABEL_CHOICES = ("given", "votes")


@dataclass(frozen=True)
class PoisoningSettings:
    """`aggregate`: "plurality" or "runoff". `label`: "votes" certifies the ensemble's answer, "given" the true label."""

    aggregate: str = "plurality"
    k: int = 1
    label: str = "votes"

    @classmethod
    def of(cls, num_classes: int, labelled: bool, *, aggregate: str, k: int, label: str | None) -> Self:
        """Checked settings for inputs with or without true labels; `label` None is "given" for k > 1 with true labels."""
        choose("aggregate", aggregate, AGGREGATES)
        if aggregate == "runoff" and k != 1:
            raise BadInput(f"k={k}: a run-off has one answer, so only k=1 can be certified; plurality has a top {k}")
        k = check_k(k, num_classes)
        if label is None:
            label = "given" if k > 1 and labelled else "votes"
        if choose("label", label, LABEL_CHOICES) == "given" and not labelled:
            raise BadInput("the true labels are to be certified, and there are none: give them, or take label=votes")
        return cls(aggregate, k, label)
