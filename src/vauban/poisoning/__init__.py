"""Poisoning: training sets split by content, ensembles trained on the parts, and how much must change to turn their vote."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vauban.poisoning.claims import PoisoningCertificates, derive
    from vauban.poisoning.ensemble import Ensemble
    from vauban.poisoning.partition import Partition
    from vauban.poisoning.trainers import ModuleTrainer, SklearnTrainer
    from vauban.poisoning.votes import Votes

_HOMES = {
    "Ensemble": "ensemble",
    "ModuleTrainer": "trainers",
    "Partition": "partition",
    "PoisoningCertificates": "claims",
    "SklearnTrainer": "trainers",
    "Votes": "votes",
    "derive": "claims",
}

__all__ = ["Ensemble", "ModuleTrainer", "Partition", "PoisoningCertificates", "SklearnTrainer", "Votes", "derive"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: claims and their verification need no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'vauban.poisoning' has no attribute {name!r}; it has {', '.join(sorted(_HOMES))}")
    return getattr(import_module(f"vauban.poisoning.{_HOMES[name]}"), name)
