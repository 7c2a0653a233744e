"""Ctrl-C and SIGTERM as a request to stop at the next good place."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any


class InterruptedAtTheEnd(KeyboardInterrupt):
    """Ctrl-C or SIGTERM in the last step: the work is done, and `result` is what it gave."""

    def __init__(self, result: Any):
        super().__init__()
        self.result = result


@contextmanager
def interruptible() -> Iterator[Event]:
    """Context in which the first SIGINT or SIGTERM sets the event that is yielded; a second one raises KeyboardInterrupt."""
    stop = Event()

    def request_stop(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    try:
        before = {number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # signal handlers can only be set in the main thread
        before = {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Context in which SIGTERM is as Ctrl-C, so that no process that was begun stays behind; in the main thread alone."""
    try:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
