"""Waits for what another thread or process does."""

import time
from collections.abc import Callable


def until(found: Callable[[], object], seconds: float = 300.0) -> None:
    """Wait until a function says so."""
    began = time.monotonic()
    while not found():
        assert time.monotonic() - began < seconds
        time.sleep(0.02)
