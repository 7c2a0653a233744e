"""Noise from random words: integers of a rounded law by table lookup, or uniform floats for inputs without a grid."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from vauban.laws.law import Law
from vauban.laws.rounded_noise import BITS, GUIDE_BITS, RoundedNoise

_REST = BITS - GUIDE_BITS
_SHIFTS = (_REST, _REST - GUIDE_BITS, _REST - 2 * GUIDE_BITS)  # bit positions of the three packed numbers of a word

_CHUNK, _LONG = 1024, 2**14  # rows longer than _LONG are processed in chunks of _CHUNK numbers


class GridNoise:
    """Samples a rounded law by inverting its table.

    The first 16 bits of a word nearly always determine the value: a guide table holds it for every bucket (words with the same
    16 bits) that no threshold cuts. On the CPU only words in a cut bucket are searched in the full table. On other devices all
    words are searched, without synchronisation and with static shapes for the compiler; decided words are searched as 0, which
    always reads the same memory. `undecided`: what the guide holds for a bucket that a threshold cuts.
    """

    def __init__(self, law: RoundedNoise):
        self.law = law
        starts = np.arange(1 << GUIDE_BITS, dtype=np.int64) << _REST
        first, last = law(starts), law(starts + ((1 << _REST) - 1))
        most = max(law.offset, len(law.thresholds) - law.offset) + 2**10  # headroom for adding a level
        width = np.int16 if most < np.iinfo(np.int16).max else np.int32
        self.undecided = np.iinfo(width).min
        self._guide = np.where(first == last, first, self.undecided).astype(width)
        self._tables: dict[torch.device, list[torch.Tensor]] = {}

    def draw(self, words: torch.Tensor) -> torch.Tensor:
        """Integers in grid steps, one per word, same shape: int16 or int32."""
        if self._on_cpu(words):
            return self._draw_on_cpu(words)
        guided = self.tables(words.device)[0][words >> _REST].int()
        cut = guided == self.undecided
        return torch.where(cut, self._search(torch.where(cut, words, 0)), guided)

    def _on_cpu(self, words: torch.Tensor) -> bool:
        return words.device.type == "cpu"

    def tables(self, device: torch.device) -> list[torch.Tensor]:
        """The guide, the thresholds and the bit positions of packed numbers, on a device."""
        if device not in self._tables:
            tables = torch.from_numpy(self._guide), torch.from_numpy(self.law.thresholds), torch.tensor(_SHIFTS)
            self._tables[device] = [table.to(device) for table in tables]
        return self._tables[device]

    def _search(self, words: torch.Tensor) -> torch.Tensor:
        thresholds = self.tables(words.device)[1]
        return torch.bucketize(words, thresholds, right=True, out_int32=True) - self.law.offset

    def noisy(self, x: torch.Tensor, words: torch.Tensor, levels: int) -> torch.Tensor:
        """Whole numbers `x` [1 or n, size] plus packed noise, as float32 fractions of `levels`, [n, size]."""
        size = x.shape[1]
        if not self._on_cpu(words):
            return to_unit(self.draw_packed(words, size).add(x), levels)
        noise = self._packed_on_cpu(
            words.numpy(), size
        )  # in NumPy and in place: this is the engine's overhead over bare passes
        _, n, main = noise.shape
        padded = np.zeros((len(x), 3 * main), noise.dtype)
        padded[:, :size] = x.numpy()
        noise += padded.reshape(-1, 3, main).swapaxes(0, 1)
        views = np.empty((n, 3 * main), np.float32)
        views.reshape(n, 3, main)[...] = noise.swapaxes(0, 1)
        views /= np.float32(levels)
        return torch.from_numpy(views)[:, :size]

    def draw_packed(self, words: torch.Tensor, size: int) -> torch.Tensor:
        """Integers [n, size] from words [n, sum(law.packed_words(size))], three numbers to a word.

        16 bits nearly always determine a number; the m-th number of a row that they leave undecided takes 47 more bits from the
        m-th of the row's extra words.
        """
        main, more = self.law.packed_words(size)
        if self._on_cpu(words):
            noise = self._packed_on_cpu(words.numpy(), size).swapaxes(0, 1)
            return torch.from_numpy(noise.reshape(len(words), 3 * main))[:, :size]
        guide, _, shifts = self.tables(words.device)
        pieces = (words[:, None, :main] >> shifts[:, None] & 0xFFFF).flatten(1)
        if size > _LONG:
            return self._long_rows(words, settled(guide[pieces]), main, more)[:, :size].int()
        guided = guide[pieces].int()
        cut = guided == self.undecided
        rank = _ranks(cut).clamp(0, more - 1)
        rest = words[:, main:].gather(1, rank.long()) & (1 << _REST) - 1
        found = self._search(torch.where(cut, pieces << _REST | rest, 0))
        return torch.where(cut, found, guided)[:, :size]

    def _long_rows(self, words: torch.Tensor, guided: torch.Tensor, main: int, more: int) -> torch.Tensor:
        """The numbers of `draw_packed` for long rows: the few undecided ones are gathered, searched and scattered back.

        The m-th undecided number of a row goes to slot m; decided ones go to one extra slot, which is never read. If the extra
        words run out (`packed_words`: probability under 2^-100), numbers that share the last word share its slot, and their
        values differ from those of `draw_packed`.
        """
        shifts = self.tables(words.device)[2]
        cut = guided == self.undecided
        slot = torch.where(cut, _ranks(cut).clamp(0, more - 1), more).long()
        columns = torch.arange(guided.shape[1], dtype=torch.int32, device=words.device).expand_as(guided)
        column = columns.new_zeros(len(words), more + 1).scatter(1, slot, columns)[:, :more].long()
        piece = words[:, :main].gather(1, column % main) >> shifts[column // main] & 0xFFFF
        found = self._search(piece << _REST | words[:, main:] & (1 << _REST) - 1).to(guided.dtype)
        return torch.where(cut, torch.nn.functional.pad(found, (0, 1)).gather(1, slot), guided)

    def _packed_on_cpu(self, words: np.ndarray, size: int) -> np.ndarray:
        """Packed noise [3, n, main]: number i * main + j of a row is at [i, row, j]."""
        main, more = self.law.packed_words(size)
        pieces = np.empty((3, len(words), main), np.int64)
        for piece, shift in zip(pieces, _SHIFTS, strict=True):
            np.right_shift(words[:, :main], shift, out=piece)
        pieces[1:] &= 0xFFFF
        noise = self._guide.take(pieces)
        cut = np.flatnonzero(noise == self.undecided)
        row = cut // main % len(words)
        order = np.argsort(row, kind="stable")
        row, cut = row[order], cut[order]
        rank = np.minimum(np.arange(len(cut)) - np.searchsorted(row, row), more - 1)
        rest = words[row, main + rank] & (1 << _REST) - 1
        noise.reshape(-1)[cut] = self.law(pieces.reshape(-1)[cut] << _REST | rest)
        return noise

    def _draw_on_cpu(self, words: torch.Tensor) -> torch.Tensor:
        flat = words.numpy().reshape(-1)
        noise = self._guide.take(flat >> _REST)
        cut = np.flatnonzero(noise == self.undecided)
        noise[cut] = self.law(flat[cut])
        return torch.from_numpy(noise).view(words.shape)


@torch.library.custom_op("vauban::settled", mutates_args=(), schema="(Tensor x) -> Tensor")
def settled(x: torch.Tensor) -> torch.Tensor:
    """A copy that the compiler must store: random lookups run once and are not repeated in every kernel that uses them."""
    return x.clone()


@settled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _ranks(cut: torch.Tensor) -> torch.Tensor:
    """How many are True before each True of a row [n, size], int32; long rows in chunks, which run in parallel."""
    n, size = cut.shape
    if size <= _LONG:
        return cut.cumsum(1, dtype=torch.int32) - 1
    chunks = torch.nn.functional.pad(cut, (0, -size % _CHUNK)).view(n, -1, _CHUNK)
    sums = chunks.sum(2, dtype=torch.int32)
    before = sums.cumsum(1, dtype=torch.int32) - sums
    return (chunks.cumsum(2, dtype=torch.int32) + before[..., None]).flatten(1)[:, :size] - 1


@lru_cache(maxsize=16)
def grid_noise(law: Law, levels: int) -> GridNoise:
    """The table of `law` rounded to steps of 1 / levels, built once."""
    return GridNoise(law.rounded(levels))


def to_unit(steps: torch.Tensor, levels: int) -> torch.Tensor:
    """Whole numbers of steps as float32 fractions of `levels`, the same bits on every device; may reuse float `steps`.

    On devices other than the CPU, where a division may be approximate, they are multiplied by 1 / levels in float64. The
    product's relative error is under 2^-51. A fraction k / levels with k < 2^20 is no midpoint of two float32 and is at least
    2^-25 / levels of itself away from every midpoint, so both round to the same float32.
    """
    if steps.device.type == "cpu":
        steps = steps.float()
        return steps.div_(steps.new_full((), levels))
    return (steps.double() * (1 / levels)).float()


def uniforms(words: torch.Tensor) -> torch.Tensor:
    """Uniform numbers strictly between 0 and 1, float64, from the first 52 bits of each word."""
    return ((words >> (BITS - 52)).double() + 0.5) * 2.0**-52
