"""What a backend is: a library that compiles the ONNX form of a network for one shape of views, and runs it on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput, MissingExtra

Floats32 = NDArray[np.float32]


class CannotRun(BadInput):
    """A backend cannot run this network; torch may."""


class Program(Protocol):
    """A network compiled for one shape of views; `precision`: in the backend's own words, as it says after compiling."""

    precision: str

    def __call__(self, views: Floats32) -> Floats32:
        """Scores [rows, classes] of views [rows, ...], in memory that no later call changes."""


class Backend(Protocol):
    """A library that runs networks. Its name is also that of the package and of the extra that installs it."""

    name: ClassVar[str]

    def version(self) -> str:
        """The version of the library."""

    def precisions(self) -> Sequence[str]:
        """The precisions that it really computes in on this machine."""

    def compile(self, content: bytes, shape: Sequence[int], threads: int, precision: str) -> Program:
        """The program of an ONNX model for views of this shape [rows, ...]; what the library raises is the caller's."""


def installed(*packages: str) -> bool:
    """Whether all these packages can be imported."""
    return all(find_spec(package) is not None for package in packages)


def imported(package: str, extra: str, purpose: str) -> Any:
    """The package, or the error that names the extra which installs it."""
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError:
        raise MissingExtra(package, extra, purpose) from None
