"""Triton kernels: Gaussian views written where and how a network reads them, and a max-pool for fused networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

from vauban.laws.rounded_noise import BITS, GUIDE_BITS, PER_WORD
from vauban.smoothing.grid import GridNoise
from vauban.smoothing.random import WORDS_PER_BLOCK

if TYPE_CHECKING:
    from vauban.engine.fusing.entry import Entry

_WORDS = 1024  # words of a tile of the noise kernel; the place of one within it fits into 16 bits
_CUT = 32  # numbers that the search takes at a time
_NUMBERS = 1024  # numbers of a tile of the other kernels
_REST = tl.constexpr(BITS - GUIDE_BITS)
_LOW = tl.constexpr((1 << BITS - GUIDE_BITS) - 1)


@triton.jit
def _offset(  # type: ignore[no-untyped-def]
    channel, pixel, C: tl.constexpr, W: tl.constexpr, S: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    ACROSS: tl.constexpr, WIDE: tl.constexpr, PLANE: tl.constexpr,
):  # fmt: skip
    """Where a number of a view is in its part of an entry's buffer."""
    y, x = pixel // W + TOP, pixel % W + LEFT
    return ((y // S) * ACROSS + x // S) * WIDE + ((y % S) * S + x % S) * C + channel * PLANE


@triton.jit
def _put(  # type: ignore[no-untyped-def]
    out, scale, shift, row, number, value, known,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, S: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    ACROSS: tl.constexpr, WIDE: tl.constexpr, PLANE: tl.constexpr, ROW: tl.constexpr,
):  # fmt: skip
    """Write float32 values as the numbers (channel, then height, then width) of views into an entry's buffer."""
    channel, pixel = number // (H * W), number % (H * W)
    value = value * tl.load(scale + channel, mask=known, other=0.0) + tl.load(shift + channel, mask=known, other=0.0)
    at = row * ROW + _offset(channel, pixel, C, W, S, TOP, LEFT, ACROSS, WIDE, PLANE)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=known)


@triton.jit
def _write(  # type: ignore[no-untyped-def]
    views, scale, shift, out,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, S: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    ACROSS: tl.constexpr, WIDE: tl.constexpr, PLANE: tl.constexpr, ROW: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    number = tl.program_id(1) * B + tl.arange(0, B)
    known = number < C * H * W
    value = tl.load(views + row * (C * H * W) + number, mask=known, other=0.0).to(tl.float32)
    _put(out, scale, shift, row, number, value, known, C, H, W, S, TOP, LEFT, ACROSS, WIDE, PLANE, ROW)


@triton.jit
def _philox(counter, keys, at, block, blocks):  # type: ignore[no-untyped-def]
    """Four words of 64 bits for each counter of the stream of a block: `smoothing.random.philox`."""
    zero = counter * 0
    c0 = counter.to(tl.uint64)
    c1 = (zero + tl.load(at + 3 * block)).to(tl.uint64)
    c2 = (zero + tl.load(at + 3 * block + 1)).to(tl.uint64)
    c3 = zero.to(tl.uint64)
    first: tl.constexpr = 0xD2E7470EE14C6C93
    second: tl.constexpr = 0xCA5A826395121157
    for i in tl.static_range(10):
        key0 = tl.load(keys + (2 * i) * blocks + block).to(tl.uint64)
        key1 = tl.load(keys + (2 * i + 1) * blocks + block).to(tl.uint64)
        m0 = tl.full(c0.shape, first, tl.uint64)
        m1 = tl.full(c0.shape, second, tl.uint64)
        high0, low0 = tl.umulhi(c0, m0), c0 * m0
        high1, low1 = tl.umulhi(c2, m1), c2 * m1
        c0, c1, c2, c3 = high1 ^ c1 ^ key0, low1, high0 ^ c3 ^ key1, low0
    return c0, c1, c2, c3


@triton.jit
def _word(index, first, keys, at, block, blocks):  # type: ignore[no-untyped-def]
    """Word `index` of a view whose words begin at counter `first`: 63 bits."""
    c0, c1, c2, c3 = _philox(first + index // 4, keys, at, block, blocks)
    place = index % 4
    word = tl.where(place == 0, c0, tl.where(place == 1, c1, tl.where(place == 2, c2, c3)))
    return (word >> 1).to(tl.int64)


@triton.jit
def _noisy(  # type: ignore[no-untyped-def]
    pictures, at, keys, guide, unit, scale, shift, out, waiting, counts, blocks, size_of_block, per_view, main,
    UNDECIDED: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, S: tl.constexpr, TOP: tl.constexpr,
    LEFT: tl.constexpr, ACROSS: tl.constexpr, WIDE: tl.constexpr, PLANE: tl.constexpr, ROW: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Write all numbers that 16 bits decide; note the places of the others, and how many there are.

    A word decides the numbers column, main + column and 2 main + column of a view; of three channels, one pixel. Of undecided
    ones something is written too, which `_searched` writes over.
    """
    tile, tiles, row = tl.program_id(1), tl.num_programs(1), tl.program_id(0).to(tl.int64)
    block = row // size_of_block
    view = tl.load(at + 3 * block + 2) + row % size_of_block
    quarter = tile * (B // 4) + tl.arange(0, B // 4)
    c0, c1, c2, c3 = _philox(view * per_view + 1 + quarter, keys, at, block, blocks)
    words = tl.join(tl.join(c0, c2), tl.join(c1, c3)).reshape([B])
    index = tl.arange(0, B)
    column = tile * B + index
    step, undecided = tl.load(unit), tl.zeros([B], tl.int64)
    if C == 3:
        pixel = out + row * ROW + _offset(0, column, C, W, S, TOP, LEFT, ACROSS, WIDE, PLANE)
    for i in tl.static_range(3):
        number = i * main + column
        known = (column < main) & (number < C * H * W)
        piece = ((words >> (48 - 16 * i)) & 0xFFFF).to(tl.int32)
        found = tl.load(guide + piece, mask=known, other=0).to(tl.int32)
        undecided |= (known & (found == UNDECIDED)).to(tl.int64) << (21 * i)
        steps = found + tl.load(pictures + block * (C * H * W) + number, mask=known, other=0).to(tl.int32)
        value = (steps.to(tl.float64) * step).to(tl.float32)
        if C == 3:
            value = value * tl.load(scale + i) + tl.load(shift + i)
            tl.store(pixel + i * PLANE, value.to(out.dtype.element_ty), mask=known)
        else:
            _put(out, scale, shift, row, number, value, known, C, H, W, S, TOP, LEFT, ACROSS, WIDE, PLANE, ROW)
    ranks, count = tl.cumsum(undecided, axis=0), tl.sum(undecided, axis=0)  # of three counts of 21 bits each
    for i in tl.static_range(3):
        part = (row * 3 + i) * tiles + tile
        before = ((ranks >> (21 * i)) & 0x1FFFFF).to(tl.int32) - 1
        tl.store(waiting + part * B + before, index.to(tl.int16), mask=((undecided >> (21 * i)) & 1) == 1)
        tl.store(counts + part, ((count >> (21 * i)) & 0x1FFFFF).to(tl.int32))


@triton.jit
def _searched(  # type: ignore[no-untyped-def]
    pictures, at, keys, thresholds, unit, scale, shift, out, waiting, counts, before, blocks, size_of_block, per_view, main,
    more, length, offset, tiles,
    STEPS: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, S: tl.constexpr, TOP: tl.constexpr,
    LEFT: tl.constexpr, ACROSS: tl.constexpr, WIDE: tl.constexpr, PLANE: tl.constexpr, ROW: tl.constexpr, B: tl.constexpr,
    N: tl.constexpr,
):  # fmt: skip
    """Write the numbers that 16 bits leave undecided: the m-th of a row takes 47 more bits from the m-th of its extra words."""
    tile, row = tl.program_id(1), tl.program_id(0).to(tl.int64)
    block = row // size_of_block
    first = (tl.load(at + 3 * block + 2) + row % size_of_block) * per_view + 1
    place = row * (3 * tiles) + tile
    until1 = tl.load(counts + place)
    until2 = until1 + tl.load(counts + place + tiles)
    until3 = until2 + tl.load(counts + place + 2 * tiles)
    for start in range(0, until3, N):
        m = start + tl.arange(0, N)
        known = m < until3
        i = (m >= until1).to(tl.int32) + (m >= until2).to(tl.int32)  # which of a word's three numbers
        m -= tl.where(i == 0, 0, tl.where(i == 1, until1, until2))
        part = place + i * tiles
        column = (tile * B + tl.load(waiting + part * B + m, mask=known, other=0)).to(tl.int64)
        piece = (_word(column, first, keys, at, block, blocks) >> (47 - 16 * i).to(tl.int64)) & 0xFFFF
        rank = tl.load(before + part, mask=known, other=0) + m
        extra = main + tl.minimum(rank, more - 1).to(tl.int64)
        word = (piece << _REST) | (_word(extra, first, keys, at, block, blocks) & _LOW)
        low, high = tl.zeros([N], tl.int32), tl.full([N], 0, tl.int32) + length
        for _ in tl.static_range(STEPS):
            middle = (low + high) // 2
            right = tl.load(thresholds + middle, mask=known & (low < high), other=0) <= word
            low, high = (
                tl.where((low < high) & right, middle + 1, low),
                tl.where((low < high) & (right == 0), middle, high),
            )
        number = i * main + column
        steps = low - offset + tl.load(pictures + block * (C * H * W) + number, mask=known, other=0).to(tl.int32)
        value = (steps.to(tl.float64) * tl.load(unit)).to(tl.float32)
        _put(out, scale, shift, row, number, value, known, C, H, W, S, TOP, LEFT, ACROSS, WIDE, PLANE, ROW)


@triton.jit
def _max_pool(  # type: ignore[no-untyped-def]
    x, out, height, width, down, across, total,
    C: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr,
    PW: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    line = tl.program_id(0).to(tl.int64)  # one line of one picture
    picture, top = line // down, (line % down) * SH - PH
    number = tl.program_id(1) * B + tl.arange(0, B)
    known = number < total
    column, channel = number // C, number % C
    left = column * SW - PW
    best = tl.full([B], float("-inf"), tl.float32)
    for i in tl.static_range(KH):
        for j in tl.static_range(KW):
            y, z = number * 0 + top + i, left + j
            there = known & (y >= 0) & (y < height) & (z >= 0) & (z < width)
            value = tl.load(x + ((picture * height + y) * width + z) * C + channel, mask=there, other=float("-inf"))
            best = tl.maximum(best, value.to(tl.float32), propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + line * total + number, best.to(out.dtype.element_ty), mask=known)


def write(entry: Entry, views: Tensor, out: Tensor) -> None:
    """`Entry.write` in one kernel."""
    size = views[0].numel()
    grid = (len(views), triton.cdiv(size, _NUMBERS))
    _write[grid](views.contiguous(), entry.scale, entry.shift, out, **_places(entry), B=_NUMBERS)


def max_pool(x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> Tensor:
    """The max-pool of a channels-last tensor [n, channels, height, width]; NaN stays NaN."""
    n, channels, height, width = x.shape
    down, across = (
        (size + 2 * pad - side) // step + 1
        for size, side, step, pad in zip((height, width), kernel, stride, padding, strict=True)
    )
    out = torch.empty(n, down, across, channels, dtype=x.dtype, device=x.device).permute(0, 3, 1, 2)
    total = across * channels
    _max_pool[(n * down, triton.cdiv(total, _NUMBERS))](
        x, out, height, width, down, across, total, C=channels, KH=kernel[0], KW=kernel[1], SH=stride[0], SW=stride[1],
        PH=padding[0], PW=padding[1], B=_NUMBERS,
    )  # fmt: skip
    return out


class NoiseWriter:
    """Writes views with packed noise of a table (`GridNoise.noisy`), bit for bit, into an entry's buffer.

    A first kernel writes what 16 bits of a word decide and notes the rest, a second one writes that: no random word and no
    view is in memory. `levels`: of the pictures' grid; `rows`, `block`: of the compute shape.
    """

    def __init__(self, entry: Entry, noise: GridNoise, levels: int, rows: int, block: int):
        device, size = entry.scale.device, entry.shape[0] * entry.shape[1] * entry.shape[2]
        self._entry, self._noise, self._rows, self._block = entry, noise, rows, block
        self._main, self._more = noise.law.packed_words(size)
        self._per_view = -(-(self._main + self._more) // WORDS_PER_BLOCK)
        self._tiles = triton.cdiv(self._main, _WORDS)
        self._guide, self._thresholds = (table.contiguous() for table in noise.tables(device)[:2])
        self._unit = torch.tensor([1 / levels], dtype=torch.float64, device=device)
        parts = (rows, PER_WORD * self._tiles)
        self._waiting = torch.empty(*parts, _WORDS, dtype=torch.int16, device=device)
        self._counts = torch.empty(parts, dtype=torch.int32, device=device)

    def __call__(self, pictures: Tensor, at: Tensor, keys: Tensor, out: Tensor) -> None:
        """Write the views of pictures [blocks, ...] at these addresses, with keys as `smoothing.random.keys_of` gives them."""
        entry, blocks = self._entry, len(at)
        each = keys if keys.dim() == 4 else keys[..., None, None]
        each = each.expand(-1, -1, blocks, 1).contiguous()
        pictures, at, places = pictures.contiguous(), at.contiguous(), _places(entry)
        scales = entry.scale, entry.shift, out, self._waiting, self._counts
        _noisy[(self._rows, self._tiles)](
            pictures, at, each, self._guide, self._unit, *scales, blocks, self._block, self._per_view, self._main,
            UNDECIDED=int(self._noise.undecided), B=_WORDS, **places,
        )  # fmt: skip
        before = self._counts.cumsum(1, dtype=torch.int32) - self._counts
        _searched[(self._rows, self._tiles)](
            pictures, at, each, self._thresholds, self._unit, *scales, before, blocks, self._block, self._per_view, self._main,
            self._more, len(self._thresholds), self._noise.law.offset, self._tiles,
            STEPS=len(self._thresholds).bit_length(), B=_WORDS, N=_CUT, num_warps=1, **places,
        )  # fmt: skip


def _places(entry: Entry) -> dict[str, int]:
    """Where numbers of a view go, as constants of a kernel: `PLANE` from channel to channel, `ROW` from view to view."""
    channels, height, width = entry.shape
    down, across, wide = entry.written
    left, _, top, _ = entry.pads
    places = {"C": channels, "H": height, "W": width, "S": entry.stride, "TOP": top, "LEFT": left, "ACROSS": across}
    if entry.layout == "first":
        return places | {"WIDE": 1, "PLANE": height * width, "ROW": channels * height * width}
    return places | {"WIDE": wide, "PLANE": 1, "ROW": down * across * wide}
