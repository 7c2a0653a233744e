"""Vauban proves how much an attacker must change before a classifier's answer can change."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from vauban.errors import needs_torch

if TYPE_CHECKING:
    from vauban.attacks.running import attack
    from vauban.certificates import Certificates, derive
    from vauban.engine.adapters.wrapping import wrap
    from vauban.models.composing import denoise, ensemble
    from vauban.planning import CertifyPlan
    from vauban.poisoning.ensemble import Ensemble
    from vauban.poisoning.partitioning.partition import Partition
    from vauban.prediction import Predictions
    from vauban.report.plots import plot
    from vauban.report.progress import Progress
    from vauban.runs.run import Run
    from vauban.smoothed import SmoothedClassifier
    from vauban.smoothing.ablation import Ablation
    from vauban.smoothing.concave import Concave
    from vauban.smoothing.discrete import Discrete
    from vauban.smoothing.flow import Flow
    from vauban.smoothing.fractional import Fractional
    from vauban.smoothing.gaussian import Gaussian
    from vauban.smoothing.laplace import Laplace
    from vauban.smoothing.patches import Band, Block
    from vauban.smoothing.sparse import Sparse
    from vauban.smoothing.splitting import Splitting
    from vauban.smoothing.uniform import Uniform
    from vauban.standardise import Standardisation
    from vauban.training import losses
    from vauban.training.recipe import Recipe
    from vauban.training.trainer import train

__version__ = "0.2.0"

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
"""torch reads it once, at a process's first matrix product on a GPU. Unset then, `poisoning/training/deterministic.py` fails for
good: a process that learns features and then fits heads to them would. It is the memory that cuBLAS has on such GPUs anyway."""

_MODULES = {
    "attack": "vauban.attacks.running",
    "Certificates": "vauban.certificates",
    "derive": "vauban.certificates",
    "Ensemble": "vauban.poisoning.ensemble",
    "denoise": "vauban.models.composing",
    "ensemble": "vauban.models.composing",
    "Partition": "vauban.poisoning.partitioning.partition",
    "CertifyPlan": "vauban.planning",
    "Predictions": "vauban.prediction",
    "plot": "vauban.report.plots",
    "Progress": "vauban.report.progress",
    "Run": "vauban.runs.run",
    "SmoothedClassifier": "vauban.smoothed",
    "Standardisation": "vauban.standardise",
    "Recipe": "vauban.training",
    "losses": "vauban.training",
    "train": "vauban.training",
    "wrap": "vauban.engine.adapters.wrapping",
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
    "Recipe",
    "Run",
    "SmoothedClassifier",
    "Sparse",
    "Splitting",
    "Standardisation",
    "Uniform",
    "attack",
    "denoise",
    "derive",
    "ensemble",
    "losses",
    "plot",
    "train",
    "wrap",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use, so that torch is loaded only where it is needed.

    A name that is not in `_MODULES` is that of a smoothing.
    """
    if name.startswith("_"):
        raise AttributeError(f"module 'vauban' has no attribute {name!r}")
    unknown = AttributeError(f"module 'vauban' has no attribute {name!r}; it has {', '.join(__all__)}")
    try:
        return getattr(import_module(_MODULES.get(name, "vauban.smoothing")), name)
    except ImportError as problem:
        if (missing := needs_torch(problem, f"vauban.{name}")) is None:
            raise
        raise (missing if name in __all__ else unknown) from None
    except AttributeError:
        raise unknown from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
