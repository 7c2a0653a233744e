"""Files of checked JSON lines that only grow: safe against a kill at any instant, bound to the run they belong to."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from vauban.errors import CannotWrite, Lie

_SYNC_EVERY = 1.0

Line = TypeVar("Line")


def written(body: dict[str, Any], run: str) -> str:
    """The line that stands for `body` in the run with identity `run`, without its newline."""
    text = json.dumps(body, separators=(",", ":"))
    return f'{text[:-1]},"check":"{_check(run, text)}"}}'


def parsed(line: str, run: str) -> dict[str, Any]:
    """Read a line back; ValueError says what is wrong with it."""
    body = json.loads(line)
    check = body.pop("check")
    if check != _check(run, json.dumps(body, separators=(",", ":"))):
        raise ValueError("its check does not fit: it was altered, or belongs to another run")
    return body


def read(path: Path, parse: Callable[[str], Line]) -> tuple[list[Line], int]:
    """Every line of the file in order, and the length in bytes of its sound part; a file that is not there is empty.

    A last line without its newline was torn by a kill and is left out; any other bad line is refused with its number.
    """
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    lines = []
    for number, raw in enumerate(whole.split(b"\n")[:-1], start=1):
        try:
            lines.append(parse(raw.decode()))
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            reason = str(problem) if type(problem) is ValueError else "it cannot be read"
            raise Lie(f"{path} line {number}: {reason}") from None
    return lines, len(whole)


class Writer:
    """Appends lines to the file; what is appended before a kill stays, what a kill tears is cut off at the next start."""

    def __init__(self, path: Path, sound_length: int):
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.ftruncate(self._file, sound_length)
        self._synced = time.monotonic()

    def append(self, line: str) -> None:
        content = (line + "\n").encode()
        before = os.lseek(self._file, 0, os.SEEK_END)
        try:
            length = os.write(self._file, content)
            if length != len(content):
                os.write(self._file, content[length:])
            if time.monotonic() - self._synced > _SYNC_EVERY:
                os.fsync(self._file)
                self._synced = time.monotonic()
        except BaseException as problem:  # a line is there whole or not at all, also after Ctrl-C
            os.ftruncate(self._file, before)
            if not isinstance(problem, OSError):
                raise
            advice = "make room" if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else "mend this"
            raise CannotWrite(
                f"{self._path} cannot be written ({problem.strerror}); everything before this line is kept: "
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


def _check(run: str, text: str) -> str:
    return hashlib.sha256(f"{run}\n{text}".encode()).hexdigest()[:16]
