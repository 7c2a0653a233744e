"""The folder of a service: every run of it, with the request it came from; replicas that share the folder share the runs.

    ID/request.json   what was asked, of which classifier, when
    ID/inputs.npy     of a batch: its inputs, then labels.npy if it has any
    ID/run/           the run folder (docs/run-folder.md)
    ID/progress.json  how far a batch is, by whoever works on it; the votes of a record that is kept
    ID/cancelled, ID/failed.json

An ID is made here, of 128 random bits; nothing else in a request names a file.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput, CannotWrite, Incomplete, VaubanError
from vauban.files import json_bytes, read_json, read_packed, replace_file, write_json
from vauban.runs.manifest import has_manifest
from vauban.runs.run import Run
from vauban.runs.store import PICTURE, SEAL

LOG = logging.getLogger("vauban.service")

ID = re.compile(r"[0-9a-f]{32}")
DONE, FAILED, CANCELLED, RUNNING, WAITING = STATES = ("done", "failed", "cancelled", "running", "waiting")

_ABANDONED = 3600.0  # seconds after which nobody writes a new run any more
_FRESH = 10.0  # seconds after which a batch whose progress is not written any more is waiting


class NoSuchRun(BadInput):
    """There is no run of this ID; answered with 404."""


class Full(VaubanError):
    """There are as many runs or batches as the service takes; answered with 429."""


def told(problem: Exception) -> str:
    """What a caller is told of a problem; names of files of the server are for its log."""
    if isinstance(problem, CannotWrite):
        LOG.error("%s", problem)
        return "the service cannot write to its folder of runs now: ask again later, or tell its owner"
    return str(problem)


@dataclass(frozen=True)
class Entry:
    """A run of the folder."""

    id: str
    path: Path

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.path / "run"

    @property
    def request(self) -> dict[str, Any]:
        """What was asked."""
        return read_json(self.path / "request.json")

    @property
    def sealed(self) -> bool:
        """Whether the run is finished."""
        return (self.run / SEAL).exists()

    @property
    def state(self) -> str:
        """One of `STATES`."""
        if self.sealed:
            return DONE
        if (self.path / "failed.json").exists():
            return FAILED
        if (self.path / "cancelled").exists():
            return CANCELLED
        return RUNNING if time.time() - self.progress.get("at", 0) < _FRESH else WAITING

    @property
    def open(self) -> bool:
        """Whether it is a batch whose votes are still to be cast."""
        return self.state in (RUNNING, WAITING) and self.request["kind"] == "batch"

    @property
    def progress(self) -> dict[str, Any]:
        """What the worker wrote last."""
        path = self.path / "progress.json"
        return read_json(path) if path.exists() else {}

    @property
    def failure(self) -> str | None:
        """Why the batch failed."""
        path = self.path / "failed.json"
        return str(read_json(path)["detail"]) if path.exists() else None

    def inputs(self) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
        """Inputs [m, ...] and labels [m] of a batch."""
        labels = self.path / "labels.npy"
        given = np.load(labels, allow_pickle=False) if labels.exists() else None
        return np.load(self.path / "inputs.npy", allow_pickle=False), given

    def describe(self) -> dict[str, Any]:
        """The state of the run, as a request is told."""
        asked, progress, state = self.request, self.progress, self.state
        total = asked["inputs"]
        return {
            "id": self.id,
            "kind": asked["kind"],
            "state": state,
            "inputs": total,
            "decided": total if state == DONE else int(progress.get("decided", 0)),
            "votes": int(progress.get("votes", 0)),
            "settings": asked["settings"],
            "created": asked["created"],
            "detail": self.failure,
        }

    def opened(self) -> Any:
        """The run, finished or not; Incomplete before its first vote."""
        if not has_manifest(self.run):
            raise Incomplete("this run has no votes yet: ask again in a moment")
        return Run.open(self.run)

    def files(self) -> dict[str, str]:
        """The text of every file of a finished run."""
        if not self.sealed:
            raise Incomplete("this run is not finished: its record is sealed when it is")
        found = [p for p in self.run.iterdir() if p.is_file() and not p.name.startswith(".") and p.name != PICTURE]
        names = sorted({path.name.removesuffix(".gz") for path in found})  # all but the seal may be packed
        return {name: read_packed(self.run / name).decode() for name in names}

    def cancel(self) -> None:
        """Ask whoever works on a batch to stop; what is counted stays."""
        if self.open:
            replace_file(self.path / "cancelled", b"")

    def fail(self, detail: str) -> None:
        """Keep why a batch failed."""
        write_json(self.path / "failed.json", {"detail": detail})

    def write_progress(self, **values: int) -> None:
        """Write how far a batch is."""
        replace_file(self.path / "progress.json", progress_bytes(**values))


class ServiceFolder:
    """The folder that holds a service's runs, at most `most` of them."""

    def __init__(self, root: Path, most: int):
        self.root, self._most, self._creating = root, most, threading.Lock()
        root.mkdir(parents=True, exist_ok=True)
        for left in root.glob(".new-*"):  # by a process that was killed while it took a run in
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > _ABANDONED:
                    shutil.rmtree(left)

    def entries(self) -> list[Entry]:
        """Every run, the oldest first; those that somebody is removing are left out."""
        found = []
        for path in self.root.iterdir():
            if ID.fullmatch(path.name) and (path / "request.json").is_file():
                with suppress(FileNotFoundError):
                    found.append(((path / "request.json").stat().st_mtime, path.name, path))
        return [Entry(id, path) for _, id, path in sorted(found)]

    def described(self) -> list[dict[str, Any]]:
        """The state of every run, the newest first; those that cannot be read are left out."""
        found = []
        for entry in reversed(self.entries()):
            with suppress(VaubanError, OSError):  # removed meanwhile, or damaged
                found.append(entry.describe())
        return found

    def entry(self, id: str) -> Entry:
        """The run of this ID."""
        found = Entry(id, self.root / id) if ID.fullmatch(id) else None
        if found is None or not (found.path / "request.json").is_file():
            raise NoSuchRun("there is no run of this ID")
        return found

    def create(
        self,
        kind: str,
        settings: Mapping[str, Any],
        inputs: int,
        files: Mapping[str, bytes],
        run: Mapping[str, str] | None = None,
        classifier: Mapping[str, str] | None = None,
    ) -> Entry:
        """A new run; it is there with all its files, or not at all. `run`: the files of a run folder that is finished;
        `classifier`: who is asked."""
        id = secrets.token_hex(16)
        new = self.root / f".new-{id}"
        request = {"kind": kind, "settings": dict(settings), "inputs": inputs, "created": round(time.time(), 3)}
        request |= {} if classifier is None else {"classifier": dict(classifier)}
        try:
            self._make_room(new)
            for name, content in {**files, "request.json": json_bytes(request)}.items():
                replace_file(new / name, content)
            if run is not None:
                (new / "run").mkdir()
                for name, text in run.items():
                    replace_file(new / "run" / name, text.encode())
            os.rename(new, self.root / id)
            _sync(self.root)
        except OSError as problem:
            raise CannotWrite(f"{self.root} cannot be written: {problem.strerror or problem}") from problem
        finally:
            shutil.rmtree(new, ignore_errors=True)  # there only if something went wrong
        return Entry(id, self.root / id)

    def _make_room(self, new: Path) -> None:
        """Make the folder of a new run, unless there are as many as may be."""
        with self._creating:
            taken = sum(1 for path in self.root.iterdir() if ID.fullmatch(path.name.removeprefix(".new-")))
            if taken >= self._most:
                raise Full(f"the service keeps {self._most} runs and takes no more: its owner can remove old ones")
            new.mkdir()


def _sync(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def progress_bytes(**values: int) -> bytes:
    """How far a run is, as a file."""
    return json.dumps({**values, "at": time.time()}).encode()


def array_bytes(array: NDArray[Any]) -> bytes:
    """An array as numpy.save writes it."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()
