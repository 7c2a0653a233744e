"""Views: ways of turning one input into many altered copies, each rebuilt from a short text."""

from __future__ import annotations

from vauban.smoothing.base import Smoothing
from vauban.smoothing.gaussian import Gaussian
from vauban.specs import Spec, choose

SMOOTHINGS: dict[str, type[Smoothing]] = {"gaussian": Gaussian}

__all__ = ["SMOOTHINGS", "Gaussian", "Smoothing", "build"]


def build(spec: str | Spec) -> Smoothing:
    """Build a smoothing from its text form, for example `build("gaussian:sigma=0.5")`."""
    parsed = Spec.parse(spec) if isinstance(spec, str) else spec
    return SMOOTHINGS[choose("smoothing", parsed.name, SMOOTHINGS)].from_spec(parsed)
