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


def reporter(progress: bool | ProgressReporter) -> ProgressReporter:
    """What a caller's `progress` stands for: True shows bars on stderr once work takes two seconds, False nothing."""
    if progress is True:
        return bars
    return no_progress if progress is False else progress


@contextmanager
def bars(label: str, total: int, unit: str, done: int = 0) -> Iterator[ProgressCallback]:
    """Report by a bar with rate and time left."""
    from vauban.report.progress import bar

    with bar(label, total - done, unit) as advance:
        yield advance


@contextmanager
def no_progress(label: str, total: int, unit: str, done: int = 0) -> Iterator[ProgressCallback]:
    """Report nothing."""
    yield lambda _: None
