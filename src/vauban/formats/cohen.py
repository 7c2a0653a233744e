"""The table of Cohen et al.'s certify.py and of the many tools that copied it: one line per input, separated by tabs. [Cohen2019]

    idx label predict radius correct time

`label` is the true one, `predict` the certified one, or -1 where the classifier abstains (the radius is then 0.0), `correct` 1
where both are equal, `time` the duration as Python prints a timedelta. Tables of predict.py have no radius.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vauban.errors import BadInput
from vauban.files import replace_file
from vauban.formats.results import Results
from vauban.report.numbers import asked_radius

COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
ABSTAINED = -1
_UNKNOWN = "0:00:00"


def recognises(path: Path) -> bool:
    """Whether a file begins with the names of these columns."""
    if not path.is_file():
        return False
    with path.open("rb") as opened:
        return opened.read(10).startswith(b"idx\tlabel\t")


def read(path: Path, threat: str | None = None) -> Results:
    """Read a table; `threat`: what its radii are distances in, which the file does not say."""
    lines = _text(path).splitlines()
    names = lines[0].split("\t") if lines else []
    missing = [name for name in COLUMNS[:4] if name not in names]
    if missing:
        what = (
            "it is a table of predictions"
            if names == ["idx", "label", "predict", "correct", "time"]
            else "it is another file"
        )
        raise BadInput(f"{path} has no column {missing[0]}: {what}; a table with {', '.join(COLUMNS)} is needed")
    rows = [_row(path, number, line, names) for number, line in enumerate(lines[1:], 2) if line.strip()]
    if not rows:
        raise BadInput(f"{path} has no line besides its header: results of one input or more are needed")
    index, truth, label, radius = (np.array([row[i] for row in rows]) for i in range(4))
    abstained = label == ABSTAINED
    return Results(
        index=index.astype(np.int64),
        label=label.astype(np.int64),
        radius=np.where(abstained, np.nan, radius.astype(np.float64)),
        threat=threat,
        truth=truth.astype(np.int64),
        times=[str(row[4]) for row in rows] if "time" in names else None,
    )


def write(path: Path, results: Results) -> tuple[str, ...]:
    """Write a table; radii are rounded down, and times that are not known are 0:00:00.

    A note says where radii are not in L2, or not known to be and not from such a table.
    """
    truth, label, abstained = results.needed("truth"), results.needed("label"), results.abstained
    lines = ["\t".join(COLUMNS)]
    for i, number in enumerate(results.index):
        given = ABSTAINED if abstained[i] else int(label[i])
        radius = "0.0" if abstained[i] else asked_radius(float(results.needed("radius")[i]))
        time = _UNKNOWN if results.times is None else results.times[i]
        lines.append("\t".join(map(str, (number, truth[i], given, radius, int(given == truth[i]), time))))
    replace_file(path, ("\n".join(lines) + "\n").encode())
    if results.threat == "l2" or (results.threat is None and results.times is not None):
        return ()
    measured = results.threat or "in a distance that the file does not name"
    return (f"readers of this table take radii for L2, and these are {measured}: say so beside it",)


def _row(path: Path, number: int, line: str, names: list[str]) -> tuple[int, int, int, float, str]:
    fields = dict(zip(names, line.split("\t"), strict=False))
    try:
        whole = int(fields["idx"]), int(fields["label"]), int(fields["predict"])
        radius = float(fields["radius"])
        if not radius >= 0 or whole[0] < 0 or whole[1] < 0 or whole[2] < ABSTAINED:
            raise ValueError
    except (KeyError, ValueError):
        raise BadInput(
            f"{path} line {number}: whole numbers idx, label, predict (-1: abstained) and a radius of 0 or more are needed"
        ) from None
    return *whole, radius, fields.get("time", _UNKNOWN)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not a text file: a table with {', '.join(COLUMNS)} is needed") from None
