"""Smoothings: they make many views of one input, and each is built from a short text."""

from __future__ import annotations

from typing import Any

from vauban.registry import import_modules
from vauban.smoothing.base import SMOOTHINGS, Smoothing, register
from vauban.specs import Spec

__all__ = ["SMOOTHINGS", "Smoothing", "build", "register"]

import_modules(__name__)  # every smoothing registers itself


def build(spec: str | Spec) -> Smoothing:
    """Build a smoothing from its text form, for example `build("gaussian:sigma=0.5")`."""
    parsed = Spec.parse(spec) if isinstance(spec, str) else spec
    return SMOOTHINGS[parsed.name].from_spec(parsed)


def __getattr__(name: str) -> Any:
    """A smoothing by its class name, such as `Gaussian`."""
    for smoothing in Smoothing.__subclasses__():
        if smoothing.__name__ == name and smoothing.__module__.startswith(f"{__name__}."):
            return smoothing
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
