"""CIFAR-10 in the two layouts it is published in: binary batches and Python pickles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.data.dataset import Dataset
from vauban.data.kinds import register
from vauban.data.locations import SEARCHED, SPLIT, existing_folder, parts, search_roots
from vauban.data.pickles import PickledArray, read_pickle
from vauban.errors import BadInput
from vauban.specs import Parameter

PARAMETERS = {"path": Parameter(str, example="FOLDER"), "split": SPLIT}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
_LAYOUTS = {"cifar-10-batches-bin": ".bin", "cifar-10-batches-py": ""}
_PIXELS = 3 * 32 * 32


def found() -> bool:
    """Return whether one of the searched folders holds the test batch."""
    return bool(_complete(_candidates(None), _BATCHES["test"]))


@register(
    "cifar10",
    parameters=PARAMETERS,
    written="cifar10:path=FOLDER,split=test",
    reads="50,000 + 10,000 pictures, 3x32x32; binary or pickled batches",
    looks=f"path=, else {SEARCHED}",
    found=found,
)
def read(values: Mapping[str, Any], name: str) -> Dataset:
    """Return CIFAR-10, uint8 [m, 3, 32, 32]."""
    batches = [batch for part in parts(values["split"]) for batch in _BATCHES[part]]
    pairs = [_binary(path) if path.suffix == ".bin" else _pickled(path) for path in _locate(values["path"], batches)]
    images = np.concatenate([pixels for pixels, _ in pairs]).reshape(-1, 3, 32, 32)
    labels = np.concatenate([labels for _, labels in pairs]).astype(np.int64)
    return Dataset(images, labels, len(CLASSES), CLASSES, name, classes_fixed=True)


def _candidates(path: str | None) -> list[Path]:
    searched = [folder for root in search_roots() for folder in (root, root / "cifar10")]
    roots = searched if path is None else [existing_folder(path)]
    return [folder for root in roots for folder in (root, *(root / layout for layout in _LAYOUTS))]


def _complete(folders: list[Path], batches: list[str]) -> list[Path]:
    for folder in folders:
        for suffix in _LAYOUTS.values():
            files = [folder / f"{batch}{suffix}" for batch in batches]
            if all(file.is_file() for file in files):
                return files
    return []


def _locate(path: str | None, batches: list[str]) -> list[Path]:
    if files := _complete(_candidates(path), batches):
        return files
    where = f"path={path}" if path is not None else f"none of {SEARCHED}"
    verb = "does not hold" if path is not None else "holds"
    raise BadInput(
        f"{where} {verb} all of {', '.join(batches)} (.bin, or pickles without a suffix); give "
        f"cifar10:path=FOLDER, where FOLDER is or holds {' or '.join(_LAYOUTS)}"
    )


def _binary(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    raw = np.fromfile(path, np.uint8)
    if raw.size == 0 or raw.size % (1 + _PIXELS):
        raise BadInput(
            f"{path} has {raw.size} bytes, no multiple of {1 + _PIXELS} (one picture): it is truncated, or not CIFAR-10"
        )
    records = raw.reshape(-1, 1 + _PIXELS)
    return records[:, 1:], records[:, 0]


def _pickled(path: Path) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    batch = read_pickle(path)
    fields = batch if isinstance(batch, dict) else {}
    data, labels = (fields.get(key.encode(), fields.get(key)) for key in ("data", "labels"))
    try:
        pixels = data.integers() if isinstance(data, PickledArray) else None
        targets = labels.integers() if isinstance(labels, PickledArray) else np.asarray(labels)
    except ValueError as problem:
        raise BadInput(f"{path} {problem}") from None
    if pixels is None or pixels.dtype != np.uint8 or pixels.shape[1:] != (_PIXELS,):
        raise BadInput(f"{path} is no CIFAR-10 batch: 'data', bytes [m, {_PIXELS}], is needed")
    if targets.dtype.kind not in "iu" or targets.shape != pixels.shape[:1]:
        raise BadInput(f"{path} is no CIFAR-10 batch: 'labels', {len(pixels)} integers, is needed")
    return pixels, targets
