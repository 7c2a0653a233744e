"""Checks of a run folder from which no claim is derived: files, numbers of the manifest, and what nothing can check; no torch."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from vauban.errors import Lie
from vauban.files import PACKED, is_there, packed, read_packed
from vauban.runs.manifest import FILE, Manifest, required
from vauban.runs.store import EXTENSIONS, PICTURE, SEAL
from vauban.seed import FILE as SEED_FILE
from vauban.votes import MOST

VOTE_FILES = ("tallies.jsonl", "ballots.jsonl", "ballots.npz", "counts.jsonl")
_MOST = 2**31


def refuse_special_files(folder: Path) -> None:
    """Refuse a folder with a pipe or a device in it, whose content is another one each time, or has no end, and one with a folder
    where a run has a file."""
    for path in folder.iterdir():
        if path.exists() and not path.is_file() and not path.is_dir():
            raise Lie(f"{path} is no file that a run could have left, but a pipe or a device")
        if path.is_dir() and path.name.removesuffix(PACKED).endswith((".json", ".jsonl", ".csv", ".npz")):
            raise Lie(f"{path} is a folder, where a run has a file")


def refuse_torn_lines(folder: Path, sealed: Collection[str]) -> None:
    """Refuse a last line without its newline in sealed tallies: its votes would be missing, so a run cuts it off.

    Ballots may have one: a line of theirs may be written twice, and the second time be torn by a kill.
    """
    for path in (folder / name for name in ("tallies.jsonl", "counts.jsonl", "extensions.jsonl") if name in sealed):
        if not read_packed(path).endswith(b"\n"):
            raise Lie(f"{path} ends within a line, which a sealed run does not have")


def refuse_second_votes(folder: Path, sealed: Collection[str]) -> None:
    """Refuse a file of votes that the seal does not name, and gzipped lines about extensions, which no run has."""
    for path in (folder / name for name in VOTE_FILES):
        if path.name not in sealed and is_there(path):
            raise Lie(f"{path if path.exists() else packed(path)} exists, but the seal does not name it")
    if packed(folder / EXTENSIONS).exists():
        raise Lie(f"{packed(folder / EXTENSIONS)} exists: of a run only manifest, votes and claims may be gzipped")


def refuse_packed_beside(folder: Path, names: Iterable[str]) -> None:
    """Refuse a file that is there both as it is and gzipped: which one is read is not for a reader to guess."""
    for path in (folder / name for name in names):
        if path.exists() and packed(path).exists():
            raise Lie(f"{path} and {packed(path).name} both exist: a run has its manifest, votes and claims once")


def check_numbers(path: Path, manifest: Manifest) -> None:
    """Refuse what no run of this version writes about compute, names, seed and required fields."""
    compute, names, raw = manifest.compute, manifest.data.names, manifest.raw
    votes = max(manifest.settings.n or 0, manifest.settings.n0)
    if votes > MOST:
        raise Lie(f"{path}: no run casts {votes} votes for an input; {MOST} are the most")
    for what, number in (("rows", compute.rows), ("block", compute.block), ("threads", compute.threads)):
        if number is not None and not (type(number) is int and 1 <= number < _MOST):
            raise Lie(f"{path}: compute.{what} must be a whole number from 1, not {number!r}")
    if compute.block is not None and compute.rows % compute.block:
        raise Lie(f"{path}: compute.block={compute.block} does not divide rows={compute.rows}")
    if compute.stochastic not in (None, "views", "rows") or compute.rows_differ not in (None, True):
        raise Lie(
            f"{path}: compute.stochastic must be views or rows, and compute.rows_differ true, where they are given"
        )
    looks = manifest.described.get("looks") or []
    if compute.rows_differ and any(look % compute.rows for look in looks):
        raise Lie(
            f"{path}: scores depend on the row, so rows={compute.rows} must divide every look, that every row votes alike"
        )
    if names is not None and (type(names) is not list or len(names) != len(manifest.data.index)):
        raise Lie(f"{path}: data.names must be one for each of {len(manifest.data.index)} inputs")
    missing = set(required(manifest)) - set(raw.get("requires", []))
    if missing:
        raise Lie(
            f"{path}: requires must name {', '.join(sorted(missing))}, without which a reader would claim too much"
        )
    if not isinstance(manifest.versions, dict):
        raise Lie(f"{path}: versions must be an object, not {manifest.versions!r}")


def check_commitment(path: Path, commitment: Any) -> None:
    """Refuse a sampled run that commits to no seed: what is known of its noise could not be said."""
    if not (isinstance(commitment, str) and re.fullmatch(r"[0-9a-f]{64}", commitment)):
        raise Lie(f"{path}: a sampled run commits to its seed by 64 hex digits, not by {commitment!r}")


def other_files(folder: Path, sealed: Collection[str]) -> tuple[str, ...]:
    """A sentence about the files that no seal names, if there are any."""
    packable = (FILE, *VOTE_FILES, *(name for name in sealed if name.endswith(".csv")))
    own = {FILE, SEAL, SEED_FILE, PICTURE, *sealed, *(packed(folder / name).name for name in packable)}
    others = sorted(path.name for path in folder.iterdir() if path.name not in own and not path.name.startswith("."))
    shown = ", ".join(others[:8]) + (f" and {len(others) - 8} more" if len(others) > 8 else "")
    return (f"Files that the seal does not name and nothing checks: {shown}.",) if others else ()
