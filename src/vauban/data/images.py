"""Reads folders of pictures with one sub-folder per class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vauban.data.dataset import Dataset, selected
from vauban.data.kinds import register
from vauban.data.locations import PATH, existing_folder
from vauban.errors import BadInput, MissingExtra
from vauban.files import canonical, sha256
from vauban.runs.sections import Selection
from vauban.specs import Parameter

if TYPE_CHECKING:
    from PIL.Image import Image

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp")


def read_side(text: str) -> int:
    """Read the side of a picture, in pixels."""
    if not 1 <= (side := int(text)) <= 8192:
        raise BadInput(f"{text} is not a number of pixels from 1 to 8192")
    return side


def read_depth(text: str) -> int:
    """Read the depth to which deeper pictures are rounded: 8 bits, the only one."""
    if text != "8":
        raise BadInput(f"{text} is not 8: pictures of 16 bits can be rounded to 8 bits only")
    return 8


def _channels(text: str) -> int:
    if text not in ("1", "3"):
        raise BadInput(f"{text} is neither 1 (grey) nor 3 (colour)")
    return int(text)


def _class_folders(text: str) -> tuple[str, ...]:
    names = tuple(text.split("/"))
    if len(names) < 2 or "" in names or len(set(names)) < len(names):
        raise BadInput(f"{text} is not a list of two or more different sub-folders joined by /, such as cat/dog")
    return names


PARAMETERS = {
    "path": PATH,
    "split": Parameter(str),
    "classes": Parameter(_class_folders, example="cat/dog"),
    "size": Parameter(read_side, example="224"),
    "channels": Parameter(_channels, default=3),
    "depth": Parameter(read_depth, example="8"),
}


@register(
    "images",
    parameters=PARAMETERS,
    written="images:path=FOLDER,split=SUBFOLDER,classes=cat/dog,size=224,channels=3",
    reads=f"FOLDER/CLASS/picture{{{','.join(ENDINGS)}}}; depth=8 rounds those of 16 bits",
    selects=True,
)
def read(values: Mapping[str, Any], name: str, every: int = 1, limit: int | None = None) -> Dataset:
    """Return the pictures of FOLDER/CLASS (or FOLDER/SPLIT/CLASS), uint8 [m, channels, height, width].

    Only pictures 0, every, 2*every, … (at most `limit`) are opened.

    Classes are the sub-folders in sorted order, unless `classes` states them: then a picture in another folder is refused, and in
    a training set that may be poisoned its label is none of the classes. The pictures of each are sorted too. With `size` a
    picture is scaled until its short side has that length and its centre is cropped; without it, all pictures must have one
    shape. Pictures of 16 bits are refused, since a claim would be about other pictures than these; `depth=8` divides their values
    by 257 and rounds, and claims are then about the rounded pictures.
    """
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Pillow", "images", "reading pictures") from None
    root = existing_folder(values["path"] if values["split"] is None else str(Path(values["path"]) / values["split"]))
    found = tuple(sorted(entry.name for entry in _visible(root) if entry.is_dir()))
    classes = values["classes"] or found
    folders = [*enumerate(classes), *((len(classes), other) for other in found if other not in classes)]
    listed = [(file, label) for label, folder in folders if folder in found for file in _pictures(root / folder)]
    if not listed:
        raise BadInput(_nothing_found(root, found))
    taken = selected(Selection(len(listed), _listing_sha256(root, listed), every=1), every, limit)
    listed = listed[::every][:limit]
    images: NDArray[np.uint8] | None = None
    for index, (path, _) in enumerate(listed):
        try:
            with Image.open(path) as picture:
                pixels = _pixels(_eight_bits(picture, path, values["depth"]), values["size"], values["channels"])
        except BadInput:
            raise
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as problem:
            raise BadInput(f"{path} cannot be read as a picture ({problem}); repair or remove it") from None
        if images is None:
            images = np.empty((len(listed), *pixels.shape), np.uint8)
        if pixels.shape != images.shape[1:]:
            raise BadInput(
                f"{listed[0][0]} is {_size(images[0])} and {path} is {_size(pixels)}; make all pictures one shape or "
                "give size="
            )
        images[index] = pixels
    assert images is not None
    labels = np.array([label for _, label in listed], np.int64)
    return Dataset(
        images,
        labels,
        len(classes),
        classes,
        name,
        classes_fixed=values["classes"] is not None,
        names=tuple(str(path.relative_to(root)) for path, _ in listed),
        taken=taken,
    )


def _listing_sha256(root: Path, listed: Sequence[tuple[Path, int]]) -> str:
    """The fingerprint of the whole data set: of the names of its pictures, with their classes, in order.

    Pictures that are not taken are not opened; those that are have a hash of their own.
    """
    return sha256(canonical([[path.relative_to(root).as_posix(), label] for path, label in listed]).encode())


def _is_deep(picture: Image) -> bool:
    """Whether an opened picture has more than 8 bits for each value; Pillow shows only the upper ones of some that have."""
    layouts = "" if picture.format == "BMP" else str(getattr(picture, "tile", ""))
    return picture.mode[0] in "IF" or ";16" in layouts


def to_8_bits(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Values of 16 bits, divided by 257 and rounded: 0 stays 0 and 65,535 becomes 255. No value lies half-way."""
    return ((values.astype(np.int64) + 128) // 257).astype(np.uint8)


def _eight_bits(picture: Image, path: Path, depth: int | None) -> Image:
    """The picture, if it has 8 bits for each value; rounded to 8, with `depth`, if it has more."""
    if not _is_deep(picture):
        return picture
    if depth is None:
        raise BadInput(
            f"{path} has 16 bits for each value and pictures of 8 are needed: give depth=8 to divide by 257 and round, and to "
            "certify the rounded pictures"
        )
    return _rounded(picture, path)


def _rounded(picture: Image, path: Path) -> Image:
    """A picture of 16 bits as one of 8. Of colours Pillow reads only the upper byte, or, asked for the other order, the lower."""
    from PIL import Image

    if picture.mode[0] == "I":
        values = np.asarray(picture).astype(np.int64)
    elif [tile[3] for tile in getattr(picture, "tile", ())] == [f"{picture.mode};16B"]:
        with Image.open(path) as again:
            again.tile = [(*again.tile[0][:3], f"{picture.mode};16L")]  # type: ignore[list-item]
            values = 256 * np.asarray(picture).astype(np.int64) + np.asarray(again)
    else:
        raise ValueError("not all of its 16 bits can be read; save it with 8")
    if values.min() < 0 or values.max() > 65_535:
        raise ValueError("its values are not of 16 bits; save it with 8")
    return Image.fromarray(to_8_bits(values))


def _pixels(picture: Image, size: int | None, channels: int) -> NDArray[np.uint8]:
    from PIL.Image import Resampling

    picture = picture.convert("L" if channels == 1 else "RGB")
    if size is not None:
        short = min(picture.size)
        width, height = (max(size, round(side * size / short)) for side in picture.size)
        picture = picture.resize((width, height), Resampling.BILINEAR)
        left, top = (width - size) // 2, (height - size) // 2
        picture = picture.crop((left, top, left + size, top + size))
    pixels = np.asarray(picture, np.uint8)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _pictures(folder: Path) -> list[Path]:
    return [entry for entry in _visible(folder) if entry.is_file() and entry.suffix.lower() in ENDINGS]


def _size(pixels: NDArray[Any]) -> str:
    return f"{pixels.shape[2]} x {pixels.shape[1]}"


def _nothing_found(root: Path, classes: tuple[str, ...]) -> str:
    text = f"{root} has no pictures ({', '.join(ENDINGS)}) in sub-folders named after classes"
    splits = [name for name in classes if any(_pictures(inner) for inner in _visible(root / name) if inner.is_dir())]
    if splits:
        return f"{text}, but {root / splits[0]} has; give split={' or split='.join(splits)}"
    return f"{text}; put them at {root / 'CLASS' / 'picture.png'}"
