"""Seconds of every step of an entry, kept in its folder."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vauban.files import in_turn, read_json, write_json


class Timing:
    """Whether the seconds of a step count: not where there was nothing to do."""

    counts = True


class Ledger:
    """Seconds of every step, added up over all calls; several processes may write it."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def seconds(self) -> dict[str, float]:
        """Those of every step so far, by its name."""
        return read_json(self.path) if self.path.exists() else {}

    @contextmanager
    def timed(self, name: str, what: str) -> Iterator[Timing]:
        """Add the seconds of the context to those of this step."""
        began, timing = time.monotonic(), Timing()
        try:
            yield timing
        finally:
            if timing.counts:
                key = f"{what} {name}"
                with in_turn(self.path):
                    seconds = self.seconds
                    seconds[key] = round(seconds.get(key, 0.0) + time.monotonic() - began, 1)
                    write_json(self.path, seconds)
