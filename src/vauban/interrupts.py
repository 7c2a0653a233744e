"""Ctrl-C and SIGTERM as a request to stop at the next good place."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


@contextmanager
def children_as_before() -> Iterator[None]:
    """Context after which the end of a child process is handled as before it.

    A torch loader with workers leaves a handler of its own for the rest of the process; with OpenVINO loaded, any child that ends
    later (a `subprocess.run`) could then end the process by a segmentation fault.
    """
    before = signal.getsignal(signal.SIGCHLD) if hasattr(signal, "SIGCHLD") else None
    try:
        yield
    finally:
        if before is not None and signal.getsignal(signal.SIGCHLD) is not before:
            with suppress(ValueError):  # outside of the main thread, where torch sets none either
                signal.signal(signal.SIGCHLD, before)
                _let_torch_set_its_handler_again()


def _let_torch_set_its_handler_again() -> None:
    """Tell torch that its handler is gone: it sets one for the first loader alone, by which a dead worker is noticed at once."""
    from torch.utils.data._utils import signal_handling

    if hasattr(signal_handling, "_SIGCHLD_handler_set"):
        signal_handling._SIGCHLD_handler_set = False
