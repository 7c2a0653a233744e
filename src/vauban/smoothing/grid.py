"""Words into noise: integers of a rounded law by table, or uniform numbers for laws without a grid."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from vauban.laws.law import Law
from vauban.laws.rounded_noise import BITS, GUIDE_BITS, RoundedNoise

_REST = BITS - GUIDE_BITS
_SHIFTS = (_REST, _REST - GUIDE_BITS, _REST - 2 * GUIDE_BITS)  # where the three packed numbers of a word begin

_CHUNK, _LONG = 1024, 2**14


class GridNoise:
    """Inverts the table of a rounded law.

    The first 16 bits of a word decide nearly always: a guide table holds the value of every bucket that no threshold cuts.
    On the CPU only words in a cut bucket are searched. Elsewhere all take the same way, so that nothing waits for a number and
    shapes are known to a compiler; words that the guide has decided are searched as 0, from one place in memory.
    """

    def __init__(self, law: RoundedNoise):
        self.law = law
        starts = np.arange(1 << GUIDE_BITS, dtype=np.int64) << _REST
        first, last = law(starts), law(starts + ((1 << _REST) - 1))
        most = max(law.offset, len(law.thresholds) - law.offset) + 2**10  # room for a level to be added
        width = np.int16 if most < np.iinfo(np.int16).max else np.int32
        self._cut = np.iinfo(width).min
        self._guide = np.where(first == last, first, self._cut).astype(width)
        self._tables: dict[torch.device, list[torch.Tensor]] = {}

    def draw(self, words: torch.Tensor) -> torch.Tensor:
        """Integers in grid steps, one per word, same shape: int16 or int32."""
        if self._on_cpu(words):
            return self._draw_on_cpu(words)
        guided = self._on(words.device)[0][words >> _REST].int()
        cut = guided == self._cut
        return torch.where(cut, self._search(torch.where(cut, words, 0)), guided)

    def _on_cpu(self, words: torch.Tensor) -> bool:
        return words.device.type == "cpu"

    def _on(self, device: torch.device) -> list[torch.Tensor]:
        """The guide, the thresholds and where packed numbers begin, on a device."""
        if device not in self._tables:
            tables = torch.from_numpy(self._guide), torch.from_numpy(self.law.thresholds), torch.tensor(_SHIFTS)
            self._tables[device] = [table.to(device) for table in tables]
        return self._tables[device]

    def _search(self, words: torch.Tensor) -> torch.Tensor:
        thresholds = self._on(words.device)[1]
        return torch.bucketize(words, thresholds, right=True, out_int32=True) - self.law.offset

    def noisy(self, x: torch.Tensor, words: torch.Tensor, levels: int) -> torch.Tensor:
        """Whole numbers `x` [1 or n, size] plus packed noise, as float32 fractions of `levels`, [n, size]."""
        size = x.shape[1]
        if not self._on_cpu(words):
            return to_unit(self.draw_packed(words, size).add(x), levels)
        noise = self._packed_on_cpu(words.numpy(), size)  # in one go and without torch: this is all the engine adds
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

        16 bits of a word decide a number nearly always; the m-th of a row that they leave open gets 47 more from the m-th of
        the row's last words.
        """
        main, more = self.law.packed_words(size)
        if self._on_cpu(words):
            noise = self._packed_on_cpu(words.numpy(), size).swapaxes(0, 1)
            return torch.from_numpy(noise.reshape(len(words), 3 * main))[:, :size]
        guide, _, shifts = self._on(words.device)
        pieces = (words[:, None, :main] >> shifts[:, None] & 0xFFFF).flatten(1)
        if size > _LONG:
            return self._long_rows(words, settled(guide[pieces]), main, more)[:, :size].int()
        guided = guide[pieces].int()
        cut = guided == self._cut
        rank = _ranks(cut).clamp(0, more - 1)
        rest = words[:, main:].gather(1, rank.long()) & (1 << _REST) - 1
        found = self._search(torch.where(cut, pieces << _REST | rest, 0))
        return torch.where(cut, found, guided)[:, :size]

    def _long_rows(self, words: torch.Tensor, guided: torch.Tensor, main: int, more: int) -> torch.Tensor:
        """The same numbers where rows are long: the few that are open are brought together, searched and put back.

        The m-th open number of a row goes to slot m; decided ones all go to one more slot, which nobody reads. Where words run
        out (`packed_words`: once in 2^100), numbers that share the last word share its slot, and get other values than above.
        """
        shifts = self._on(words.device)[2]
        cut = guided == self._cut
        slot = torch.where(cut, _ranks(cut).clamp(0, more - 1), more).long()
        places = torch.arange(guided.shape[1], dtype=torch.int32, device=words.device).expand_as(guided)
        place = places.new_zeros(len(words), more + 1).scatter(1, slot, places)[:, :more].long()
        piece = words[:, :main].gather(1, place % main) >> shifts[place // main] & 0xFFFF
        found = self._search(piece << _REST | words[:, main:] & (1 << _REST) - 1).to(guided.dtype)
        return torch.where(cut, torch.nn.functional.pad(found, (0, 1)).gather(1, slot), guided)

    def _packed_on_cpu(self, words: np.ndarray, size: int) -> np.ndarray:
        """Packed noise [3, n, words for three], number i * main + j of a row at [i, row, j]."""
        main, more = self.law.packed_words(size)
        pieces = np.empty((3, len(words), main), np.int64)
        for piece, shift in zip(pieces, _SHIFTS, strict=True):
            np.right_shift(words[:, :main], shift, out=piece)
        pieces[1:] &= 0xFFFF
        noise = self._guide.take(pieces)
        cut = np.flatnonzero(noise == self._cut)
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
        cut = np.flatnonzero(noise == self._cut)
        noise[cut] = self.law(flat[cut])
        return torch.from_numpy(noise).view(words.shape)


@torch.library.custom_op("vauban::settled", mutates_args=(), schema="(Tensor x) -> Tensor")
def settled(x: torch.Tensor) -> torch.Tensor:
    """A copy that a compiler keeps in memory: what is looked up at random is looked up once, not by everyone who needs it."""
    return x.clone()


@settled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _ranks(cut: torch.Tensor) -> torch.Tensor:
    """How many are True before each True of a row [n, size], int32; long rows by chunks, so that they keep many cores busy."""
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

    Elsewhere than on the CPU, where a division may be approximate, they are multiplied by 1 / levels in float64. The product
    is wrong by under 2^-51 of itself, and a fraction k / levels of k < 2^20 is no midpoint of two float32 and at least
    2^-25 / levels of itself away from every one, so it is rounded to the same float32.
    """
    if steps.device.type == "cpu":
        steps = steps.float()
        return steps.div_(steps.new_full((), levels))
    return (steps.double() * (1 / levels)).float()


def uniforms(words: torch.Tensor) -> torch.Tensor:
    """Uniform numbers strictly between 0 and 1, float64, from the first 52 bits of each word."""
    return ((words >> (BITS - 52)).double() + 0.5) * 2.0**-52
