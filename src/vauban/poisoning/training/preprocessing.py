"""Preprocesses pictures before training and before voting; each result is a function of one picture alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput
from vauban.specs import choose

_AT_ONCE = 1 << 24


def equalise(x: NDArray[Any]) -> NDArray[np.uint8]:
    """8-bit pictures [n, channels, ...] with the histogram of each channel equalised. [Levine2023] section F.8

    Value v becomes round(255 * (C(v) - C(min)) / (pixels - C(min))), where C(v) counts the pixels up to v; a constant channel
    stays as it is.

    >>> equalise(np.array([[[10, 10, 20, 30]], [[7, 7, 7, 7]]], dtype=np.uint8)).tolist()
    [[[0, 0, 128, 255]], [[7, 7, 7, 7]]]
    """
    if x.dtype != np.uint8 or x.ndim < 3:
        raise BadInput(
            f"histogram equalisation takes 8-bit pictures [n, channels, ...], not {x.dtype} of shape {x.shape}"
        )
    flat = x.reshape(x.shape[0] * x.shape[1], -1)
    out = np.empty_like(flat)
    step = max(1, _AT_ONCE // flat.shape[1])
    for i in range(0, len(flat), step):
        out[i : i + step] = _equalised(flat[i : i + step])
    return out.reshape(x.shape)


def _equalised(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    n, pixels = rows.shape
    shifted = rows.astype(np.int64) + 256 * np.arange(n)[:, None]
    up_to = np.bincount(shifted.reshape(-1), minlength=256 * n).reshape(n, 256).cumsum(axis=1)
    least = up_to[np.arange(n), rows.min(axis=1)][:, None]
    rest = np.maximum(pixels - least, 1)
    table = np.clip((2 * 255 * (up_to - least) + rest) // (2 * rest), 0, 255)
    constant = (least == pixels)[:, 0]
    table[constant] = np.arange(256)
    return table[np.arange(n)[:, None], rows].astype(np.uint8)


PREPROCESS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {"none": lambda x: x, "equalise": equalise}


def preprocess(name: str, x: NDArray[Any]) -> NDArray[Any]:
    """The samples after the preprocessing of this name."""
    return PREPROCESS[canonical_name(name)](x) if len(x) else x


def canonical_name(name: str) -> str:
    """The name as manifests spell it."""
    return choose("preprocessing", {"equalize": "equalise"}.get(name, name), PREPROCESS)
