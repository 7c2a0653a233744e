"""Ctrl-C and SIGTERM as a request to stop at the next good place."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event
from typing import Any, ClassVar


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

    A torch loader with workers leaves a handler of its own for the rest of the process, which runs whenever any child ends.
    """
    before = signal.getsignal(signal.SIGCHLD) if hasattr(signal, "SIGCHLD") else None
    try:
        yield
    finally:
        if before is not None and signal.getsignal(signal.SIGCHLD) is not before:
            with suppress(ValueError):  # outside of the main thread, where torch sets none either
                signal.signal(signal.SIGCHLD, before)
                _let_torch_set_its_handler_again()


class _Stack(ctypes.Structure):
    """stack_t of Linux."""

    _fields_: ClassVar = [("place", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]


@contextmanager
def signal_stack_as_before() -> Iterator[None]:
    """Context after which signals of this thread are handled on the same stack as before it; on Linux alone.

    OpenVINO gives the thread that loads its CPU plugin a stack for signals, and frees it in whichever thread its last object
    ends. If that is another one, the next signal that has a handler, Ctrl-C or the end of a child, ends the process by a
    segmentation fault, without a word.
    """
    if sys.platform != "linux":
        yield
        return
    library, before = ctypes.CDLL(None), _Stack()
    known = library.sigaltstack(None, ctypes.byref(before)) == 0
    try:
        yield
    finally:
        if known:
            library.sigaltstack(ctypes.byref(before), None)


def _let_torch_set_its_handler_again() -> None:
    """Tell torch that its handler is gone: it sets one for the first loader alone, by which a dead worker is noticed at once."""
    from torch.utils.data._utils import signal_handling

    if hasattr(signal_handling, "_SIGCHLD_handler_set"):
        signal_handling._SIGCHLD_handler_set = False
