"""Reads IDX files, the format of MNIST and similar data sets: the packaged MNIST, and other folders."""

from __future__ import annotations

import gzip
import lzma
import struct
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from vauban.data.dataset import Dataset, numbered
from vauban.data.kinds import register
from vauban.data.locations import PATH, SPLIT, existing_folder, parts
from vauban.errors import BadInput
from vauban.specs import Parameter

_PREFIX = {"train": "train", "test": "t10k"}
_UNSIGNED_BYTES = 0x08
_CHUNK = 1 << 24  # bytes read at a time
_UNPACK: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"\xfd7": lzma.open}  # by the first two bytes of a file


def mnist_found() -> bool:
    """Return whether the package contains MNIST."""
    return (files("vauban.data") / "mnist" / "t10k-images-idx3-ubyte.xz").is_file()


@register(
    "mnist",
    parameters={"split": SPLIT},
    written="mnist:split=test",
    reads="60,000 + 10,000 digits, 1x28x28; split=test, train or all",
    looks="inside the package",
    found=mnist_found,
)
def mnist(values: Mapping[str, Any], name: str) -> Dataset:
    """Return the packaged MNIST, uint8 [m, 1, 28, 28]."""
    return _read(files("vauban.data") / "mnist", values["split"], 10, name)


@register(
    "idx",
    parameters={"path": PATH, "split": SPLIT, "classes": Parameter(int)},
    written="idx:path=FOLDER,split=test,classes=10",
    reads="IDX files, plain, .gz or .xz, under MNIST's names (Fashion-MNIST, KMNIST, …)",
)
def folder(values: Mapping[str, Any], name: str) -> Dataset:
    """Return the IDX files of a folder, uint8 [m, 1, height, width]; classes: the largest label + 1 unless given."""
    return _read(existing_folder(values["path"]), values["split"], values["classes"], name)


def read_idx(path: Path | Traversable, dimensions: int) -> NDArray[np.uint8]:
    """Return the unsigned bytes of one IDX file, plain or packed by gzip or xz, shaped as its header says."""
    with ExitStack() as stack:
        raw = stack.enter_context(path.open("rb"))
        unpack = _UNPACK.get(raw.read(2))
        raw.seek(0)
        stream: IO[bytes] = raw if unpack is None else stack.enter_context(unpack(raw))
        try:
            return _parse(stream, str(path), dimensions)
        except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as problem:
            raise BadInput(f"{path} is broken and cannot be unpacked ({problem}); fetch it again") from None


def _parse(stream: IO[bytes], path: str, dimensions: int) -> NDArray[np.uint8]:
    magic = stream.read(4)
    wanted = bytes([0, 0, _UNSIGNED_BYTES, dimensions])
    if magic != wanted:
        raise BadInput(
            f"{path} starts with {magic.hex() or 'nothing'}; an IDX file of bytes in {dimensions} dimension(s) "
            f"starts with {wanted.hex()}. Is this the right file?"
        )
    header = stream.read(4 * dimensions)
    if len(header) < 4 * dimensions:
        raise BadInput(f"{path} is truncated: it ends inside its header; fetch it again")
    shape = struct.unpack(f">{dimensions}I", header)
    size = int(np.prod(shape, dtype=object))
    body = _read_up_to(stream, size)
    if len(body) < size:
        raise BadInput(f"{path} is truncated: {len(body)} bytes of the {size} that its header states; fetch it again")
    if stream.read(1):
        raise BadInput(f"{path} holds more than the {size} bytes that its header {list(shape)} states; fetch it again")
    return np.frombuffer(body, np.uint8).reshape(shape)


def _read_up_to(stream: IO[bytes], size: int) -> bytearray:
    """Read up to `size` bytes in pieces, so that a false header cannot allocate more memory than the file has."""
    body = bytearray()
    while len(body) < size and (piece := stream.read(min(_CHUNK, size - len(body)))):
        body += piece
    return body


def _read(root: Path | Traversable, split: str, classes: int | None, name: str) -> Dataset:
    images, labels = [], []
    for part in parts(split):
        pictures = read_idx(_find(root, _PREFIX[part], "images", 3), 3)
        targets = read_idx(_find(root, _PREFIX[part], "labels", 1), 1)
        if len(pictures) != len(targets):
            raise BadInput(
                f"{name}: the {part} files hold {len(pictures)} images and {len(targets)} labels, so number "
                f"{min(len(pictures), len(targets))} has no partner; use files that belong together"
            )
        images.append(pictures[:, None])
        labels.append(targets)
    if len({pictures.shape[1:] for pictures in images}) > 1:
        raise BadInput(f"{name}: train images are {images[0].shape[1:]} and test images {images[1].shape[1:]}")
    joined = np.concatenate(labels).astype(np.int64)
    count = int(joined.max(initial=-1)) + 1 if classes is None else classes
    return Dataset(np.concatenate(images), joined, count, numbered(count), name, classes_fixed=classes is not None)


def _find(root: Path | Traversable, prefix: str, what: str, dimensions: int) -> Path | Traversable:
    endings = [f"idx{dimensions}-ubyte{suffix}" for suffix in ("", ".gz", ".xz")]
    names = [f"{prefix}-{what}{separator}{ending}" for separator in "-." for ending in endings]
    for name in names:
        if (found := root / name).is_file():
            return found
    raise BadInput(f"{root} holds none of {', '.join(names)}; one of them is needed")
