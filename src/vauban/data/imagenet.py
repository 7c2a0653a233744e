"""ImageNet as it is distributed: folders of synsets, or a flat validation folder with a map; pictures are streamed."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vauban.data.dataset import Dataset
from vauban.data.images import listing, pictures, visible
from vauban.data.kinds import register
from vauban.data.locations import PATH, existing_folder
from vauban.data.pictures import CHANNELS, DEPTH, RESIZE, SIZE, check_pillow
from vauban.errors import BadInput
from vauban.specs import Parameter

_SPLITS = {
    "val": ("val", "ILSVRC2012_img_val", "Data/CLS-LOC/val"),
    "train": ("train", "ILSVRC2012_img_train", "Data/CLS-LOC/train"),
}
_MAPS = ("val.txt", "LOC_val_solution.csv", "validation_map.txt")
_SYNSETS = ("synsets.txt", "synset_words.txt", "LOC_synset_mapping.txt")

PARAMETERS = {
    "path": PATH,
    "split": Parameter(str, default="val"),
    "size": replace(SIZE, default=224),
    "resize": replace(RESIZE, default=256),
    "channels": CHANNELS,
    "depth": DEPTH,
    "map": Parameter(str, example="val.txt"),
    "synsets": Parameter(str, example="synsets.txt"),
}


@register(
    "imagenet",
    parameters=PARAMETERS,
    written="imagenet:path=FOLDER,split=val,size=224,resize=256",
    reads="FOLDER/val/SYNSET/*.JPEG, or FOLDER/val/*.JPEG with map=; classes by sorted synsets, or by synsets=",
    streams=True,
)
def read(values: Mapping[str, Any], name: str) -> Dataset:
    """Return ImageNet's pictures, streamed, uint8 [m, 3, size, size]: short side scaled to `resize`, centre cropped.

    Classes are synsets (n01440764, …) in sorted order, which is that of published networks; `synsets` names a file whose lines
    begin with them, otherwise synsets.txt, synset_words.txt, LOC_synset_mapping.txt or the class folders say which there are. A
    flat folder of validation pictures needs a map: lines "FILE LABEL", the label a number from 0 or a synset, or
    LOC_val_solution.csv. Files and maps are looked for in `path`.
    """
    check_pillow()
    base = existing_folder(values["path"])
    root = _split(base, values["split"])
    folders = [entry.name for entry in visible(root) if entry.is_dir()]
    flat = [] if folders else pictures(root)
    synsets = _synsets(base, values["synsets"], folders)
    if flat:
        labels = _labels(_map(base, values["map"]), synsets)
        missing = [file for file in flat if _stem(file) not in labels]
        if missing:
            raise BadInput(f"{root / missing[0]} has no line in the map of labels: give the whole map with map=FILE")
        chosen = [(file, labels[_stem(file)]) for file in flat]
    else:
        place = {synset: label for label, synset in enumerate(synsets)}
        unknown = [folder for folder in folders if folder not in place]
        if unknown:
            raise BadInput(f"{root / unknown[0]} is none of the {len(synsets)} synsets; name folders after them")
        chosen = [(os.path.join(one, file), place[one]) for one in folders for file in pictures(root / one)]
    if not chosen:
        raise BadInput(f"{root} has neither folders of synsets nor pictures; see docs/data.md for ImageNet's layouts")
    names, labels_ = [file for file, _ in chosen], [label for _, label in chosen]
    return listing(root, names, labels_, tuple(synsets), values, name, classes_fixed=True)


def _split(base: Path, split: str) -> Path:
    """The folder of a split, by one of its usual names or by its own."""
    for place in (*_SPLITS.get(split, ()), split):
        if (base / place).is_dir():
            return base / place
    raise BadInput(
        f"{base} has no folder {split}: give the folder above it as path=, or another split= ({', '.join(_SPLITS)})"
    )


def _find(base: Path, given: str | None, usual: Sequence[str]) -> Path | None:
    """The file that is given, as it is or below `base`; otherwise the first of the usual ones below it."""
    for file in usual if given is None else (given,):
        for path in (Path(file).expanduser(), base / file) if given is not None else (base / file,):
            if path.is_file():
                return path
    if given is not None:
        raise BadInput(f"{given} is no file, neither here nor in {base}")
    return None


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise BadInput(f"{path} is no text in UTF-8") from None


def _synsets(base: Path, given: str | None, folders: Sequence[str]) -> list[str]:
    """The synsets, sorted: those of a file, of the folders of the split, or of the training folder."""
    file = _find(base, given, _SYNSETS)
    if file is not None:
        found = sorted({line.split()[0] for line in _lines(file)})
    else:
        train = next((base / place for place in _SPLITS["train"] if (base / place).is_dir()), None)
        found = [entry.name for entry in visible(train) if entry.is_dir()] if train is not None else list(folders)
    if not found:
        raise BadInput(
            f"{base}: nothing says which synsets there are: give synsets=FILE, whose lines begin with them, such as "
            f"{_SYNSETS[1]}"
        )
    return found


def _map(base: Path, given: str | None) -> Path:
    file = _find(base, given, _MAPS)
    if file is None:
        raise BadInput(
            f"{base}: validation pictures in one folder need a map of labels: give map=FILE with lines 'FILE LABEL', or put one "
            f"of {', '.join(_MAPS)} there"
        )
    return file


def _labels(file: Path, synsets: Sequence[str]) -> dict[str, int]:
    """The label of each picture, by its name without ending."""
    place = {synset: label for label, synset in enumerate(synsets)}
    place |= {str(label): label for label in range(len(synsets))}
    lines = _lines(file)
    if not lines or len(lines[0].replace(",", " ").split()) < 2:
        raise BadInput(
            f"{file} has one word on a line: a map names the picture and its label, 'FILE LABEL'. The numbers of the development "
            "kit's ground truth are in another order than the classes of published networks and are not read"
        )
    rows = list(csv.reader(lines))[1:] if file.suffix.lower() == ".csv" else [line.split() for line in lines]
    labels = {}
    for row in rows:
        if len(row) < 2 or (word := row[1].split()[0] if row[1].split() else "") not in place:
            raise BadInput(
                f"{file}: {' '.join(row)!r} names no label: a synset, or a number below {len(synsets)}, is needed"
            )
        labels[_stem(row[0])] = place[word]
    return labels


def _stem(file: str) -> str:
    return Path(file).name.split(".")[0]
