"""The counts of Certify_Topk: a line per input, the votes for each class and then the label to certify, separated by spaces.
[Jia2020]"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vauban.errors import BadInput
from vauban.files import replace_file
from vauban.formats.results import Results
from vauban.runs.foreign_counts import read_counts


def recognises(path: Path) -> bool:
    """Whether a file is a text whose first line has three numbers or more."""
    try:
        with path.open() as opened:
            fields = opened.readline().split("#", 1)[0].replace(",", " ").split()
    except (OSError, UnicodeDecodeError):
        return False
    return len(fields) > 2 and all(field.isdecimal() for field in fields)


def read(path: Path) -> Results:
    """Read counts and labels; the labels are also taken for the true ones."""
    counts, labels = read_counts(path)
    return Results(index=np.arange(len(counts)), label=labels, truth=labels, counts=counts)


def write(path: Path, results: Results) -> None:
    """Write counts and labels; an input whose votes chose no label is refused, since the layout has no place for it."""
    counts, label = results.needed("counts"), results.needed("label")
    if (label < 0).any():
        raise BadInput(f"input {int(results.index[int((label < 0).argmax())])} has no label to certify: write --to csv")
    lines = [" ".join(map(str, [*row, one])) for row, one in zip(counts.tolist(), label.tolist(), strict=True)]
    replace_file(path, ("\n".join(lines) + "\n").encode())
