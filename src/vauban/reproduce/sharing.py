"""Entries that cast no vote of their own: other claims from the votes of another entry."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from vauban.errors import BadInput

SHARED = ("data", "smoothing", "grid", "train", "certify", "choose", "quick")
"""What such an entry has from the one whose votes it takes."""
OWN = {"printed", "printed_model"}
"""What of its training such an entry may have of its own."""


def with_votes_of(name: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """What an entry says, and what it has from the shipped entry that `votes_of` names: all that its runs depend on. The training
    that `--printed` takes may be its own."""
    if "votes_of" not in said:
        return dict(said)
    other = _shipped(name, said["votes_of"])
    own = said.get("train", {})
    doubled = [key for key in SHARED if key in said and key != "train"]
    doubled += [f"[train] {key}" for key in own if key not in OWN] if isinstance(own, Mapping) else ["train"]
    if doubled:
        raise BadInput(
            f"{name}: {doubled[0]} comes from {said['votes_of']}, whose votes it takes: leave it out, or leave votes_of out"
        )
    if "votes_of" in other or "smoothing" not in other:
        raise BadInput(f"{name}: votes_of = {said['votes_of']!r}: an entry that smooths inputs by itself is needed")
    shared = {key: other[key] for key in SHARED if key in other}
    return {**shared, **said, "train": {**other.get("train", {}), **own}}


def _shipped(name: str, wanted: Any) -> dict[str, Any]:
    file = files("vauban.reproduce") / "entries" / f"{wanted}.toml"
    if not isinstance(wanted, str) or "/" in wanted or not file.is_file():
        raise BadInput(f"{name}: votes_of = {wanted!r} is no entry: vauban reproduce --list shows all")
    return tomllib.loads(file.read_text(encoding="utf-8"))
