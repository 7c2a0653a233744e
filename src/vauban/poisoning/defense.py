"""Defences by name: how the training set is split, what is trusted, and what the certificates then speak of."""

from __future__ import annotations

from dataclasses import dataclass

from vauban.errors import BadInput
from vauban.poisoning.partitioning.partition import METHODS, Partition
from vauban.specs import Parameter, Spec, choose, read_params

FEATURES = ("clusters", "none", "rotnet", "simclr")


def _way(text: str) -> str:
    return choose("way to partition", text, METHODS)


def _features(text: str) -> str:
    return choose("kind of features", text, FEATURES)


def _spread(text: str) -> int:
    value = int(text)
    if value < 2:
        raise BadInput("a spread is a whole number from 2")
    return value


PARAMETERS = {
    "dpa": {"by": Parameter(_way, default="hash")},
    "finite": {"spread": Parameter(_spread, required=True, example="16"), "by": Parameter(_way, default="hash")},
    "ss-dpa": {"features": Parameter(_features, example="rotnet"), "by": Parameter(_way, default="sort")},
}


@dataclass(frozen=True)
class Defence:
    """A defence: "dpa" (Theorem 7.1), "finite" (Finite Aggregation) or "ss-dpa" (Theorem 7.2, label flips only).

    `features`, of ss-dpa: what base classifiers share, learned without labels; None is RotNet for grey pictures and SimCLR
    for colour; "none" shares nothing; "clusters" is the two-cluster case with a partition for each sample.

    >>> Defence.parse("finite:spread=16").partition(1200)
    Partition(partitions=1200, by='hash', spread=16)
    >>> Defence.parse("ss-dpa:features=rotnet").against
    'labels'
    """

    name: str
    by: str = "hash"
    spread: int = 1
    features: str | None = None

    @classmethod
    def parse(cls, text: str) -> Defence:
        """Read dpa, finite:spread=16 or ss-dpa:features=rotnet,by=sort."""
        spec = Spec.parse(text)
        name = choose("defence", spec.name, PARAMETERS)
        values = read_params(spec, PARAMETERS[name])
        if name != "ss-dpa" and values["by"] == "sort":
            raise BadInput(
                f"{name}:by=sort would prove nothing: one sample more moves all that sort after it; sorting is for ss-dpa, "
                "where only labels change"
            )
        return cls(name, **values)

    @property
    def against(self) -> str:
        """What may be poisoned: "samples" or "labels"."""
        return "labels" if self.name == "ss-dpa" else "samples"

    def partition(self, partitions: int) -> Partition:
        """The partition it trains on."""
        return Partition(partitions, self.by, self.spread)

    def shared(self, channels: int) -> str | None:
        """Which features its base classifiers share, for pictures of this many channels."""
        if self.name != "ss-dpa" or self.features == "none":
            return None
        return self.features or ("rotnet" if channels == 1 else "simclr")
