"""Noisy views written by a kernel where a network reads them, bit for bit as they are made without it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vauban.engine.failed_calls import reason
from vauban.engine.fusing.entry import Entry
from vauban.smoothing.base import Smoothing
from vauban.smoothing.random import addressed_words

Arguments = tuple[Tensor, Tensor, Tensor]
"""Pictures [blocks, ...], addresses and keys."""


def writer(
    entry: Entry, rows: int, dtype: torch.dtype, smoothing: Smoothing, levels: int, block: int, first: Arguments
) -> Callable[..., None]:
    """What writes views of pictures, addresses and keys into an entry's buffer: the kernel, once it has written those of `first`
    bit for bit as they are made without it; else, after a warning, what makes them so."""
    noise = smoothing.packed(levels)
    assert noise is not None

    def made(pictures: Tensor, at: Tensor, keys: Tensor, out: Tensor) -> None:
        words = addressed_words(keys, at, block, smoothing.words(pictures.shape[1:], levels))
        entry.write(smoothing.views(pictures.repeat_interleave(block, 0), words, levels), out)

    found, wanted = (entry.buffer(rows, dtype) for _ in range(2))
    made(*first, wanted)
    try:
        from vauban.engine.fusing.kernels import NoiseWriter

        kernel = NoiseWriter(entry, noise, levels, rows, block)
        kernel(*first, found)
        problem = "" if torch.equal(found, wanted) else "it wrote other numbers"
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as failure:
        problem = reason(failure)
    if not problem:
        return kernel
    warnings.warn(f"the kernel for noise cannot be used ({problem}): views are made without it", stacklevel=2)
    return made


class WrittenViews:
    """Views [rows, channels, height, width] of a sampler's pictures, in its network's type and layout: always the same memory."""

    def __init__(self, sampler: Any, shape: torch.Size):
        network, channels = sampler.network, shape[0]
        scale, shift = torch.ones(channels, device=sampler.device), torch.zeros(channels, device=sampler.device)
        layout = "last" if network.channels_last else "first"
        self._entry = Entry((channels, shape[1], shape[2]), 1, (0, 0, 0, 0), scale, shift, layout=layout)
        self._about = sampler.rows, network.dtype, sampler.smoothing, sampler.levels, sampler.block_size
        self._laid = self._entry.buffer(sampler.rows, network.dtype)
        self._write: Callable[..., None] | None = None

    def __call__(self, *arguments: Tensor) -> Tensor:
        """The views of pictures [blocks, ...], addresses and keys."""
        if self._write is None:
            self._write = writer(self._entry, *self._about, arguments)  # type: ignore[arg-type]
        self._write(*arguments, self._laid)
        return self._laid
