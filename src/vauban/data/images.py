"""Folders of pictures, with one sub-folder for each class or without labels, and single pictures; they are streamed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vauban.data.classes import read_classes
from vauban.data.dataset import Dataset, samples_may_be_any
from vauban.data.kinds import register
from vauban.data.locations import existing_folder
from vauban.data.pictures import CHANNELS, DEPTH, ENDINGS, RESIZE, SIZE, check_pillow, is_picture, source
from vauban.errors import BadInput
from vauban.files import canonical, sha256
from vauban.runs.sections import Selection
from vauban.specs import Parameter
from vauban.streamed import Streamed


def _class_folders(text: str) -> tuple[str, ...]:
    names = read_classes(text)
    if len(names) < 2:
        raise BadInput(f"{text} is not a list of two or more different sub-folders joined by /, such as cat/dog")
    return names


PARAMETERS = {
    "path": Parameter(str, required=True, example="FOLDER"),
    "split": Parameter(str),
    "classes": Parameter(_class_folders, example="cat/dog"),
    "size": SIZE,
    "resize": RESIZE,
    "channels": CHANNELS,
    "depth": DEPTH,
}


@register(
    "images",
    parameters=PARAMETERS,
    written="images:path=FOLDER,split=SUBFOLDER,classes=cat/dog,size=224,channels=3",
    reads=f"FOLDER/CLASS/picture{{{','.join(ENDINGS)}}}, FOLDER/picture without labels, or one picture; depth=8 rounds 16 bits",
    streams=True,
)
def read(values: Mapping[str, Any], name: str) -> Dataset:
    """Return the pictures of FOLDER/CLASS (or FOLDER/SPLIT/CLASS), streamed, uint8 [m, channels, height, width].

    Classes are the sub-folders in sorted order, or `classes`: names joined by /, a file of names, or a number of classes where
    folders are named by numbers. The pictures of each are sorted too. A folder of pictures without sub-folders, and a single
    picture, have no labels. With `size` a picture is scaled until its short side has the length `resize` (by default that of
    size) and its centre is cropped; without it, all pictures must have one shape. Pictures of 16 bits are refused, since a claim
    would be about other pictures than these; `depth=8` divides their values by 257 and rounds, and claims are then about the
    rounded pictures.
    """
    check_pillow()
    root, names, labels, classes = _listed(values)
    return listing(root, names, labels, classes, values, name, classes_fixed=values["classes"] is not None)


def listing(
    root: Path,
    names: Sequence[str],
    labels: Sequence[int] | None,
    classes: tuple[str, ...],
    values: Mapping[str, Any],
    name: str,
    classes_fixed: bool,
) -> Dataset:
    """The data set of the pictures root/names, which are not opened yet.

    Its fingerprint is that of the names, with their classes, in order; pictures that are taken have a hash of their own.
    """
    of = [None] * len(names) if labels is None else labels
    fingerprint = sha256(
        canonical([[Path(one).as_posix(), label] for one, label in zip(names, of, strict=True)]).encode()
    )
    return Dataset(
        Streamed(source(root, names, values)),  # type: ignore[arg-type]
        None if labels is None else np.array(labels, np.int64),
        len(classes),
        classes,
        name,
        classes_fixed=classes_fixed,
        names=tuple(names),
        taken=Selection(len(names), fingerprint, every=1),
    )


def _listed(values: Mapping[str, Any]) -> tuple[Path, list[str], list[int] | None, tuple[str, ...]]:
    """The folder, the names of its pictures below it, their labels if they have any, and the classes."""
    path, given = Path(values["path"]).expanduser(), values["classes"]
    if path.is_file():
        if not is_picture(path) or values["split"] is not None:
            raise BadInput(
                f"path={path} is a file and no picture ({', '.join(ENDINGS)}); a folder or one picture is needed"
            )
        return path.parent, [path.name], None, given or ()
    root = existing_folder(values["path"] if values["split"] is None else str(path / values["split"]))
    folders = [entry.name for entry in visible(root) if entry.is_dir()]
    found = {folder: pictures(root / folder) for folder in folders}
    if any(found.values()):
        label = labels_of(folders, given, root)
        classes = tuple(folders) if given is None else given
        ordered = sorted(found, key=lambda folder: label[folder])
        pairs = [(os.path.join(folder, one), label[folder]) for folder in ordered for one in found[folder]]
        return root, [one for one, _ in pairs], [label for _, label in pairs], classes
    if loose := pictures(root):
        return root, loose, None, given or ()
    raise BadInput(_nothing_found(root, folders))


def labels_of(folders: Sequence[str], classes: tuple[str, ...] | None, root: Path) -> dict[str, int]:
    """The label of each folder: its place among the folders, or among the `classes` that are given.

    A folder that is none of them is refused; in a training set that may be poisoned its label is none of the classes.
    """
    if classes is None:
        return {folder: label for label, folder in enumerate(folders)}
    place = {name: label for label, name in enumerate(classes)}
    unknown = [folder for folder in folders if folder not in place]
    if unknown and not samples_may_be_any():
        raise BadInput(
            f"{root / unknown[0]} is none of the {len(classes)} classes that classes= gives ({', '.join(classes[:3])}, …), so "
            f"its pictures would have the label {len(classes)}: name the folders after classes, or give their names, joined by / "
            "or one on each line of a file"
        )
    return {folder: place.get(folder, len(classes)) for folder in folders}


def visible(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder that are not hidden, sorted by name."""
    with os.scandir(folder) as entries:
        return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


def pictures(folder: Path) -> list[str]:
    """The names of the pictures of a folder, sorted."""
    return [entry.name for entry in visible(folder) if is_picture(entry.name) and entry.is_file()]


def _nothing_found(root: Path, folders: Sequence[str]) -> str:
    text = f"{root} has no pictures ({', '.join(ENDINGS)}), nor have sub-folders named after classes"
    splits = [
        one for one in folders if any(pictures(Path(inner.path)) for inner in visible(root / one) if inner.is_dir())
    ]
    if splits:
        return f"{text}, but {root / splits[0]} has; give split={' or split='.join(splits)}"
    return f"{text}; put them at {root / 'CLASS' / 'picture.png'}"
