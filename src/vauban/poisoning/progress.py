"""Types by which long work reports its progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

ProgressCallback = Callable[[int], None]
"""Called with the amount of work done since the last call."""


class ProgressReporter(Protocol):
    """Starts the report of one piece of work: `total` units, of which `done` are there from an earlier call."""

    def __call__(
        self, label: str, total: int, unit: str, done: int = 0
    ) -> AbstractContextManager[ProgressCallback]: ...


@contextmanager
def no_progress(label: str, total: int, unit: str, done: int = 0) -> Iterator[ProgressCallback]:
    """Report nothing."""
    yield lambda _: None
