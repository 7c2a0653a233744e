"""Atomic file writes, JSON files, append-only logs, folder locks, and hashes of arrays."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import re
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from vauban.errors import BadInput, CannotWrite, Lie, RunRefused

_SYNC_SECONDS = 1.0
_SPREAD_NUMBERS = re.compile(r"\[[\s\d,-]+\]")


def replace_file(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically: a reader sees the old file or the new one.

    A symbolic link is followed; anything that is not a regular file (a device, a pipe) is written to in place.
    """
    target = path.resolve()
    temporary = unique_beside(target)
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)
            return
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as problem:
        raise CannotWrite(f"{path} cannot be written: {problem.strerror or problem}") from problem


def make_folder_of(path: Path) -> None:
    """Create the folder that a file is to be written to, where it is missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise CannotWrite(f"{path} cannot be written: {problem.strerror}; give another name") from None


def unique_beside(path: Path) -> Path:
    """A hidden file beside this one, of a name that no other thread uses, nor a process of this number in another container."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")


LOCK = ".lock"


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Hold the lock of this file, whose folder must exist; where another process holds it, wait until it is free."""
    with FileLock(path.with_name(f".{path.name}.lock")):
        yield


@contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Hold the lock of whoever writes this file, whose folder must exist; RunRefused if another process holds it, CannotWrite if
    the folder takes no files. It is another lock than that of `in_turn`, which may be held around it."""
    lock = FileLock(path.with_name(f".{path.name}.writing.lock"))
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:  # also in a folder such as /proc, where nothing can be written
            tried = unique_beside(path)
            tried.touch()
            tried.unlink()
            raise
    except OSError as problem:
        if not isinstance(problem, Timeout):
            raise CannotWrite(f"{path} cannot be written: {problem.strerror}; give another --out") from problem
        raise RunRefused(f"{path} is being written by another process: wait for it, or give another --out") from None
    try:
        yield
    finally:
        lock.release()


def check_folder(folder: Path) -> None:
    """Refuse a run folder that can be neither read nor created: it or one above it is a file, is closed, or has no valid name."""
    try:
        above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not above.is_dir():
            raise BadInput(f"{folder} cannot be used as a run folder, since {above} is a file: give another --out")
        if not os.access(above, os.R_OK | os.X_OK):
            raise BadInput(f"{folder} cannot be used as a run folder: {above} cannot be read")
    except OSError as problem:
        raise BadInput(f"{folder} cannot be used as a run folder: {problem.strerror}") from None


@contextmanager
def locked(folder: Path, create: bool = True) -> Iterator[None]:
    """Create the folder if it is missing and hold its lock; RunRefused if another process holds it.

    The lock file stays, since removing it would let two processes hold locks of the same name. Whoever may still refuse
    its settings does so before this, so that nothing is left behind.
    """
    check_folder(folder)
    try:
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        elif not folder.is_dir():
            raise RunRefused(f"{folder} is not there any more")
        lock = FileLock(folder / LOCK)
        lock.acquire(timeout=0)
    except Timeout:
        raise RunRefused(f"{folder} is being written by another process: wait for it, or give another --out") from None
    except OSError as problem:
        raise BadInput(f"{folder} cannot be used as a run folder: {problem.strerror}") from None
    try:
        yield
    finally:
        lock.release()


def sha256(content: bytes) -> str:
    """The sha256 of these bytes, in hex."""
    return hashlib.sha256(content).hexdigest()


def arrays_sha256(*arrays: Any) -> str:
    """The sha256, in hex, of the shape, type and bytes of every array, held or streamed; None stands for a missing array."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is None:
            digest.update(b"none\n")
            continue
        digest.update(f"{array.dtype.name} {array.shape}\n".encode())
        for piece in array.pieces() if hasattr(array, "pieces") else (array,):
            little = np.ascontiguousarray(piece, piece.dtype.newbyteorder("<"))
            digest.update(little.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


KEPT_ROWS, KEPT_NUMBERS = 64, 8192
"""How many rows of a table, and how many numbers in all, `floats_hex` keeps at most (one row at least)."""


def kept_rows(rows: int, columns: int) -> NDArray[np.int64]:
    """Which rows of a table `floats_hex` keeps: all, or as many as it may, evenly spread from the first to the last."""
    most = max(1, min(rows, KEPT_ROWS, KEPT_NUMBERS // columns))
    return np.linspace(0, rows - 1, most).astype(np.int64)


def floats_hex(table: NDArray[np.float32]) -> str:
    """The kept rows of a table [rows, columns] as the hex of little-endian float32."""
    return table[kept_rows(*table.shape)].astype("<f4").tobytes().hex()


def floats_from_hex(text: str, rows: int, columns: int) -> NDArray[np.float32]:
    """The kept rows of a table [rows, columns] from what `floats_hex` wrote; ValueError if it is something else."""
    return np.frombuffer(bytes.fromhex(text), "<f4").reshape(len(kept_rows(rows, columns)), columns).astype(np.float32)


def files_sha256(paths: str | Path | Iterable[str | Path]) -> dict[str, str] | None:
    """The sha256 of each file by its name; None if there are none."""
    found: dict[str, str] = {}
    listed = [paths] if isinstance(paths, str | Path) else list(paths) if isinstance(paths, Iterable) else [paths]
    if not all(isinstance(one, str | Path) for one in listed):
        raise BadInput(f"depends={paths!r}: the names of the files that the model reads are needed")
    for path in map(Path, listed):
        if path.name in found:
            raise BadInput(f"two files are named {path.name}: give each file that a model reads a name of its own")
        try:
            found[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as problem:
            raise BadInput(
                f"{path} cannot be read ({problem.strerror}): a file that the model reads is needed"
            ) from None
    return found or None


PACKED = ".gz"
_ALWAYS_UNPACKED, _VOTES_RATIO = 1 << 24, 250


def packed(path: Path) -> Path:
    """The name of the gzipped form of a file."""
    return path.with_name(path.name + PACKED)


def replace_packed(path: Path, content: bytes) -> None:
    """Write a file of a run that may be gzipped: its gzipped form goes. Killed at any instant, it leaves no two that differ."""
    if path.exists():
        packed(path).unlink(missing_ok=True)
    elif packed(path).exists():
        replace_file(packed(path), gzip.compress(content, mtime=0))
    replace_file(path, content)
    packed(path).unlink(missing_ok=True)


def refuse_packed(path: Path) -> None:
    """Refuse to add lines to a file that is gzipped."""
    if packed(path).exists():
        raise RunRefused(f"{packed(path)} is gzipped, and votes are to be added: unpack it with gunzip, then continue")


def is_there(path: Path) -> bool:
    """Whether there is this file, or its gzipped form."""
    return path.exists() or packed(path).exists()


def most_unpacked(size: int, ratio: int = _VOTES_RATIO) -> int:
    """The bytes to which a packed file of this size may unpack: votes of runs are packed to a 30th at most, and a file made to
    exhaust a reader's memory to a 1,000th and less."""
    return _ALWAYS_UNPACKED + ratio * size


def read_packed(path: Path, ratio: int = _VOTES_RATIO) -> bytes:
    """The content of a file, or of its gzipped form; a missing file is empty. Where both are there, which a kill can leave, they
    must be the same. `ratio`: see `most_unpacked`."""
    plain = _content(path)  # first: it goes once its gzipped form is written
    pressed = _content(packed(path))
    if pressed is None:
        return plain or b""
    content = _unpacked(packed(path), pressed, most_unpacked(len(pressed), ratio))
    if plain is not None and plain != content:
        raise Lie(f"{path} and {packed(path).name} both exist and differ: remove the one that is not the run's")
    return content


def _content(path: Path) -> bytes | None:
    """The content of a file, or None where there is none."""
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return None


def _unpacked(path: Path, pressed: bytes, most: int) -> bytes:
    unpacking = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        content = unpacking.decompress(pressed, most)
    except zlib.error as problem:
        raise Lie(f"{path} cannot be unpacked ({problem})") from None
    if len(content) == most and not unpacking.eof:
        raise Lie(
            f"{path} unpacks to more than {most >> 20} MiB, which no run's file of {len(pressed):,} bytes does: where you trust "
            "it, unpack it with gunzip"
        )
    if not unpacking.eof or unpacking.unused_data:
        raise Lie(f"{path} is cut off, or holds more than one file")
    return content


def read_lines(path: Path, parse: Callable[[str], Any]) -> tuple[list[Any], int]:
    """Every complete line of the file, parsed, in order, and their length in bytes; a missing file is empty.

    A last line without its newline was cut off by a kill and is left out; any other bad line is refused with its number.
    Where the file is missing and NAME.gz is there, its lines are read.
    """
    content = read_packed(path)
    length = content.rfind(b"\n") + 1
    found = []
    for number, raw in enumerate(io.BytesIO(content), start=1):
        if not raw.endswith(b"\n"):
            break
        try:
            found.append(parse(raw[:-1].decode()))
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as problem:
            reason = str(problem) if type(problem) is ValueError else "it cannot be read"
            raise Lie(f"{path} line {number}: {reason}") from None
    return found, length


class Log:
    """Append-only file of lines: each is written whole or not at all, and one that a kill cut off is removed at the next start.

    `valid_length`: the length in bytes of the complete lines (see `read_lines`).
    """

    def __init__(self, path: Path, valid_length: int):
        self._path = path
        refuse_packed(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.ftruncate(self._file, valid_length)
        self._synced = time.monotonic()

    def append(self, line: str) -> None:
        """Append one line."""
        content = (line + "\n").encode()
        before = os.lseek(self._file, 0, os.SEEK_END)
        try:
            while content:  # a write may take a part of it
                content = content[os.write(self._file, content) :]
            if time.monotonic() - self._synced > _SYNC_SECONDS:
                os.fsync(self._file)
                self._synced = time.monotonic()
        except BaseException as problem:  # also after Ctrl-C
            os.ftruncate(self._file, before)
            if not isinstance(problem, OSError):
                raise
            advice = "make room" if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else "fix this"
            raise CannotWrite(
                f"{self._path} cannot be written ({problem.strerror}); everything before this line is kept: "
                f"{advice} and run the same command again"
            ) from problem

    def close(self) -> None:
        """Sync and close the file."""
        try:
            os.fsync(self._file)
        finally:
            os.close(self._file)


def canonical(value: Any) -> str:
    """Canonical JSON: keys sorted, no white space, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """Indented JSON, with lists of numbers on one line."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    return (_SPREAD_NUMBERS.sub(lambda spread: "".join(spread[0].split()), text) + "\n").encode()


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write indented JSON atomically, with lists of numbers on one line."""
    replace_file(path, json_bytes(value))


def read_json(path: Path, read: Callable[[Path], bytes] = Path.read_bytes) -> dict[str, Any]:
    """Read a JSON object in UTF-8; duplicate keys are refused."""

    def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key occurs twice")
        return found

    try:
        value = json.loads(read(path).decode(), object_pairs_hook=without_duplicates)
        if not isinstance(value, dict):
            raise ValueError("it is not an object")
    except (OSError, ValueError, RecursionError) as problem:
        raise Lie(f"{path} cannot be read ({problem})") from None
    return value


def read_packed_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of a run, as it is or gzipped: to a 40th at most, since in memory JSON may take 20 times its size."""
    return read_json(path, partial(read_packed, ratio=40))


def differences(old: Any, new: Any, path: str = "", ignore: tuple[str, ...] = ()) -> Iterator[str]:
    """The fields in which the JSON of two runs differs, as lines of text, except those named in `ignore`."""
    if path in ignore:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from differences(old.get(key), new.get(key), f"{path}.{key}" if path else key, ignore)
    elif old != new:
        one, other = canonical(old), canonical(new)
        unlike = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
        same = next(unlike, min(len(one), len(other)))
        yield f"{path}: the run has {_short(one, same)}, now {_short(other, same)}"


def _short(text: str, same: int) -> str:
    """At most about 80 characters of a text, around the place after the first `same`."""
    start = 0 if len(text) <= 80 or same < 60 else same - 20
    return f"{'…' if start else ''}{text[start : start + 80]}{'…' if len(text) > start + 80 else ''}"
