"""The folders that are searched for data files, and the path= and split= parameters."""

from __future__ import annotations

import os
from pathlib import Path

from vauban.errors import BadInput
from vauban.specs import Parameter, choose

SEARCHED = "$VAUBAN_DATA, ./data, ~/.cache/vauban"


def read_split(text: str) -> str:
    """Read test, train or all (all is train, then test)."""
    return choose("split", text, ("test", "train", "all"))


def parts(split: str) -> tuple[str, ...]:
    """Return the parts of `split`, in the order in which they are joined."""
    return ("train", "test") if split == "all" else (split,)


SPLIT = Parameter(read_split, default="test", example="test")
PATH = Parameter(str, required=True, example="FOLDER")


def search_roots() -> list[Path]:
    """Return the folders searched when no path= is given, in order of preference."""
    named = os.environ.get("VAUBAN_DATA")
    roots = [Path(named).expanduser()] if named else []
    return [*roots, Path("data"), Path("~/.cache/vauban").expanduser()]


def existing_folder(path: str) -> Path:
    """Return the folder at `path`, with ~ expanded; refused if it does not exist."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise BadInput(f"path={path} {what}; a folder is needed (now in {Path.cwd()})")
    return folder
