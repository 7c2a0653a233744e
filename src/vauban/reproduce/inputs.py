"""Which inputs an entry certifies, which of them choose its settings, and whether its data are here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vauban.errors import BadInput
from vauban.reproduce.entry import Entry


def chosen_inputs(spec: str, text: str) -> Any:
    """The inputs first:last:step of the test split of a data set, as Python's slices; empty for all.

    A selection that begins at 0 is kept as a rule, which verify can check; any other is one by hand.
    """
    from vauban.data import load, load_some
    from vauban.data.registry import with_split

    whole, chosen = with_split(spec, "test"), _read(text)
    if chosen is None:
        return load(whole)
    if not chosen.start:
        return load_some(whole, chosen.step, None if chosen.stop is None else -(-chosen.stop // chosen.step))
    data = load(whole)
    numbers = np.arange(len(data), dtype=np.int64)[chosen]
    _refuse_none(text, chosen, len(data))
    from vauban.runs.sections import Selection

    return replace(
        data,
        images=data.images[numbers],
        labels=None if data.labels is None else data.labels[numbers],
        names=None if data.names is None else tuple(data.names[i] for i in numbers),
        index=data.index[numbers],
        taken=Selection(data.selection.size, data.selection.sha256),
    )


def filled_in(text: str, point: Mapping[str, Any]) -> str:
    """A text of inputs with a point's values in place of the axes that it names."""
    try:
        return text.format(**point)
    except (AttributeError, LookupError, ValueError):
        raise BadInput(
            f"inputs = {text!r} cannot be filled in: only axes of the grid stand in braces, here {', '.join(point) or 'none'}"
        ) from None


def check_inputs(spec: str, text: str) -> None:
    """Refuse a text that `chosen_inputs` cannot read, or by which it takes none; pictures in files are not decoded."""
    from vauban.data import load
    from vauban.data.registry import with_split

    chosen = _read(text)
    if chosen is not None and chosen.start:
        _refuse_none(text, chosen, len(load(with_split(spec, "test"), stream=True)))


def _read(text: str) -> slice | None:
    """The slice that a text names, None for all inputs; one that takes none of any data set is refused."""
    if not text or text == "all":
        return None
    found = re.fullmatch(r"([0-9]{0,18}):([0-9]{0,18})(?::([1-9][0-9]{0,17}))?", text)
    if not found:
        raise BadInput(f"inputs = {text!r}: all, or first:last:step is needed, such as ::20 or 5000:10000")
    first, last, every = (int(part) if part else None for part in found.groups())
    if last is not None and last <= (first or 0):
        raise BadInput(f"inputs = {text!r} selects none: last must be larger than first, such as 5000:10000")
    return slice(first, last, every or 1)


def _refuse_none(text: str, chosen: slice, count: int) -> None:
    """Refuse a slice that takes none of so many inputs."""
    if not len(range(count)[chosen]):
        raise BadInput(f"inputs = {text!r} selects none of {count:,} inputs: give other numbers")


def refuse_inputs_that_choose(entry: Entry) -> None:
    """Refuse an entry whose test inputs include some of those that choose its settings."""
    if not entry.choose:
        return
    spec, points = str(entry.certify.get("data", entry.data)), entry.points()

    def indices(given: Mapping[str, Any]) -> tuple[str, set[int]]:
        texts = sorted({filled_in(str(given.get("inputs", "")), point) for point in points})
        return " and ".join(texts) or "all", set().union(*(chosen_inputs(spec, text).index.tolist() for text in texts))

    (choosing, those), (tested, these) = indices(entry.choose), indices(entry.certify)
    if those & these:
        raise BadInput(
            f"{entry.name}: {len(those & these):,} of the inputs {tested} are among the inputs {choosing}, which choose the "
            "settings: give others, such as 1::2 where ::2 choose"
        )


def refuse_missing_data(entry: Entry) -> None:
    """Say which files an entry needs where they are not there, before anything is trained."""
    if entry.kind != "runs":
        return
    from vauban.data import load_some
    from vauban.data.kinds import KINDS
    from vauban.data.registry import with_split

    for split in ("train", "test"):
        given = with_split(str((entry.train if split == "train" else entry.certify).get("data", entry.data)), split)
        found = KINDS[given.name].found
        if found is not None and "path" not in given.params and found():
            continue
        try:
            load_some(given, 1, 1)
        except (BadInput, OSError) as problem:
            needs = f"; needed: {entry.needs}" if entry.needs else ""
            raise BadInput(f"{entry.name} needs data that are not here: {problem}{needs}") from None
