"""Which inputs an entry certifies, and which of them choose its settings."""

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

    whole = with_split(spec, "test")
    if not text or text == "all":
        return load(whole)
    found = re.fullmatch(r"(\d*):(\d*)(?::([1-9]\d*))?", text)
    if not found:
        raise BadInput(f"inputs = {text!r}: all, or first:last:step is needed, such as ::20 or 5000:10000")
    first, last, every = (int(part) if part else None for part in found.groups())
    step = every or 1
    if not first:
        return load_some(whole, step, None if last is None else max(1, -(-last // step)))
    data = load(whole)
    numbers = np.arange(len(data), dtype=np.int64)[first:last:step]
    if not len(numbers):
        raise BadInput(f"inputs = {text!r} selects none of {len(data):,} inputs: give other numbers")
    from vauban.runs.sections import Selection

    return replace(
        data,
        images=data.images[numbers],
        labels=None if data.labels is None else data.labels[numbers],
        names=None if data.names is None else tuple(data.names[i] for i in numbers),
        index=data.index[numbers],
        taken=Selection(data.selection.size, data.selection.sha256),
    )


def refuse_inputs_that_choose(entry: Entry) -> None:
    """Refuse an entry whose test inputs include some of those that choose its settings."""
    if not entry.choose:
        return
    spec, points = str(entry.certify.get("data", entry.data)), entry.points()

    def indices(given: Mapping[str, Any]) -> tuple[str, set[int]]:
        texts = sorted({str(given.get("inputs", "")).format(**point) for point in points})
        return " and ".join(texts) or "all", set().union(*(chosen_inputs(spec, text).index.tolist() for text in texts))

    (choosing, those), (tested, these) = indices(entry.choose), indices(entry.certify)
    if those & these:
        raise BadInput(
            f"{entry.name}: {len(those & these):,} of the inputs {tested} are among the inputs {choosing}, which choose the "
            "settings: give others, such as 1::2 where ::2 choose"
        )
