"""How long a command may take: the time as it is written, and the interrupt when it is over."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from vauban.errors import BadInput

_LENGTHS = {"s": 1, "m": 60, "min": 60, "h": 3600}


def read_budget(text: str | None) -> float | None:
    """Seconds of a time such as 90s, 10m, 10min or 2h.

    >>> read_budget("10m")
    600.0
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|min|h)", text.strip())
    if not found or float(found[1]) <= 0:
        raise BadInput(f"--budget {text}: a time above zero is needed, such as 90s, 10m or 2h")
    return float(found[1]) * _LENGTHS[found[2]]


def interrupt_main() -> None:
    """Send the main thread a SIGINT, which ends a wait for another process too."""
    main = threading.main_thread().ident
    if main is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def within(seconds: float | None, spent: threading.Event) -> Iterator[None]:
    """Interrupt what runs inside, as Ctrl-C does, once the time is over; `spent` then says so."""
    if seconds is None or seconds <= 0 or threading.current_thread() is not threading.main_thread():
        if seconds is not None and seconds <= 0:
            spent.set()
        yield
        return

    def stop() -> None:
        spent.set()
        interrupt_main()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with suppress(KeyboardInterrupt):  # what was done inside is done: an interrupt that is on its way ends here
            timer.join()
            time.sleep(0)
        signal.signal(signal.SIGINT, before)


def stop_when(spent: threading.Event) -> None:
    """Stop before the next step: what just ended may have met the interrupt too late to stop for it."""
    if spent.is_set():
        raise KeyboardInterrupt
