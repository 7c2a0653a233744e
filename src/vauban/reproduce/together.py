"""Several runs at a time, each in a process of its own: one training of a small network leaves most of a GPU idle."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vauban.errors import Incomplete, VaubanError
from vauban.reproduce.entry import Entry

_LEAST = 1.0
"""Seconds of a budget with which a process is still started."""


@dataclass(frozen=True)
class Piece:
    """A part of an entry that runs by itself: one point of its grid, or all of it. `words`: the command that makes it."""

    name: str
    words: Sequence[str]


def pieces(entry: Entry, given: str, out: Path, only: Mapping[str, str], words: Sequence[str]) -> list[Piece]:
    """The pieces of an entry that was named as `given`, to run with these further words of the command."""
    command = ["reproduce", given, "--out", str(out), *words]
    apart = entry.kind == "runs" and not entry.choose  # the choice of a point needs all points
    if not apart:
        return [Piece(entry.name, [*command, *(f"--only={axis}={value}" for axis, value in only.items())])]
    points = [p for p in entry.points() if all(str(p.get(axis)) == value for axis, value in only.items())]
    return [
        Piece(
            " ".join([entry.name, *(f"{axis}={value}" for axis, value in point.items())]),
            [*command, *(f"--only={axis}={value}" for axis, value in point.items())],
        )
        for point in points
    ]


def run(listed: Sequence[Piece], jobs: int, budget: float | None, say: Callable[[str], None]) -> None:
    """Run all pieces, `jobs` at a time, within the budget. One that fails does not stop the others; VaubanError at the end.

    Ctrl-C and a spent budget stop each as they stop a single command: nothing is lost, and the same command goes on.
    """
    waiting, running, failed = list(listed), dict[str, subprocess.Popen[str]](), list[str]()
    end = None if budget is None else time.monotonic() + budget
    readers: list[threading.Thread] = []

    def left() -> float:
        return float("inf") if end is None else end - time.monotonic()

    try:
        while (waiting and left() > _LEAST) or running:
            while waiting and len(running) < jobs and left() > _LEAST:
                piece = waiting.pop(0)
                running[piece.name] = _start(piece, None if end is None else left())
                readers.append(_repeat(running[piece.name], piece.name, say))
            time.sleep(0.1)
            for name, process in list(running.items()):
                if process.poll() is not None:
                    del running[name]
                    if process.returncode not in (0, Incomplete.exit_code):
                        failed.append(name)
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for process in running.values():
            process.wait()
        for reader in readers:
            reader.join()
    if failed:
        raise VaubanError(f"{len(failed)} of {len(listed)} ended with an error, printed above: {', '.join(failed)}")


def _start(piece: Piece, seconds: float | None) -> subprocess.Popen[str]:
    limit = [] if seconds is None else ["--budget", f"{seconds:.3f}s"]
    words = [sys.executable, "-m", "vauban", *piece.words, *limit, "--json"]  # --json: no progress bars over each other
    return subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    )


def _repeat(process: subprocess.Popen[str], name: str, say: Callable[[str], None]) -> threading.Thread:
    """Say every line that a process prints, with its name before it."""
    lines = process.stderr
    assert lines is not None

    def read() -> None:
        for line in lines:
            say(f"{name}: {line.rstrip()}")

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread
