"""Append-only tallies: one checked line per input and look, safe against a kill at any instant."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vauban.errors import CannotWrite, Lie

FILE = "tallies.jsonl"
_SYNC_EVERY = 1.0


@dataclass(frozen=True)
class Tally:
    """Counts per class [c] of the first `votes` votes of one input, in the stage "choose" or "count"."""

    input: int
    stage: str
    votes: int
    counts: NDArray[np.int64]

    def line(self, run: str) -> str:
        """The line that stands for this tally in the run with identity `run`, without its newline."""
        some = {str(c): int(count) for c, count in enumerate(self.counts) if count}
        body = {"input": self.input, "stage": self.stage, "votes": self.votes, "counts": some}
        text = json.dumps(body, separators=(",", ":"))
        return f'{text[:-1]},"check":"{_check(run, text)}"}}'

    @classmethod
    def parse(cls, line: str, run: str, num_classes: int) -> Tally:
        """Read a line back; ValueError says what is wrong with it."""
        body = json.loads(line)
        check = body.pop("check")
        if check != _check(run, json.dumps(body, separators=(",", ":"))):
            raise ValueError("its check does not fit: it was altered, or belongs to another run")
        counts = np.zeros(num_classes, dtype=np.int64)
        for label, count in body["counts"].items():
            if not 0 <= int(label) < num_classes or not isinstance(count, int) or count < 1:
                raise ValueError(f"it counts {count} votes for class {label} of {num_classes}")
            counts[int(label)] = count
        if counts.sum() != body["votes"]:
            raise ValueError(f"its counts sum to {counts.sum()}, not to {body['votes']}")
        return cls(body["input"], body["stage"], body["votes"], counts)


def read(folder: Path, run: str, num_classes: int) -> tuple[list[Tally], int]:
    """Every tally in the folder in file order, and the length in bytes of the sound part of the file.

    A last line without its newline was torn by a kill and is left out; any other bad line is refused with its number.
    """
    path = folder / FILE
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    tallies = []
    for number, raw in enumerate(whole.split(b"\n")[:-1], start=1):
        try:
            tallies.append(Tally.parse(raw.decode(), run, num_classes))
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            reason = str(problem) if type(problem) is ValueError else "it cannot be read"
            raise Lie(f"{path} line {number}: {reason}") from None
    return tallies, len(whole)


class Writer:
    """Appends lines to the file; what is appended before a kill stays, what a kill tears is cut off at the next start."""

    def __init__(self, folder: Path, run: str, sound_length: int):
        self._path = folder / FILE
        self._run = run
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.ftruncate(self._file, sound_length)
        self._synced = time.monotonic()

    def append(self, tally: Tally) -> None:
        line = (tally.line(self._run) + "\n").encode()
        before = os.lseek(self._file, 0, os.SEEK_END)
        try:
            written = os.write(self._file, line)
            if written != len(line):
                os.write(self._file, line[written:])
            if time.monotonic() - self._synced > _SYNC_EVERY:
                os.fsync(self._file)
                self._synced = time.monotonic()
        except OSError as problem:
            os.ftruncate(self._file, before)
            advice = "make room" if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else "mend this"
            raise CannotWrite(
                f"{self._path} cannot be written ({problem.strerror}); every tally before this one is kept: "
                f"{advice} and run the same command again"
            ) from problem

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            os.fsync(self._file)
        finally:
            os.close(self._file)


def digest(tallies: list[Tally], run: str) -> str:
    """A hash of all lines, whatever their order in the file."""
    ordered = sorted(tallies, key=lambda tally: (tally.input, tally.stage, tally.votes))
    return hashlib.sha256("\n".join(tally.line(run) for tally in ordered).encode()).hexdigest()


def _check(run: str, text: str) -> str:
    return hashlib.sha256(f"{run}\n{text}".encode()).hexdigest()[:16]
