"""Names of the columns of tables: a model that was trained on some is given the same ones, in their order; imports no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from vauban.errors import BadInput

COLUMNS = "vauban.columns"
"""The entry of a model file that names the columns of the table its network was trained on."""


def columns_of(x: Any) -> tuple[str, ...] | None:
    """The names of the columns of a data set of `vauban.data` or of a data frame; None where they have none but their numbers."""
    names = getattr(x, "features", None) if hasattr(x, "fingerprint") else getattr(x, "columns", None)
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        return None
    found = tuple(names)
    return None if found == tuple(str(number) for number in range(len(found))) else found


def metadata_of(training: Any) -> dict[str, str]:
    """What a model file holds of the columns of its training table, or of a pair (table, labels)."""
    names = columns_of(training[0] if isinstance(training, tuple) and training else training)
    return {} if names is None else {COLUMNS: json.dumps(names)}


def refuse_other_columns(fitted: Sequence[str], x: Any) -> None:
    """Refuse a table with as many columns under other names, or in another order, than a model was trained on."""
    names = columns_of(x)
    if names is None or len(names) != len(fitted) or list(names) == list(fitted):
        return
    first = next(i for i, (one, other) in enumerate(zip(fitted, names, strict=True)) if one != other)
    raise BadInput(
        f"column {first} of the table is {names[first]!r}, and the classifier was fitted on {fitted[first]!r}: "
        "the columns of its training table are needed, in their order"
    )


def check_columns(metadata: Mapping[str, str], x: Any) -> None:
    """Refuse a table whose columns are not those that a model file with this metadata names."""
    with suppress(json.JSONDecodeError):
        names = json.loads(metadata.get(COLUMNS, "null"))
        if isinstance(names, list):
            refuse_other_columns([str(name) for name in names], x)
