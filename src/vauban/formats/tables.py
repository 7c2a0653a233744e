"""Claims as Vauban's own tables: CSV and Parquet with index, label, radius, abstained and truth."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vauban.errors import BadInput, MissingExtra
from vauban.files import replace_file
from vauban.formats.results import Results
from vauban.report.numbers import asked_radius

COLUMNS = ("index", "label", "radius", "abstained", "truth")


def is_csv(path: Path) -> bool:
    """Whether a file begins with the names of these columns."""
    if not path.is_file():
        return False
    with path.open("rb") as opened:
        return opened.read(19).startswith(b"index,label,radius,")


def is_parquet(path: Path) -> bool:
    """Whether a file is a Parquet file."""
    if not path.is_file():
        return False
    with path.open("rb") as opened:
        return opened.read(4) == b"PAR1"


def read_csv(path: Path) -> Results:
    """Read claims that `vauban certify` or `vauban claim` wrote."""
    with path.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    names = rows[0] if rows else COLUMNS
    return _results(path, {name: [row[name] for row in rows] for name in COLUMNS if name in names})


def write_csv(path: Path, results: Results) -> None:
    """Write claims as CSV; radii are rounded down."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    columns = _columns(results)
    for row in zip(*columns.values(), strict=True):
        index, label, radius, abstained, truth = row
        shown = "" if radius is None else asked_radius(radius)
        writer.writerow([index, label, shown, str(abstained).lower(), "" if truth is None else truth])
    replace_file(path, out.getvalue().encode())


def read_parquet(path: Path) -> Results:
    """Read claims from a Parquet file."""
    parquet = _parquet()
    try:
        table = parquet.read_table(path)
        columns, threat = table.to_pydict(), (table.schema.metadata or {}).get(b"threat", b"").decode()
    except Exception as problem:
        raise BadInput(f"{path} cannot be read ({type(problem).__name__}): a Parquet file is needed") from None
    return replace(_results(path, columns), threat=threat or None)


def write_parquet(path: Path, results: Results) -> None:
    """Write claims as Parquet: the columns of the CSV, radii as float64 (null where abstained), and counts per class."""
    parquet = _parquet()
    import pyarrow

    columns: dict[str, Any] = {
        name: pyarrow.array(values, kind)
        for (name, values), kind in zip(
            _columns(results).items(),
            (pyarrow.int64(), pyarrow.int64(), pyarrow.float64(), pyarrow.bool_(), pyarrow.int64()),
            strict=True,
        )
    }
    if results.counts is not None:
        columns |= {f"count_{c}": pyarrow.array(results.counts[:, c]) for c in range(results.counts.shape[1])}
    table = pyarrow.table(columns).replace_schema_metadata({"threat": results.threat or ""})
    packed = io.BytesIO()
    parquet.write_table(table, packed)
    replace_file(path, packed.getvalue())


def _columns(results: Results) -> dict[str, list[Any]]:
    abstained = results.abstained.tolist()
    radii = [None if math.isnan(radius) else float(radius) for radius in results.needed("radius")]
    truth = [None] * len(results) if results.truth is None else results.truth.tolist()
    label = results.needed("label").tolist()
    return dict(zip(COLUMNS, (results.index.tolist(), label, radii, abstained, truth), strict=True))


def _results(path: Path, columns: dict[str, list[Any]]) -> Results:
    missing = [name for name in COLUMNS[:4] if name not in columns]
    if missing or not columns["index"]:
        lacks = f"no column {missing[0]}" if missing else "no line"
        raise BadInput(f"{path} has {lacks}: claims with the columns {', '.join(COLUMNS)} are needed")
    try:
        abstained = [str(one).lower() == "true" for one in columns["abstained"]]
        pairs = zip(abstained, columns["radius"], strict=True)
        radius = np.array([math.nan if none else float(one) for none, one in pairs], dtype=np.float64)
        index, label = (np.array([int(one) for one in columns[name]], dtype=np.int64) for name in ("index", "label"))
        known = [one for one in columns.get("truth", []) if one not in (None, "")]
        truth = np.array([int(one) for one in known], dtype=np.int64) if len(known) == len(index) else None
    except (TypeError, ValueError):
        raise BadInput(
            f"{path}: whole numbers index and label, and a radius where abstained is false, are needed"
        ) from None
    return Results(index=index, label=label, radius=radius, truth=truth)


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", "a Parquet file") from None
    return parquet
