"""Checks by which rule the inputs of a run were taken from their data set, and against the data set itself; imports no torch."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import Lie, RunRefused
from vauban.files import arrays_sha256
from vauban.runs.sections import DataSection, Selection

_MOST_SHUFFLED = 10**8  # inputs: more are not shuffled in a time that a reader would wait


def check_rule(path: Path, data: DataSection) -> None:
    """Refuse a manifest at `path` whose index is not what its rule of selection gives; that of an older run has no rule."""
    selection = data.selection
    if selection is None:
        return
    numbers = (selection.size, selection.every, selection.limit)
    if any(number is not None and (type(number) is not int or number < 1) for number in numbers):
        raise Lie(
            f"{path}: the selection has size, every and limit {numbers}; whole numbers from 1, or null, are needed"
        )
    if selection.size is not None and max(data.index) >= selection.size:
        raise Lie(f"{path}: input {max(data.index)} is outside the data set, which has {selection.size} inputs")
    if selection.every is None:
        return
    skipped = _skipped(path, selection)
    end = (len(data.index) + len(skipped)) * selection.every if selection.size is None else selection.size
    taken = list(range(end) if selection.shuffle is None else shuffled(end, selection.shuffle))
    taken = taken[:: selection.every][: selection.limit]
    if not skipped <= set(taken):
        raise Lie(f"{path}: it skips input {min(skipped - set(taken))}, which its rule does not select")
    right = [number for number in taken if number not in skipped]
    if data.index != right:
        raise Lie(
            f"{path}: its rule selects {words(selection)}: {_short(right)}; its inputs are {_short(data.index)}, so some were "
            "left out or put in"
        )
    if everything(selection) and data.names is None and selection.sha256 != data.sha256:
        raise Lie(f"{path}: all inputs are taken, but the fingerprint of the data set is not that of the inputs")


def _skipped(path: Path, selection: Selection) -> set[int]:
    """The inputs that were skipped; a manifest whose shuffle or list of them no run could have written is refused."""
    size = selection.size or 0
    seed, skipped = selection.shuffle, selection.skipped
    if seed is not None and not (type(seed) is int and seed >= 0 and 0 < size <= _MOST_SHUFFLED):
        raise Lie(f"{path}: {size} inputs shuffled by {seed!r}, which no run writes")
    if skipped is None:
        return set()
    if not isinstance(skipped, list) or any(type(number) is not int for number in skipped):
        raise Lie(f"{path}: the skipped inputs are {skipped!r}; a list of whole numbers is needed")
    if not skipped or skipped != sorted(set(skipped)):
        raise Lie(f"{path}: the skipped inputs are {skipped!r}; each is listed once and in order, and none is null")
    return set(skipped)


def shuffled(size: int, seed: int) -> list[int]:
    """The numbers 0 .. size - 1 in the order of the SHA-256 of "vauban shuffles SEED: NUMBER", both in decimal.

    >>> shuffled(6, 1) == sorted(range(6), key=lambda i: hashlib.sha256(f"vauban shuffles 1: {i}".encode()).digest())
    True
    """
    begun = hashlib.sha256(f"vauban shuffles {seed}: ".encode())

    def key(number: int) -> bytes:
        digest = begun.copy()
        digest.update(str(number).encode())
        return digest.digest()

    return sorted(range(size), key=key)


def everything(selection: Selection) -> bool:
    """Whether every input of the data set is taken, in its order."""
    return selection == Selection(selection.size, selection.sha256, every=1)


def words(selection: Selection | None) -> str:
    """The rule of a selection in words."""
    if selection is None:
        return "a selection that is not recorded"
    if selection.every is None:
        return "a selection by hand"
    size = "" if selection.size is None else f" of {selection.size}"
    some = len(selection.skipped or [])
    mixed = "" if selection.shuffle is None else f" in the order shuffled by {selection.shuffle}"
    left = f" without {some} whose files cannot be read" if some else ""
    if (selection.every, selection.limit) == (1, None):
        return f"all inputs{size}{mixed}{left}"
    limit = "" if selection.limit is None else f", at most {selection.limit},"
    taken = f"every input{limit}{size}" if selection.every == 1 else f"inputs 0, {selection.every}, …{limit}{size}"
    return f"{taken}{mixed}{left}"


def check_data(own: DataSection, data: Any) -> str:
    """Compare the inputs of a run with a data set of `vauban.data`, the whole one or what its rule selects; says what they are.

    Other inputs or labels than the manifest's are a `Lie`; a data set of another size or fingerprint is refused.
    """
    selection = own.selection
    if selection is None or selection.every is None:
        _check_whole(selection, data)
        positions = _positions(own, data)
        images, labels = data.images[positions], None if data.labels is None else data.labels[positions]
        _check_content(own, data.name, images, labels)
        return f"{words(selection)}: {len(own.index)} of the {len(data.images)} inputs of {data.name}"
    _check_whole(selection, data)
    rule = replace(selection, skipped=None)
    taken = data if data.taken == rule else data.select(rule.every, rule.limit, rule.shuffle)
    if selection.skipped:
        taken = taken.without(_unreadable(selection.skipped, taken))
    if taken.index.tolist() != own.index:
        raise Lie(
            f"{words(selection)} of {data.name} are {_short(taken.index.tolist())}; the run is about {_short(own.index)}: some "
            "were left out or put in"
        )
    _check_content(own, data.name, taken.images, taken.labels)
    return f"{words(selection)} of {data.name}, as the manifest's rule selects them"


def _unreadable(skipped: list[int], taken: Any) -> list[int]:
    """The inputs that the run skipped; one of them that can be read in `taken`, a data set of `vauban.data`, is a `Lie`."""
    bad = {int(taken.index[position]) for position in taken.unreadable(skipped)}
    readable = [number for number in skipped if number not in bad]
    if readable:
        raise Lie(f"the run skipped input {readable[0]} as one that cannot be read, and in {taken.name} it can be read")
    return skipped


def _check_whole(selection: Selection | None, data: Any) -> None:
    """Refuse a data set of another size or fingerprint than the one from which the run took its inputs."""
    if selection is None or selection.size is None:
        return
    there = data.selection
    if (there.size, there.sha256) != (selection.size, selection.sha256):
        raise RunRefused(
            f"{data.name} has {there.size} inputs and the fingerprint {str(there.sha256)[:12]}…; the run took its inputs from "
            f"{selection.size} with {str(selection.sha256)[:12]}…: this is another data set, or inputs of it were left out "
            "before the run; give the run's with --data"
        )


def _positions(own: DataSection, data: Any) -> list[int]:
    where = {int(number): position for position, number in enumerate(data.index)}
    missing = [number for number in own.index if number not in where]
    if missing:
        raise RunRefused(f"{data.name} has no input {missing[0]}: the whole data set of the run is needed, {own.spec}")
    return [where[number] for number in own.index]


def _check_content(own: DataSection, name: str, images: NDArray[Any], labels: NDArray[np.int64] | None) -> None:
    if own.label is None:
        labels = None
    elif labels is None:
        raise RunRefused(f"{name} has no labels, and the run has: the data set with its labels is needed")
    elif own.label != labels.tolist():
        raise Lie(f"the true labels in the manifest are not those of {name}")
    if arrays_sha256(images, labels) != own.sha256:
        raise Lie(f"{name}: inputs {_short(own.index)} are not those of the run (sha256 differs)")


def _short(index: list[int]) -> str:
    return f"{', '.join(map(str, index[:3]))}{', …' if len(index) > 3 else ''} ({len(index)})"
