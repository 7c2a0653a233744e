"""Words into noise: integers of a rounded law by table, or uniform numbers for laws without a grid."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from vauban.certificates.law import Law
from vauban.certificates.rounding import BITS, RoundedNoise

_GUIDE_BITS = 16
_REST = BITS - _GUIDE_BITS


class GridNoise:
    """Inverts the table of a rounded law.

    On the CPU the first 16 bits of a word decide nearly always: a guide table holds the value of every bucket that no
    threshold cuts, and only words in a cut bucket are searched. Elsewhere all are searched, which needs no waiting.
    """

    def __init__(self, law: RoundedNoise):
        self.law = law
        starts = np.arange(1 << _GUIDE_BITS, dtype=np.int64) << _REST
        first, last = law(starts), law(starts + ((1 << _REST) - 1))
        most = max(law.offset, len(law.thresholds) - law.offset) + 2**10  # room for a level to be added
        width = np.int16 if most < np.iinfo(np.int16).max else np.int32
        self._cut = np.iinfo(width).min
        self._guide = np.where(first == last, first, self._cut).astype(width)
        self._tables: dict[torch.device, torch.Tensor] = {}

    def draw(self, words: torch.Tensor) -> torch.Tensor:
        """Integers in grid steps, one per word, same shape: int16 or int32."""
        if words.device.type == "cpu":
            return self._draw_on_cpu(words)
        if words.device not in self._tables:
            self._tables[words.device] = torch.from_numpy(self.law.thresholds).to(words.device)
        return torch.searchsorted(self._tables[words.device], words.contiguous(), right=True, out_int32=True).sub_(
            self.law.offset
        )

    def _draw_on_cpu(self, words: torch.Tensor) -> torch.Tensor:
        flat = words.numpy().reshape(-1)
        noise = self._guide.take(flat >> _REST)
        cut = np.flatnonzero(noise == self._cut)
        noise[cut] = self.law(flat[cut])
        return torch.from_numpy(noise).view(words.shape)


@lru_cache(maxsize=16)
def grid_noise(law: Law, levels: int) -> GridNoise:
    """The table of `law` rounded to steps of 1 / levels, built once."""
    return GridNoise(law.rounded(levels))


def to_unit(steps: torch.Tensor, levels: int) -> torch.Tensor:
    """Whole numbers of steps as float32 fractions of `levels`, the same bits on every device; may reuse float `steps`.

    The divisor is a tensor: by a Python number, CUDA multiplies with its rounded inverse.
    """
    steps = steps.float()
    return steps.div_(steps.new_full((), levels))


def uniforms(words: torch.Tensor) -> torch.Tensor:
    """Uniform numbers strictly between 0 and 1, float64, from the first 52 bits of each word."""
    return ((words >> (BITS - 52)).double() + 0.5) * 2.0**-52
