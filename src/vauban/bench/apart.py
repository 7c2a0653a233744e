"""Calls functions in a process of their own, which is replaced where it ended, took too long or lost its GPU."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

_END = 5.0  # seconds that a process is given to end by itself


class Failed(Exception):
    """A call that failed in its process; the text says how."""


class Apart:
    """One process that makes calls one after the other; a new one where that is needed."""

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def call(self, function: Callable[..., Any], *arguments: Any, limit: float | None = None) -> Any:
        """What a function returns that can be pickled by its name; `Failed` where it raises, ends its process, or is not done
        within `limit` seconds."""
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        try:
            self._pipe.send((function, arguments))
            if not self._pipe.poll(limit):
                self.stop(0.0)
                raise Failed(f"TimeoutError: not done after {limit:.0f} s, and ended")
            value, problem, usable = self._pipe.recv()
        except (EOFError, OSError):
            code = self.stop(_END)
            raise Failed(f"ChildProcessError: the process ended with exit code {code}") from None
        if not usable:
            self.stop(0.0)
        if problem is not None:
            raise Failed(problem)
        return value

    def stop(self, wait: float = _END) -> int | None:
        """End the process, by force if it does not end by itself in so many seconds; its exit code."""
        pipe, process, self._pipe, self._process = self._pipe, self._process, None, None
        if pipe is None or process is None:
            return None
        pipe.close()
        process.join(wait)
        if process.exitcode is None:
            process.kill()
            process.join()
        return process.exitcode

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,))
        self._process.start()
        theirs.close()


def _serve(pipe: Connection) -> None:
    """Answer calls until the other side closes: the value, what went wrong, and whether this process can make further calls."""
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            function, arguments = pipe.recv()
            value, problem = None, None
            try:
                value = function(*arguments)
            except Exception as failure:
                problem = f"{type(failure).__name__}: {failure}"[:2000]
            pipe.send((value, problem, _usable()))


def _usable() -> bool:
    """Give back a GPU's memory; False where it no longer answers, as after an illegal access."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return True
    try:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        return False
    return True
