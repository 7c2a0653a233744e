"""Certifies ensembles against poisoning: how much of the training set must change before their answer can."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vauban.poisoning.cluster_ensemble import ClusterEnsemble
    from vauban.poisoning.defense import DEFENSES, Defense
    from vauban.poisoning.ensemble import Ensemble
    from vauban.poisoning.ensemble_training import load_ensemble, train
    from vauban.poisoning.partitioning.partition import Partition
    from vauban.poisoning.training.scikit_learn import SklearnTrainer
    from vauban.poisoning.training.torch_module import ModuleTrainer
    from vauban.poisoning.training_plan import TrainingPlan
    from vauban.poisoning.votes.certificates import PoisoningCertificates, derive
    from vauban.poisoning.votes.collective import CollectiveClaim, collective_claim
    from vauban.poisoning.votes.ensemble_votes import EnsembleVotes
    from vauban.poisoning.votes.importing import import_votes

_HOMES = {
    "DEFENSES": "defense",
    "ClusterEnsemble": "cluster_ensemble",
    "CollectiveClaim": "votes.collective",
    "Defense": "defense",
    "Ensemble": "ensemble",
    "EnsembleVotes": "votes.ensemble_votes",
    "ModuleTrainer": "training.torch_module",
    "Partition": "partitioning.partition",
    "PoisoningCertificates": "votes.certificates",
    "SklearnTrainer": "training.scikit_learn",
    "TrainingPlan": "training_plan",
    "collective_claim": "votes.collective",
    "derive": "votes.certificates",
    "import_votes": "votes.importing",
    "load_ensemble": "ensemble_training",
    "train": "ensemble_training",
}
_EARLIER_NAMES = {"Votes": "EnsembleVotes"}

__all__ = [
    "DEFENSES",
    "ClusterEnsemble",
    "CollectiveClaim",
    "Defense",
    "Ensemble",
    "EnsembleVotes",
    "ModuleTrainer",
    "Partition",
    "PoisoningCertificates",
    "SklearnTrainer",
    "TrainingPlan",
    "collective_claim",
    "derive",
    "import_votes",
    "load_ensemble",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use: certificates and their verification need no torch."""
    name = _EARLIER_NAMES.get(name, name)
    if name not in _HOMES:
        raise AttributeError(f"module 'vauban.poisoning' has no attribute {name!r}; it has {', '.join(sorted(_HOMES))}")
    return getattr(import_module(f"vauban.poisoning.{_HOMES[name]}"), name)
