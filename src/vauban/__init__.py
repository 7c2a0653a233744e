"""Vauban proves how much an attacker must change before a classifier's answer can change."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vauban.certificates import Certificates, derive
    from vauban.planning import CertifyPlan
    from vauban.poisoning.ensemble import Ensemble
    from vauban.poisoning.partitioning.partition import Partition
    from vauban.prediction import Predictions
    from vauban.report.progress import Progress
    from vauban.runs.run import Run
    from vauban.smoothed import SmoothedClassifier
    from vauban.smoothing import (
        Ablation,
        Band,
        Block,
        Concave,
        Discrete,
        Flow,
        Fractional,
        Gaussian,
        Laplace,
        Sparse,
        Splitting,
        Uniform,
    )

__version__ = "0.1.0"

_MODULES = {
    "Certificates": "vauban.certificates",
    "derive": "vauban.certificates",
    "Ablation": "vauban.smoothing",
    "Band": "vauban.smoothing",
    "Block": "vauban.smoothing",
    "Concave": "vauban.smoothing",
    "Discrete": "vauban.smoothing",
    "Flow": "vauban.smoothing",
    "Fractional": "vauban.smoothing",
    "Gaussian": "vauban.smoothing",
    "Laplace": "vauban.smoothing",
    "Sparse": "vauban.smoothing",
    "Splitting": "vauban.smoothing",
    "Uniform": "vauban.smoothing",
    "Ensemble": "vauban.poisoning.ensemble",
    "Partition": "vauban.poisoning.partitioning.partition",
    "CertifyPlan": "vauban.planning",
    "Predictions": "vauban.prediction",
    "Progress": "vauban.report.progress",
    "Run": "vauban.runs.run",
    "SmoothedClassifier": "vauban.smoothed",
}

__all__ = [
    "Ablation",
    "Band",
    "Block",
    "Certificates",
    "CertifyPlan",
    "Concave",
    "Discrete",
    "Ensemble",
    "Flow",
    "Fractional",
    "Gaussian",
    "Laplace",
    "Partition",
    "Predictions",
    "Progress",
    "Run",
    "SmoothedClassifier",
    "Sparse",
    "Splitting",
    "Uniform",
    "derive",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use, so that torch is loaded only where it is needed."""
    if name not in _MODULES:
        raise AttributeError(f"module 'vauban' has no attribute {name!r}; it has {', '.join(sorted(_MODULES))}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
