"""Defenses by name: how a training set is partitioned, what may then be poisoned, and which features base classifiers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vauban.errors import BadInput
from vauban.poisoning.partitioning.partition import METHODS, OF_ALL_INPUTS, Partition
from vauban.registry import Registry
from vauban.specs import Parameter, Spec, choose, read_params

if TYPE_CHECKING:
    from vauban.poisoning.ensemble_training import TrainingRequest
    from vauban.poisoning.voting_ensemble import VotingEnsemble

FEATURES = ("clusters", "learned", "none", "rotnet", "simclr", "spectral")


class Defense(ABC):
    """Base class of defenses; `DEFENSES` registers them by name, other packages' by the entry point group vauban.defenses.

    `parameters` are written as name:key=value and given to the constructor. `against` is what may be poisoned: "samples" (added,
    removed and relabelled) or only "labels".
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {}
    against: ClassVar[str] = "samples"

    @abstractmethod
    def partition(self, partitions: int) -> Partition:
        """The partition of the training set into this many parts."""

    def shared_features(self, channels: int) -> str | None:
        """The features that all base classifiers share, learned without labels from pictures of so many channels; None: none.

        A defense with shared features must be against "labels".
        """
        return None

    def train(self, request: TrainingRequest) -> VotingEnsemble:
        """Train an ensemble: by default Vauban's recipe on each part, on shared features if there are any."""
        from vauban.poisoning.ensemble_training import train_parts

        return train_parts(self, request)


class DefenseRegistry(Registry[type[Defense]]):
    """Defenses by name."""

    group, kind = "vauban.defenses", "defense"

    def accept(self, thing: Any) -> type[Defense]:
        if not (isinstance(thing, type) and issubclass(thing, Defense)):
            raise TypeError(f"{thing!r} is no subclass of vauban.poisoning.defense.Defense")
        return thing


DEFENSES = DefenseRegistry()


def parse_defense(text: str) -> Defense:
    """Build a defense from its spec.

    >>> parse_defense("finite:spread=16").partition(1200)
    Partition(partitions=1200, by='hash', spread=16)
    >>> parse_defense("ss-dpa:features=rotnet").against
    'labels'
    """
    spec = Spec.parse(text)
    kind = DEFENSES[spec.name]
    return kind(**read_params(spec, kind.parameters))


def is_own(text: str) -> bool:
    """Whether a spec names a defense of Vauban's own; no other package is loaded."""
    name = Spec.parse(text).name
    return dict.__contains__(DEFENSES, name) and DEFENSES.origin(name) is None


def package_entry(text: str) -> dict[str, Any]:
    """The manifest's entry for the package that brings a parsed defense; empty for Vauban's own."""
    origin = DEFENSES.origin(Spec.parse(text).name)
    return {} if origin is None else {"defense_package": {"name": origin.package, "version": origin.version}}


def _method(text: str) -> str:
    return choose("way to partition", text, METHODS)


def _features(text: str) -> str:
    return choose("kind of features", text, FEATURES)


def _spread(text: str) -> int:
    value = int(text)
    if value < 2:
        raise BadInput("a spread is a whole number from 2")
    return value


@DEFENSES.register("dpa")
@dataclass(frozen=True)
class PartitionAggregation(Defense):
    """Deep Partition Aggregation: one base classifier for each part. [Levine2023] Theorem 7.1"""

    by: str = "hash"
    parameters: ClassVar[Mapping[str, Parameter]] = {"by": Parameter(_method, default="hash")}

    def __post_init__(self) -> None:
        _refuse_ways_of_all_inputs("dpa", self.by)

    def partition(self, partitions: int) -> Partition:
        """Disjoint parts."""
        return Partition(partitions, self.by)


@DEFENSES.register("finite")
@dataclass(frozen=True)
class FiniteAggregation(Defense):
    """Finite Aggregation: each base classifier is trained on `spread` buckets, which it shares with others. [Wang2022]"""

    spread: int
    by: str = "hash"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "spread": Parameter(_spread, required=True, example="16"),
        "by": Parameter(_method, default="hash"),
    }

    def __post_init__(self) -> None:
        _refuse_ways_of_all_inputs("finite", self.by)

    def partition(self, partitions: int) -> Partition:
        """partitions * spread buckets."""
        return Partition(partitions, self.by, self.spread)


@DEFENSES.register("ss-dpa")
@dataclass(frozen=True)
class SemiSupervisedAggregation(Defense):
    """SS-DPA, against label flips: parts are sorted, and features are learned without labels. [Levine2023] Theorem 7.2

    `features`: None is RotNet for grey pictures and SimCLR for colour; "spectral" trains nothing; "learned" takes a file; "none"
    shares nothing; "clusters" is the case of two clusters with a part for each sample.
    """

    features: str | None = None
    by: str = "sort"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "features": Parameter(_features, example="rotnet"),
        "by": Parameter(_method, default="sort"),
    }
    against = "labels"

    def partition(self, partitions: int) -> Partition:
        """Disjoint parts, as even as possible if sorted or stratified."""
        return Partition(partitions, self.by)

    def shared_features(self, channels: int) -> str | None:
        """RotNet or SimCLR, unless "none"."""
        if self.features == "none":
            return None
        return self.features or ("rotnet" if channels == 1 else "simclr")

    def train(self, request: TrainingRequest) -> VotingEnsemble:
        """Train heads on shared features, or count the labels of two clusters."""
        from vauban.poisoning.ensemble_training import train_clusters

        return train_clusters(request) if self.features == "clusters" else super().train(request)


def _refuse_ways_of_all_inputs(name: str, by: str) -> None:
    if by in OF_ALL_INPUTS:
        raise BadInput(
            f"{name}:by={by} would prove nothing: one sample more moves others to other parts; by={by} is for ss-dpa, "
            "where only labels change"
        )
