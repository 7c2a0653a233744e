"""Smoothings: they make many views of one input, and each is built from a short text."""

from __future__ import annotations

from vauban.smoothing.ablation import Ablation
from vauban.smoothing.base import SMOOTHINGS, Smoothing, register
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
from vauban.specs import Spec

__all__ = [
    "SMOOTHINGS",
    "Ablation",
    "Band",
    "Block",
    "Concave",
    "Discrete",
    "Flow",
    "Fractional",
    "Gaussian",
    "Laplace",
    "Smoothing",
    "Sparse",
    "Splitting",
    "Uniform",
    "build",
    "register",
]


def build(spec: str | Spec) -> Smoothing:
    """Build a smoothing from its text form, for example `build("gaussian:sigma=0.5")`."""
    parsed = Spec.parse(spec) if isinstance(spec, str) else spec
    return SMOOTHINGS[parsed.name].from_spec(parsed)
