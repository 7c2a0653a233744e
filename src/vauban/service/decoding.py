"""Reads inputs from the bodies of requests: pictures, JSON and NumPy arrays, with limits on what is decoded."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput, MissingExtra

JSON, NPY = "application/json", "application/x-npy"
PICTURES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP", "image/bmp": "BMP"}
TYPES = (JSON, NPY, *PICTURES)

_HEADER = 10_000  # bytes of the header of an array
_JSON_BYTES = 16 * 2**20  # parsing holds up all other requests, about a second for eight megabytes
_KINDS = {"|u1", "<f4", "<f8"}
_LABELS = {"<i8", "<i4", "|u1"}


class TooLarge(BadInput):
    """A body is larger than the service takes; answered with 413."""


class WrongType(BadInput):
    """A body is of a type that the service does not read; answered with 415."""


def media_type(header: str | None) -> str:
    """The media type of a Content-Type header, without parameters; one that is not read is refused."""
    found = (header or "").split(";")[0].strip().lower()
    if found not in TYPES:
        raise WrongType(f"Content-Type {found or 'missing'}: one of {', '.join(TYPES)} is needed")
    return found


def read_input(body: bytes, kind: str, shape: tuple[int, ...], pixels: int) -> NDArray[Any]:
    """One input of this shape: uint8 (pictures, arrays) or float32."""
    if kind in PICTURES:
        return read_picture(body, kind, shape, pixels)
    if kind == NPY:
        values, rest = read_array(body, _KINDS)
        if rest:
            raise BadInput("there are bytes after the array: one array is needed")
        return shaped(values, shape)
    said = read_json_object(body, {"values"})
    return shaped(numbers(said.get("values")), shape)


def read_inputs(body: bytes, kind: str, shape: tuple[int, ...]) -> tuple[NDArray[Any], list[int] | None]:
    """Inputs [m, ...] of this shape, and their labels or None: a second array after the inputs; JSON has none.

    One input by itself is a batch of one.
    """
    if kind == NPY:
        values, rest = read_array(body, _KINDS)
        given: Any = None
        values = values[None] if values.shape == shape else values
        if rest and values.ndim:
            given, rest = read_array(rest, _LABELS)
            if rest:
                raise BadInput(
                    "there are bytes after the second array: inputs, and labels if there are any, are needed"
                )
            if given.shape != (len(values),):
                raise BadInput(
                    f"labels of shape {given.shape} for {len(values)} inputs: one whole number each is needed"
                )
            given = given.tolist()
    elif kind == JSON:
        values, given = numbers(read_json_object(body, {"inputs"}).get("inputs")), None
    else:
        raise WrongType(f"Content-Type {kind}: a batch is {JSON} or {NPY}; a picture is certified by itself")
    if values.shape == shape:
        values = values[None]
    if values.ndim < 2 or values.shape[1:] != shape or not len(values):
        raise BadInput(
            f"inputs of shape {values.shape}: [m, {', '.join(map(str, shape))}] with m of 1 or more is needed"
        )
    return values, given


def shaped(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The values, if they have this shape."""
    if values.shape != shape:
        raise BadInput(f"an input of shape {values.shape}: {shape} is needed")
    return values


def read_json_object(body: bytes, known: set[str]) -> dict[str, Any]:
    """A JSON object with these keys at most."""
    if len(body) > _JSON_BYTES:
        raise TooLarge(f"{len(body)} bytes of JSON: at most {_JSON_BYTES} are read, since it is slow; send {NPY}")
    try:
        said = json.loads(body.decode())
    except (ValueError, RecursionError) as problem:
        raise BadInput(f"the body is not JSON in UTF-8 ({str(problem)[:100]})") from None
    if not isinstance(said, dict):
        raise BadInput(f"the body is no object: one with {' and '.join(sorted(known))} is needed")
    if said.keys() - known:
        raise BadInput(f"the body has unknown entries: only {' and '.join(sorted(known))} are read")
    return said


def numbers(values: Any) -> NDArray[np.float32]:
    """Nested lists of numbers as an array."""
    if not isinstance(values, list):
        raise BadInput("numbers in nested lists are needed")
    try:
        array = np.array(values)
    except (ValueError, OverflowError, RecursionError):
        raise BadInput("nested lists of different lengths: every row needs as many numbers as the others") from None
    if array.dtype.kind not in "iuf" or _has_bool(values):
        raise BadInput("nested lists of something else than numbers: only numbers are read")
    with np.errstate(over="ignore"):
        found = array.astype(np.float32)
    if not np.isfinite(found).all():
        raise BadInput("a number is NaN, infinite or too large for float32: numbers must be finite")
    return found


def _has_bool(values: Any) -> bool:
    """Whether nested lists hold true or false, which NumPy would read as numbers."""
    if isinstance(values, list):
        return (
            any(map(_has_bool, values))
            if values and isinstance(values[0], list)
            else any(type(x) is bool for x in values)
        )
    return False


def read_array(body: bytes, kinds: set[str]) -> tuple[NDArray[Any], bytes]:
    """The array in the format of numpy.save with which a body begins, and the bytes after it; nothing is unpickled."""
    from numpy.lib import format as npy

    stream = io.BytesIO(body)
    try:
        version = npy.read_magic(stream)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
        if read is None:
            raise ValueError(f"version {version}")
        shape, fortran, dtype = read(stream, max_header_size=_HEADER)
    except Exception as problem:  # the header is read as Python, and what is none raises anything
        raise BadInput(f"the body is no array as numpy.save writes it ({str(problem)[:100]})") from None
    if dtype.str not in kinds:
        raise BadInput(f"an array of type {dtype.str[:20]}: one of {', '.join(sorted(kinds))} is needed")
    if fortran or any(type(side) is not int or side < 0 for side in shape) or len(shape) > 8:
        raise BadInput("an array in Fortran order or of strange shape: save numpy.ascontiguousarray of it")
    start, length = stream.tell(), math.prod(shape) * dtype.itemsize
    if len(body) - start < length:
        raise BadInput(f"an array of {length} bytes of which {len(body) - start} are there: send all of it")
    try:
        array = np.frombuffer(body, dtype, math.prod(shape), start).reshape(shape)
    except (ValueError, OverflowError):  # no numbers at all, in sides of any length
        raise BadInput(f"an array of shape {str(shape)[:100]}: it holds no numbers") from None
    return array.astype(np.float32) if dtype.kind == "f" else array, body[start + length :]


def read_picture(body: bytes, kind: str, shape: tuple[int, ...], pixels: int) -> NDArray[np.uint8]:
    """A picture as uint8 [channels, height, width], scaled to fit and cropped in the middle.

    Only the decoder of the declared type is tried, and its size is checked before its pixels are decoded. Filters of warnings are
    left as they are: they belong to the whole process, and requests are read in many threads.
    """
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise BadInput(f"a picture for inputs of shape {shape}: send numbers, as {JSON} or {NPY}")
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise MissingExtra("Pillow", "serve", "reading pictures") from None
    try:
        with Image.open(io.BytesIO(body), formats=[PICTURES[kind]]) as picture:
            width, height = picture.size
            most = min(pixels, Image.MAX_IMAGE_PIXELS or pixels)  # up to twice its own limit Pillow only warns
            if width * height > most:
                raise TooLarge(f"a picture of {width} x {height} pixels: at most {most} are read")
            if getattr(picture, "n_frames", 1) != 1:
                raise BadInput("a picture with several frames: one is needed")
            if picture.mode[0] in "IF" or ";16" in str(getattr(picture, "tile", "")):
                raise BadInput("a picture with more than 8 bits for each value: save it with 8")
            fitted = picture.convert("L" if shape[0] == 1 else "RGB")
            if fitted.size != (shape[2], shape[1]):
                fitted = ImageOps.fit(fitted, (shape[2], shape[1]), Image.Resampling.BILINEAR)
            values = np.asarray(fitted, np.uint8)
    except BadInput:
        raise
    except Image.DecompressionBombError:  # far above Pillow's own limit, which it checks first
        own = Image.MAX_IMAGE_PIXELS or pixels
        raise TooLarge(f"a picture of more than {own} pixels: at most {min(own, pixels)} are read") from None
    except UnidentifiedImageError:
        raise BadInput(
            f"the body is no {PICTURES[kind]} picture, as Content-Type {kind} says: send one, or say its own type"
        ) from None
    except Exception as problem:  # decoders of damaged pictures raise anything
        raise BadInput(f"the body is no {PICTURES[kind]} picture that can be read ({str(problem)[:100]})") from None
    return values[None] if shape[0] == 1 else np.ascontiguousarray(values.transpose(2, 0, 1))
