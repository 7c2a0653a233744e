"""Tables of features: CSV and Parquet files with a column of labels, as numbers or as codes of categories."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.data.classes import few, read_classes, stating
from vauban.data.dataset import Dataset, numbered
from vauban.data.kinds import register
from vauban.data.locations import read_split
from vauban.errors import BadInput, MissingExtra
from vauban.specs import Parameter, Spec, choose, flag

Columns = dict[str, list[Any]]

_EVERY = 5  # split=test is every fifth row


def _codes(text: str) -> str:
    return choose("way to code features", text, ("all",))


PARAMETERS = {
    "path": Parameter(str, required=True, example="FILE.csv"),
    "label": Parameter(str, example="COLUMN"),
    "drop": Parameter(lambda text: tuple(text.split("/")), example="COLUMN/COLUMN"),
    "classes": Parameter(read_classes, example="no/yes"),
    "split": Parameter(read_split, default="all"),
    "codes": Parameter(_codes, example="all"),
    "codes_from": Parameter(str, example="TRAIN.csv"),
    "header": Parameter(flag, example="false"),
}


@register(
    "table",
    parameters=PARAMETERS,
    written="table:path=FILE.csv,label=COLUMN,split=test",
    reads="rows of a .csv, .tsv or .parquet file as features; codes=all codes categories for discrete",
)
def read(values: Mapping[str, Any], name: str) -> Dataset:
    """Return the rows of a table: float32 [m, features], or with codes=all uint8 codes [m, features].

    `label`: the column of classes, whole numbers or texts; texts are sorted, or in the order of `classes`, over the whole file.
    Without it rows have no labels. `drop`: columns that are no features. `split`: every fifth row (4, 9, …) is test, the others
    train, and all is every row. `codes=all`: every value of a feature is a category; its code is its place among the sorted
    values of its column, in this file or in `codes_from`. `header=false`: columns are named 0, 1, ….
    """
    columns = _read(values["path"], values["header"] is not False)
    labels, classes = _labels(columns, values, name)
    features = {key: column for key, column in columns.items() if key not in (values["label"], *(values["drop"] or ()))}
    _refuse_missing((values["drop"] or ()), columns, values["path"])
    if not features:
        raise BadInput(f"{values['path']} has no column besides the label: features are needed")
    if values["codes_from"] is not None and values["codes"] is None:
        raise BadInput("codes_from= names the table whose values are the codes: give codes=all too")
    if values["codes"] is None:
        for key, column in features.items():
            _refuse_texts(column, key, features, values, name)
        table = np.stack([_numbers(column, key, values["path"]) for key, column in features.items()], axis=1)
    else:
        known = columns if values["codes_from"] is None else _read(values["codes_from"], values["header"] is not False)
        table = np.stack([_coded(column, key, known, values) for key, column in features.items()], axis=1)
    rows = _rows(len(table), values["split"], values["path"])
    return Dataset(
        table[rows],
        None if labels is None else labels[rows],
        len(classes),
        classes,
        name,
        classes_fixed=values["classes"] is not None,
        features=tuple(features),
        codes_fixed=values["codes"] is None or _other_file(values["codes_from"], values["path"]),
    )


def _other_file(codes_from: str | None, path: str) -> bool:
    """Whether codes come from another file than the rows."""
    return codes_from is not None and not Path(codes_from).expanduser().samefile(Path(path).expanduser())


def _rows(count: int, split: str, path: str) -> NDArray[np.int64]:
    rows = np.arange(count)
    if split == "all":
        return rows
    test = rows % _EVERY == _EVERY - 1
    if count < _EVERY:
        raise BadInput(f"{path} has {count} rows: split={split} needs {_EVERY} or more, since every fifth is for tests")
    return rows[test if split == "test" else ~test]


def _read(path: str, header: bool) -> Columns:
    """The columns of a file by name."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise BadInput(f"path={path} is no file; a table in .csv, .tsv or .parquet is needed (now in {Path.cwd()})")
    columns = _parquet(file) if file.suffix.lower() in (".parquet", ".pq") else _csv(file, header)
    if not columns or not next(iter(columns.values())):
        raise BadInput(f"{path} has no rows: at least one is needed, below the names of the columns")
    return columns


def _parquet(file: Path) -> Columns:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", "reading Parquet files") from None
    try:
        table = parquet.read_table(file)
    except (ArrowException, OSError) as problem:
        raise BadInput(f"{file} cannot be read as Parquet ({problem})") from None
    return {name: table.column(name).to_pylist() for name in table.column_names}


def _csv(file: Path, header: bool) -> Columns:
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            first = stream.readline()
            separator = "\t" if file.suffix.lower() == ".tsv" else max(",;\t", key=first.count)
            stream.seek(0)
            rows = [row for row in csv.reader(stream, delimiter=separator) if row]
    except (UnicodeDecodeError, csv.Error) as problem:
        raise BadInput(f"{file} is no table in UTF-8 ({problem})") from None
    if not rows:
        return {}
    names = [name.strip() for name in rows.pop(0)] if header else [str(i) for i in range(len(rows[0]))]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"{file} has two columns named {twice!r}: give each its own name, or header=false")
    for number, row in enumerate(rows):
        if len(row) != len(names):
            raise BadInput(f"{file}: row {number} has {len(row)} values for {len(names)} columns; repair it")
    return {name: [row[i].strip() for row in rows] for i, name in enumerate(names)}


def _refuse_missing(wanted: Sequence[str], columns: Columns, path: str) -> None:
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise BadInput(f"{path} has no column {missing[0]!r}; it has {', '.join(list(columns)[:20])}")


def _refuse_texts(column: Sequence[Any], key: str, features: Columns, values: Mapping[str, Any], name: str) -> None:
    """Refuse a column without any number as a feature: it may be that of the classes."""
    example = _only_texts(column)
    if example is None:
        return
    label = Spec("table", {**Spec.parse(name).params, "label": key})
    classes = "" if values["label"] is not None else f"give --data {shlex.quote(str(label))} if it holds the classes, "
    others = [other for other, texts in features.items() if other != key and _only_texts(texts) is not None]
    raise BadInput(
        f"{values['path']}: column {key!r} holds texts such as {example!r}, and features are numbers: {classes}leave it out "
        f"(drop={'/'.join([*(values['drop'] or ()), key])}), or code every column (codes=all)"
        + (f"; so does column {', '.join(map(repr, others[:5]))}" if others else "")
    )


def _only_texts(column: Sequence[Any]) -> str | None:
    """The first text of a column without any number; None if it has no text, or a number."""
    example = next((value for value in column if isinstance(value, str) and value), None)
    return None if any(_is_number(value) for value in column) else example


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _numbers(column: Sequence[Any], name: str, path: str) -> NDArray[np.float32]:
    numbers = np.empty(len(column), np.float32)
    for row, value in enumerate(column):
        try:
            with np.errstate(over="ignore"):
                numbers[row] = np.float32(float(value))
        except (TypeError, ValueError):
            numbers[row] = np.nan
        if not np.isfinite(numbers[row]):
            raise BadInput(
                f"{path}: row {row} of column {name!r} is {value!r}, and a finite number is needed: fill or leave out such rows, "
                "leave out the column (drop=), or code every column (codes=all)"
            )
    return numbers


def _coded(column: Sequence[Any], name: str, known: Columns, values: Mapping[str, Any]) -> NDArray[np.uint8]:
    """The codes of a column: places among the sorted values of the same column of `known`."""
    _refuse_missing([name], known, values["codes_from"] or values["path"])
    categories = sorted(set(map(_text, known[name])), key=_order)
    if len(categories) > 256:
        raise BadInput(
            f"column {name!r} has {len(categories)} values, and codes are of 8 bits: at most 256; put values into groups, or "
            "leave it out (drop=)"
        )
    place = {category: code for code, category in enumerate(categories)}
    unknown = [row for row, value in enumerate(column) if _text(value) not in place]
    if unknown:
        raise BadInput(
            f"{values['path']}: row {unknown[0]} of column {name!r} is {column[unknown[0]]!r}, which {values['codes_from']} does "
            "not have: there is no code for it"
        )
    return np.array([place[_text(value)] for value in column], np.uint8)


def _labels(columns: Columns, values: Mapping[str, Any], name: str) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Labels [m] and classes: numbers as they are, texts by their place among the classes."""
    key, classes = values["label"], values["classes"]
    if key is None:
        return None, classes or ()
    _refuse_missing([key], columns, values["path"])
    texts = [_text(value) for value in columns[key]]
    _refuse_unlabelled(columns[key], values)
    if classes is None and all(map(_is_decimal, texts)):
        labels = np.array([int(text) for text in texts], np.int64)
        return labels, numbered(int(labels.max()) + 1, name)
    found = tuple(sorted(set(texts), key=_order))
    named = found if classes is None else classes
    if by_number := named == tuple(map(str, range(len(named)))):
        texts = [str(int(text)) if _is_decimal(text) else text for text in texts]  # 07 is 7, as without classes=
    place = {text: label for label, text in enumerate(named)}
    unknown = [row for row, text in enumerate(texts) if text not in place]
    if unknown:
        more = dict.fromkeys(texts[row] for row in unknown)
        right = (
            stating(found, len(named), Spec.parse(name)) if by_number else stating([*named, *more], 0, Spec.parse(name))
        )
        raise BadInput(
            f"{values['path']}: row {unknown[0]} has the label {texts[unknown[0]]!r}, which is none of the classes "
            f"{few(named)}: correct it, or give {right}"
        )
    return np.array([place[text] for text in texts], np.int64), named


def _refuse_unlabelled(column: Sequence[Any], values: Mapping[str, Any]) -> None:
    """Refuse a row without a label, which would otherwise be of a class without a name."""
    for row, value in enumerate(column):
        if value is None or value == "" or value != value:
            raise BadInput(
                f"{values['path']}: row {row} has no label (column {values['label']!r} is {value!r}): fill or remove it"
            )


def _is_decimal(text: str) -> bool:
    return text.isdecimal() and text.isascii()


def _text(value: Any) -> str:
    """A value of a table as text: numbers that are whole without a fraction, as Parquet's 1.0 and CSV's 1."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _order(text: str) -> tuple[int, float, str]:
    """Numbers by their size, before texts in the order of the alphabet."""
    try:
        return (0, float(text), text)
    except ValueError:
        return (1, 0.0, text)
