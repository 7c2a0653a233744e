"""Several trainings and their runs at a time, each in a process of its own: a small network leaves most of a GPU idle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from vauban.errors import Incomplete
from vauban.interrupts import sigterm_as_interrupt
from vauban.reproduce.budget import interrupt_main
from vauban.reproduce.entry import Entry
from vauban.reproduce.running import Options, adapted, steps_of
from vauban.reproduce.steps import Step

_LEAST = 1.0
"""Seconds of a budget with which a process is still started."""
_PATIENCE = 20.0
"""Seconds in which a process that was interrupted should end."""


@dataclass(frozen=True)
class Piece:
    """A part of an entry that runs by itself: a training with the runs of its network, or all of the entry.

    words: the command that makes it. begin: the weights it starts from, which another piece may train as well.
    """

    entry: str
    name: str
    words: tuple[str, ...]
    begin: Path | None = None

    def __str__(self) -> str:
        return f"{self.entry} {self.name}".strip()


def pieces(entry: Entry, given: str, out: Path, options: Options, words: Sequence[str]) -> list[Piece]:
    """The pieces of an entry that was named as `given`, to run with these further words of the command.

    Runs of one network are one piece: in several, all but one would wait for its training. Runs that are finished are left out;
    so is the one that is chosen by those on validation inputs. Commands of an entry may share files, so they are one piece.
    """
    command = ["reproduce", given, "--out", str(out), *words]
    if entry.kind != "runs":
        only = [f"--only={axis}={value}" for axis, value in options.only.items()]
        return [Piece(entry.name, "", (*command, *only))]
    networks: dict[Path, list[Step]] = {}
    for step in steps_of(adapted(entry, options), out, options):
        if not step.sealed:
            networks.setdefault(step.weights, []).append(step)
    return [_piece(entry, command, steps) for steps in networks.values()]


def _piece(entry: Entry, command: Sequence[str], steps: Sequence[Step]) -> Piece:
    """The piece of the runs of one network."""
    first, more = steps[0], len(steps) - 1
    words = [f"--piece={step.name}" for step in steps]
    name = f"{first.name} and {more} more" if more else first.name
    begin = None if first.first is None or first.weights.exists() else first.first.weights
    return Piece(entry.name, name, (*command, *words), begin)


def in_turns(entries: Iterable[Sequence[Piece]]) -> list[Piece]:
    """The pieces of several entries: the first of each, then the second of each, …, so that a budget is for all of them."""
    return [piece for some in zip_longest(*entries) for piece in some if piece is not None]


def run(listed: Sequence[Piece], jobs: int, budget: float | None, say: Callable[[str], None]) -> dict[Piece, int]:
    """Run all pieces, `jobs` at a time, within the budget; exit codes of those that failed, which does not stop the others.

    Ctrl-C, SIGTERM and a spent budget stop each as they stop a single command: nothing is lost, and the same command goes on.
    """
    waiting, running, failed = list(listed), list[tuple[Piece, subprocess.Popen[str]]](), dict[Piece, int]()
    end = None if budget is None else time.monotonic() + budget
    readers: list[threading.Thread] = []

    def left() -> float:
        return float("inf") if end is None else end - time.monotonic()

    with sigterm_as_interrupt():
        try:
            while (waiting and left() > _LEAST) or running:
                while len(running) < jobs and left() > _LEAST and (piece := _next(waiting, running)) is not None:
                    waiting.remove(piece)
                    process = _start(piece, None if end is None else left())
                    running.append((piece, process))
                    readers.append(_repeat(process, str(piece), say))
                time.sleep(0.1)
                for piece, process in [pair for pair in running if pair[1].poll() is not None]:
                    running.remove((piece, process))
                    if process.returncode not in (0, Incomplete.exit_code):
                        failed[piece] = process.returncode
        finally:
            _stop([process for _, process in running])
            for reader in readers:
                reader.join(timeout=5.0)  # a process of its own may keep the pipe open
    return failed


def _next(waiting: Sequence[Piece], running: Sequence[tuple[Piece, Any]]) -> Piece | None:
    """The first piece that would not wait for weights which a running one may be training."""
    trained = {piece.begin for piece, _ in running if piece.begin is not None and not piece.begin.exists()}
    return next((piece for piece in waiting if piece.begin not in trained), None)


def stop_with(parent: int) -> None:
    """In the process of a piece: be interrupted by SIGINT whatever was inherited, and once the process that began it is gone."""
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        interrupt_main()

    threading.Thread(target=watch, daemon=True).start()


def _start(piece: Piece, seconds: float | None) -> subprocess.Popen[str]:
    limit = [] if seconds is None else ["--budget", f"{seconds:.3f}s"]
    words = [sys.executable, "-m", "vauban", *piece.words, *limit]
    words += ["--parent", str(os.getpid()), "--json"]  # --json: no progress bars over each other
    return subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    )


def _stop(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Interrupt processes, again after a while, since one that is importing may lose an interrupt; then end them."""
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)
        end = time.monotonic() + _PATIENCE
        while any(process.poll() is None for process in processes) and time.monotonic() < end:
            time.sleep(0.1)


def _repeat(process: subprocess.Popen[str], name: str, say: Callable[[str], None]) -> threading.Thread:
    """Say every line that a process prints, with its name before it."""
    lines = process.stderr
    assert lines is not None

    def read() -> None:
        heard = True
        for line in lines:  # to the end, also when nobody can be told any more: a full pipe would stop the process
            try:
                if heard:
                    say(f"{name}: {line.rstrip()}")
            except Exception:
                heard = False

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread
