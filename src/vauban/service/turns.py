"""A lock that is passed on in the order in which it was asked for, and that a guest may lend out while it waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class FairLock:
    """A lock for the model: whoever asked first has it next, so a loop that asks again and again does not keep others out."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Event] = deque()

    def acquire(self) -> None:
        """Wait for the lock."""
        with self._guard:
            if not self._held:
                self._held = True
                return
            turn = threading.Event()
            self._waiting.append(turn)
        turn.wait()

    def release(self) -> None:
        """Pass the lock on to the first that waits."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._held = False

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Guest:
    """Holds a lock for a block of code, parts of which may lend it out.

    A generator that lends and is closed late, after the block has ended, does not take the lock again.
    """

    def __init__(self, lock: FairLock):
        self._lock = lock
        self._here = self._held = False

    def __enter__(self) -> Guest:
        self._lock.acquire()
        self._here = self._held = True
        return self

    def __exit__(self, *_: object) -> None:
        self._here = False
        if self._held:
            self._held = False
            self._lock.release()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Context in which others may have the lock."""
        self._held = False
        self._lock.release()
        try:
            yield
        finally:
            if self._here:
                self._lock.acquire()
                self._held = True
