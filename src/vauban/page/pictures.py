"""Small pictures of inputs as PNG data, within a number of bytes; needs neither Pillow nor torch."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDES = (96, 64, 48, 32, 24, 16)
"""Sides, in pixels, to which pictures are made smaller until all of them fit."""


def is_picture(shape: Sequence[int]) -> bool:
    """Whether inputs of this shape [channels, height, width] can be shown: grey or coloured."""
    return len(shape) == 3 and shape[0] in (1, 3) and min(shape) > 0


def data_urls(images: NDArray[Any], limits: tuple[float, float] | None, most: int) -> list[str]:
    """Pictures [m, channels, height, width] as `data:` addresses of `most` characters in all, made smaller if they have to be.

    `limits`: the values that are black and white; 0 and 255 for 8-bit pictures, each picture's own where they are None.
    """
    for side in SIDES:
        urls = [data_url(_smaller(_eight_bit(image, limits), side)) for image in images]
        if sum(map(len, urls)) <= most:
            return urls
    return []


def data_url(image: NDArray[np.uint8]) -> str:
    """One picture [channels, height, width] as a `data:` address of a PNG."""
    return f"data:image/png;base64,{base64.b64encode(png(image)).decode()}"


def png(image: NDArray[np.uint8]) -> bytes:
    """A PNG of a grey or coloured picture [1 or 3, height, width]."""
    channels, height, width = image.shape
    rows = np.ascontiguousarray(image.transpose(1, 2, 0)).reshape(height, width * channels)
    filtered = np.concatenate([np.zeros((height, 1), dtype=np.uint8), rows], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(filtered, 9)), (b"IEND", b"")]
    chunks = [struct.pack(">I", len(body)) + kind + body + _check(kind + body) for kind, body in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _check(content: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(content))


def _eight_bit(image: NDArray[Any], limits: tuple[float, float] | None) -> NDArray[np.uint8]:
    if image.dtype == np.uint8:
        return image
    low, high = limits if limits is not None else (float(image.min()), float(image.max()))
    scaled = (image.astype(np.float64) - low) / ((high - low) or 1.0)
    return np.clip(np.rint(scaled * 255), 0, 255).astype(np.uint8)


def _smaller(image: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """The picture averaged over blocks, so that neither side is longer than `side`."""
    _, height, width = image.shape
    step = -(-max(height, width) // side)
    if step == 1:
        return image
    padded = np.pad(image, ((0, 0), (0, -height % step), (0, -width % step)), mode="edge").astype(np.float64)
    blocks = padded.reshape(image.shape[0], padded.shape[1] // step, step, padded.shape[2] // step, step)
    return np.rint(blocks.mean(axis=(2, 4))).astype(np.uint8)
