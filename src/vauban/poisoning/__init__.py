"""Poisoning: training sets split by content, ensembles trained on the parts, and how much must change to turn their vote."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vauban.poisoning.ensemble import Ensemble
    from vauban.poisoning.partitioning.partition import Partition
    from vauban.poisoning.training.trainer import ModuleTrainer, SklearnTrainer
    from vauban.poisoning.votes.certificates import PoisoningCertificates, derive
    from vauban.poisoning.votes.ensemble_votes import Votes

_HOMES = {
    "Ensemble": "ensemble",
    "ModuleTrainer": "training.trainer",
    "Partition": "partitioning.partition",
    "PoisoningCertificates": "votes.certificates",
    "SklearnTrainer": "training.scikit_learn",
    "Votes": "votes.ensemble_votes",
    "derive": "votes.certificates",
}

__all__ = ["Ensemble", "ModuleTrainer", "Partition", "PoisoningCertificates", "SklearnTrainer", "Votes", "derive"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: claims and their verification need no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'vauban.poisoning' has no attribute {name!r}; it has {', '.join(sorted(_HOMES))}")
    return getattr(import_module(f"vauban.poisoning.{_HOMES[name]}"), name)
