"""Boundaries on disk, by their parameters: written whole or not at all, and computed again if anything is amiss."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import CannotWrite
from vauban.files import replace_file

Counts = NDArray[np.int64]


def folder() -> Path:
    """Where boundaries are kept: $VAUBAN_CACHE, else `vauban` in the user's cache folder."""
    named = os.environ.get("VAUBAN_CACHE")
    if named:
        return Path(named).expanduser() / "boundaries"
    users = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or "~/.cache"
    return Path(users).expanduser() / "vauban" / "boundaries"


def kept(parameters: Mapping[str, Any], compute: Callable[[], Counts], most: Counts) -> Counts:
    """The boundaries [J] kept under `parameters`, or computed and kept now.

    A file counts only if its checksum, its parameters and its form (one whole number between 0 and `most` per look) are
    right. A folder that cannot be written to costs time and nothing else.
    """
    name = _digest(parameters)
    path = folder() / f"{name}.json"
    found = _read(path, parameters, most)
    if found is not None:
        return found
    wins = compute()
    record = {"parameters": dict(parameters), "wins": wins.tolist()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps({**record, "checksum": _digest(record)}).encode())
    except (CannotWrite, OSError):
        pass
    return wins


def _read(path: Path, parameters: Mapping[str, Any], most: Counts) -> Counts | None:
    try:
        content = json.loads(path.read_bytes())
        record = {"parameters": content["parameters"], "wins": content["wins"]}
        if content["checksum"] != _digest(record) or record["parameters"] != dict(parameters):
            return None
        wins = np.array(record["wins"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if wins.dtype.kind != "i" or wins.shape != most.shape or (wins < 0).any() or (wins > most).any():
        return None
    return wins.astype(np.int64)


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
