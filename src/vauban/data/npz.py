"""Reads arrays saved by numpy.savez, for inputs in no other supported format."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.data.classes import read_classes
from vauban.data.dataset import Dataset, numbered
from vauban.data.kinds import register
from vauban.data.pictures import read_depth, to_8_bits
from vauban.errors import BadInput
from vauban.specs import Parameter, choose


def _layout(text: str) -> str:
    return choose("layout", text, ("chw", "hwc"))


PARAMETERS = {
    "path": Parameter(str, required=True, example="FILE.npz"),
    "images": Parameter(str, default="images"),
    "labels": Parameter(str, example="labels"),
    "classes": Parameter(read_classes, example="10"),
    "layout": Parameter(_layout, default="chw"),
    "depth": Parameter(read_depth, example="8"),
}


@register(
    "npz",
    parameters=PARAMETERS,
    written="npz:path=FILE.npz,images=images,labels=labels,classes=10,layout=chw",
    reads="arrays of numpy.savez, uint8 or floats, labels optional; depth=8 rounds uint16",
)
def read(values: Mapping[str, Any], name: str) -> Dataset:
    """Return the arrays of one .npz file: uint8 stays uint8, floats become float32, uint16 needs depth=8.

    Grey pictures [m, h, w] get a channel and layout=hwc is transposed to [m, c, h, w]; other shapes stay. `classes` is a number
    or names joined by /; by default the largest label + 1. Labels may be missing unless labels= names them. `depth=8` divides
    uint16 by 257 and rounds; claims are then about the rounded pictures.
    """
    arrays = _load(values["path"], (values["images"], values["labels"] or "labels"))
    for key in (values["images"], values["labels"]):
        if key is not None and key not in arrays:
            raise BadInput(
                f"{values['path']} has no array {key!r}; it has {', '.join(_names(values['path'])) or 'none'}"
            )
    images = _images(_rounded(arrays[values["images"]], values["depth"], name), values["layout"], name)
    labels = arrays.get(values["labels"] or "labels")
    if labels is not None and labels.dtype.kind not in "iu":
        raise BadInput(f"{name}: labels are {labels.dtype}; integers are needed, labels.astype(numpy.int64)")
    classes, given = values["classes"], values["classes"] is not None
    if not given:
        classes = numbered(0 if labels is None or not labels.size else int(labels.max()) + 1, name)
    targets = None if labels is None else labels.astype(np.int64)
    return Dataset(images, targets, len(classes), classes, name, classes_fixed=given)


def _rounded(images: NDArray[Any], depth: int | None, name: str) -> NDArray[Any]:
    """uint16 as uint8, with `depth`; without it they are refused."""
    if images.dtype == np.uint16:
        if depth is None:
            raise BadInput(
                f"{name}: images are uint16 and pictures of 8 bits are needed: give depth=8 to divide by 257 and round, and to "
                "certify the rounded pictures"
            )
        return to_8_bits(images)
    if depth is not None and images.dtype != np.uint8:
        raise BadInput(f"{name}: depth=8 rounds uint16, and images are {images.dtype}; leave depth out")
    return images


def _images(images: NDArray[Any], layout: str, name: str) -> NDArray[Any]:
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise BadInput(
            f"{name}: images are {images.dtype}; uint8 or floats are needed: images.astype(numpy.uint8) if all are 0 to 255"
        )
    if layout == "hwc" and images.ndim not in (3, 4):
        raise BadInput(f"{name}: layout=hwc needs images [m, h, w, c], and they have shape {images.shape}")
    if images.ndim == 3:
        images = images[:, None]
    elif layout == "hwc":
        images = images.transpose(0, 3, 1, 2)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(images, np.uint8 if images.dtype == np.uint8 else np.float32)


def _open(path: str) -> Any:
    file = Path(path).expanduser()
    if not file.is_file():
        raise BadInput(f"path={path} is no file; a .npz written by numpy.savez is needed (now in {Path.cwd()})")
    if not zipfile.is_zipfile(file):
        raise BadInput(f"{path} is no .npz; write it with numpy.savez(path, images=..., labels=...)")
    return np.load(file, allow_pickle=False)


def _names(path: str) -> list[str]:
    with _open(path) as opened:
        return sorted(opened.files)


def _load(path: str, keys: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    try:
        with _open(path) as opened:
            return {key: opened[key] for key in keys if key in opened.files}
    except BadInput:
        raise
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as problem:
        raise BadInput(f"{path} cannot be read ({problem}); arrays of plain numbers are needed, no objects") from None
