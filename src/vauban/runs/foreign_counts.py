"""Reads text files of counts written by other tools."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput


def read_counts(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Counts [m, c] and labels [m] from a text file: one input per row, the label to certify as the last column.

    Columns are separated by white space or commas; empty lines and comments after a # are skipped.
    """
    rows: list[list[int]] = []
    try:
        text = path.read_text()
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not a text file of counts") from None
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split("#", 1)[0].replace(",", " ").split()
        if not fields:
            continue
        try:
            row = [_whole(field) for field in fields]
            np.array(row, dtype=np.int64)
        except (ValueError, OverflowError):
            raise BadInput(
                f"{path} line {number}: whole numbers are needed, counts per class and then the label"
            ) from None
        if rows and len(row) != len(rows[0]):
            raise BadInput(f"{path} line {number} has {len(row)} columns where the first row has {len(rows[0])}")
        rows.append(row)
    if not rows or len(rows[0]) < 3:
        raise BadInput(f"{path}: each row needs the counts of two or more classes and then the label to certify")
    table = np.array(rows, dtype=np.int64)
    return table[:, :-1], table[:, -1]


def _whole(field: str) -> int:
    if not field.isascii() or "_" in field:
        raise ValueError(field)
    try:
        return int(field)
    except ValueError:
        value = float(field)
        if not value.is_integer() or abs(value) > 2**53:
            raise
        return int(value)
