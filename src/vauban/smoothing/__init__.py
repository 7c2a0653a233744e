"""Smoothings: they make many views of one input, and each is built from a short text."""

from __future__ import annotations

import sys
from typing import Any

from vauban.registry import import_modules
from vauban.smoothing.base import SMOOTHINGS, Smoothing, register
from vauban.specs import Spec, one_alone

__all__ = ["SMOOTHINGS", "Smoothing", "build", "register"]

import_modules(__name__)  # every smoothing registers itself
_MODULES = [module for key, module in sys.modules.copy().items() if key.startswith(f"{__name__}.")]


def build(spec: str | Spec) -> Smoothing:
    """Build a smoothing from its text form, for example `build("gaussian:sigma=0.5")`."""
    parsed = one_alone(spec) if isinstance(spec, str) else spec
    return SMOOTHINGS[parsed.name].from_spec(parsed)


def __getattr__(name: str) -> Any:
    """A smoothing by its class name, such as `Gaussian`."""
    for module in _MODULES:
        found = getattr(module, name, None)
        if isinstance(found, type) and issubclass(found, Smoothing):
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
