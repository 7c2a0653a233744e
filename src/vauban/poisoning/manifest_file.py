"""Reads the manifests of ensembles and of poisoning runs; imports no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vauban.errors import Lie, RunRefused

FILE = "manifest.json"
SCHEMA = 1


def read_manifest(folder: Path, kind: str) -> dict[str, Any]:
    """The manifest in `folder`, which must be of this kind ("ensemble" or "poisoning")."""
    path = folder / FILE
    if not path.is_file():
        raise RunRefused(f"{folder} has no {FILE}: it is not what a vauban poison command left")
    try:
        manifest = json.loads(path.read_bytes())
        found, schema = manifest.get("kind"), manifest["schema"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Lie(f"{path} cannot be read as a manifest") from None
    if found != kind:
        needed = {"ensemble": "what vauban poison train wrote", "poisoning": "what vauban poison certify wrote"}[kind]
        raise RunRefused(f"{path} is of kind {found!r}: {needed} is needed here")
    if schema != SCHEMA:
        raise RunRefused(f"{path} has schema {schema}; this version of Vauban reads schema {SCHEMA}")
    return manifest


def kind_of(folder: Path) -> str | None:
    """The kind that a folder's manifest states; None if there is no readable manifest."""
    try:
        manifest = json.loads((folder / FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return manifest.get("kind") if isinstance(manifest, dict) else None
