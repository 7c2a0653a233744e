"""German traffic signs (GTSRB) in their published layout: .ppm pictures, a table in each training folder and one of the test."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.data.dataset import Dataset, numbered
from vauban.data.kinds import register
from vauban.data.locations import SEARCHED, SPLIT, existing_folder, parts, search_roots
from vauban.data.originals import OriginalKeys
from vauban.data.pictures import read_side
from vauban.errors import BadInput, MissingExtra
from vauban.specs import Parameter, choose

CLASSES = 43
PARAMETERS = {
    "path": Parameter(str, example="FOLDER"),
    "split": SPLIT,
    "size": Parameter(read_side, default=48, example="48"),
    "keys": Parameter(lambda text: choose("kind of keys", text, ("original",)), example="original"),
}

_TRAIN = ("Final_Training/Images", "Training")
_TEST = "Final_Test/Images"
_TEST_TABLE = "GT-final_test.csv"


def found() -> bool:
    """Return whether one of the searched folders holds the test pictures."""
    return any((root / _TEST).is_dir() for root in _roots(None))


@register(
    "gtsrb",
    parameters=PARAMETERS,
    written="gtsrb:path=FOLDER,split=test,size=48,keys=original",
    reads="39,209 + 12,630 pictures of 43 traffic signs, .ppm, scaled to size x size",
    looks=f"path=, else {SEARCHED}",
    found=found,
)
def read(values: Mapping[str, Any], name: str) -> Dataset:
    """Return the traffic signs, uint8 [m, 3, size, size], scaled bilinearly without keeping their proportions.

    Training pictures are in the order of their classes and names, as their folders have them; those of the test in the order of
    GT-final_test.csv, which holds their classes. A table that names a picture twice, none, or a class that is none, is refused.
    With keys=original, parts of a training set are made from the original pictures, as in [Levine2023] F.10.
    """
    listed = [entry for part in parts(values["split"]) for entry in _listed(values["path"], part)]
    size = values["size"]
    images = np.empty((len(listed), 3, size, size), np.uint8)
    keys = OriginalKeys(lambda i: _pixels(listed[i][0])) if values["keys"] else None
    for i, (path, _) in enumerate(listed):
        images[i] = _pixels(path, size).transpose(2, 0, 1)
        if keys is not None:
            keys.add(_pixels(path))
    labels = np.array([label for _, label in listed], np.int64)
    names = tuple("/".join(path.parts[-2:]) for path, _ in listed)
    originals = None if keys is None else keys.made()
    return Dataset(
        images, labels, CLASSES, numbered(CLASSES), name, classes_fixed=True, names=names, originals=originals
    )


def _roots(path: str | None) -> list[Path]:
    if path is not None:
        root = existing_folder(path)
        return [root, root / "GTSRB"]
    return [folder for root in search_roots() for folder in (root, root / "GTSRB", root / "gtsrb")]


def _listed(path: str | None, part: str) -> list[tuple[Path, int]]:
    """The pictures of a part and their classes."""
    wanted = _TRAIN if part == "train" else (_TEST,)
    folder = next((root / inner for root in _roots(path) for inner in wanted if (root / inner).is_dir()), None)
    if folder is None:
        where = f"none of {SEARCHED} holds" if path is None else f"path={path} does not hold"
        raise BadInput(
            f"{where} {' or '.join(wanted)} of GTSRB: give gtsrb:path=FOLDER, where FOLDER is or holds GTSRB"
        )
    if part == "test":
        beside = (folder / _TEST_TABLE, folder.parent / _TEST_TABLE, folder.parents[1] / _TEST_TABLE)
        table = next((file for file in beside if file.is_file()), None)
        if table is None:
            raise BadInput(f"{folder} lacks {_TEST_TABLE}, which holds the classes of the test pictures: put it there")
        return _table(table, folder, None)
    listed: list[tuple[Path, int]] = []
    for label in range(CLASSES):
        inner = folder / f"{label:05d}"
        if inner.is_dir():
            listed += _table(inner / f"GT-{label:05d}.csv", inner, label)
    if not listed:
        raise BadInput(f"{folder} holds no folder 00000 to {CLASSES - 1:05d} with pictures: the training set is needed")
    return sorted(listed, key=lambda entry: (entry[1], entry[0].name))


def _table(table: Path, folder: Path, label: int | None) -> list[tuple[Path, int]]:
    """The pictures that a table lists; with `label`, all must be of that class."""
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = [(row["Filename"], int(row["ClassId"])) for row in csv.DictReader(file, delimiter=";")]
    except (OSError, KeyError, TypeError, ValueError) as problem:
        raise BadInput(
            f"{table} cannot be read ({problem}): columns Filename and ClassId, split by ;, are needed"
        ) from None
    wrong = [name for name, found in rows if not 0 <= found < CLASSES or label not in (None, found)]
    if wrong:
        raise BadInput(
            f"{table}: {wrong[0]} has a class that cannot be: 0 to {CLASSES - 1}, and in a training folder its own"
        )
    if len({name for name, _ in rows}) < len(rows):
        raise BadInput(f"{table} names a picture twice: each is listed once")
    missing = [name for name, _ in rows if not (folder / name).is_file()]
    if missing:
        raise BadInput(f"{folder} lacks {missing[0]}, which {table.name} lists: the download may be incomplete")
    return [(folder / name, found) for name, found in rows]


def _pixels(path: Path, size: int | None = None) -> NDArray[np.uint8]:
    """A picture uint8 [height, width, 3]; with `size`, scaled to that height and width."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Pillow", "images", "reading pictures") from None
    try:
        with Image.open(path) as picture:
            whole = picture.convert("RGB")
            scaled = whole if size is None else whole.resize((size, size), Image.Resampling.BILINEAR)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as problem:
        raise BadInput(f"{path} cannot be read as a picture ({problem}); repair or remove it") from None
    return np.asarray(scaled, np.uint8)
