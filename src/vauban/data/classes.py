"""The parameter classes= of data sets: how it is read, and how it is written for names that are known."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from vauban.data.dataset import numbered
from vauban.errors import BadInput
from vauban.specs import Spec

_LONGEST = 300  # characters of a text that is printed to be typed


def read_classes(text: str) -> tuple[str, ...]:
    """Read classes: their number, their names joined by /, or a file with a name on each line."""
    if text.isdecimal():
        if text == "0":
            raise BadInput("there must be at least one class")
        return numbered(int(text))
    file = Path(text).expanduser()
    if _is_file(file):
        try:
            names = tuple(line.strip() for line in file.read_text("utf-8").splitlines() if line.strip())
        except UnicodeDecodeError:
            raise BadInput(f"{text} is no text in UTF-8: a name on each line is needed") from None
    else:
        names = tuple(text.split("/"))
    if not names or "" in names or len(set(names)) < len(names):
        raise BadInput(
            f"{text} is no list of different names joined by /, such as cat/dog, nor a file with one on each line"
        )
    return names


def few(names: Sequence[str]) -> str:
    """The first names of classes, for a sentence."""
    return ", ".join(names[:5]) + (", …" if names[5:] else "")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long for a file
        return False


def stating(names: Sequence[str], count: int = 0, data: Spec | None = None) -> str:
    """The words that tell how to state these classes, which read back the same: `--data …,classes=no/yes`.

    `count`: how many there are with those that are not known, whose names are then CLASS2, …; `data`: the data set that
    classes= is for, without which the words are `classes=no/yes`.
    """
    count = max(count, len(names))
    unnamed = [f"CLASS{label}" for label in range(len(names), count)]
    wanted = (*names, *unnamed)
    if set(names) <= set(map(str, range(count))):
        return _written(str(count), data)
    joined = "/".join(wanted)
    if len(joined) <= _LONGEST and _reads_back(joined, wanted):
        said = _written(joined, data)
        return f"{said} with the right name for {unnamed[0]}{', …' if unnamed[1:] else ''}" if unnamed else said
    if any(name != name.strip() or len(name.splitlines()) != 1 for name in names):
        return f"other names first: {next(n for n in names if n != n.strip() or len(n.splitlines()) != 1)!r} cannot be written"
    return f"{_written('FILE', data)}, where FILE is a text file of the {count} names, one on each line"


def _written(value: str, data: Spec | None) -> str:
    if data is None or not data.params:
        return f"classes={value}"
    return f"--data {shlex.quote(str(Spec(data.name, {**data.params, 'classes': value})))}"


def _reads_back(text: str, names: Sequence[str]) -> bool:
    """Whether classes=TEXT at the end of a spec is read as these names."""
    try:
        return read_classes(Spec.parse(f"table:classes={text}").params["classes"]) == tuple(names)
    except (BadInput, KeyError):
        return False
