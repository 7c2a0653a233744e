"""Decodes one picture file into 8-bit values, scaled and cropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput, MissingExtra
from vauban.specs import Parameter
from vauban.streamed import Source, Unreadable

if TYPE_CHECKING:
    from PIL.Image import Image

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm")


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


SIZE, RESIZE = Parameter(read_side, example="224"), Parameter(read_side, example="256")
CHANNELS, DEPTH = Parameter(_channels, default=3), Parameter(read_depth, example="8")


def is_picture(path: str | Path) -> bool:
    """Whether a file has the ending of a picture."""
    return str(path).lower().endswith(ENDINGS)


def check_pillow() -> None:
    """Refuse to go on without Pillow."""
    try:
        from PIL import Image  # noqa: F401
    except ImportError:
        raise MissingExtra("Pillow", "images", "reading pictures") from None


def source(root: Path, names: Sequence[str], values: Mapping[str, Any]) -> Source:
    """The pictures root/name, decoded as the parameters size, resize, channels and depth say."""
    size, resize = values["size"], values["resize"]
    if resize is not None and (size is None or size > resize):
        raise BadInput(
            f"resize={resize} scales the short side before size= crops the centre: size= of at most {resize} is needed"
        )
    how = (size, resize or size, values["channels"], values["depth"])
    return Source(
        len(names), lambda number: decoded(root / names[number], *how), lambda number: str(root / names[number])
    )


def decoded(path: Path, size: int | None, resize: int | None, channels: int, depth: int | None) -> NDArray[np.uint8]:
    """The picture of a file, uint8 [channels, height, width]; a file that is none is `Unreadable`."""
    from PIL import Image

    try:
        with Image.open(path) as picture:
            return pixels(_eight_bits(picture, path, depth), size, resize, channels)
    except BadInput:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as problem:
        raise Unreadable(
            f"{path} cannot be read as a picture ({problem}); repair or remove it, or give --skip-bad to leave out such files"
        ) from None


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


def pixels(picture: Image, size: int | None, resize: int | None, channels: int) -> NDArray[np.uint8]:
    """The values of an opened picture: its short side scaled to `resize`, and the centre of `size` cropped."""
    from PIL.Image import Resampling

    picture = picture.convert("L" if channels == 1 else "RGB")
    if size is not None and resize is not None:
        short = min(picture.size)
        width, height = (max(resize, round(side * resize / short)) for side in picture.size)
        picture = picture.resize((width, height), Resampling.BILINEAR)
        left, top = (width - size) // 2, (height - size) // 2
        picture = picture.crop((left, top, left + size, top + size))
    values = np.asarray(picture, np.uint8)
    return values[None] if channels == 1 else values.transpose(2, 0, 1)
