"""Reads the manifests of ensembles; imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vauban.errors import Lie, RunRefused
from vauban.runs.manifest import FILE, has_manifest, read_unchecked

SCHEMA = 1
KIND = "ensemble"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of the ensemble in `folder`."""
    path = folder / FILE
    if not has_manifest(folder):
        raise RunRefused(f"{folder} has no {FILE}: it is not what a vauban poison command left")
    manifest = read_unchecked(folder)
    if "schema" not in manifest:
        raise Lie(f"{path} cannot be read as a manifest: it states no schema")
    if manifest.get("kind") != KIND:
        raise RunRefused(f"{path} is of kind {manifest.get('kind')!r}: what vauban poison train wrote is needed here")
    if manifest["schema"] != SCHEMA:
        raise RunRefused(f"{path} has schema {manifest['schema']}; this version of Vauban reads schema {SCHEMA}")
    return manifest


def kind_of(folder: Path) -> str | None:
    """The kind that a folder's manifest states; None if there is no readable manifest."""
    try:
        return read_unchecked(folder).get("kind")
    except Lie:
        return None
