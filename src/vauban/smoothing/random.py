"""Randomness that is addressed, not consumed: word w of view j of input i is a function of (seed, stage, i, j, w).

The function is Philox4x64-10 [Salmon2011], NumPy's generator on the CPU and the same arithmetic in torch elsewhere, so
every device computes the same words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from vauban.seed import Seed

WORDS_PER_BLOCK = 4
STAGES = {"count": 0, "choose": 1, "predict": 2, "train": 3, "probe": 4, "surrogate": 5, "augment": 6}

_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_INCREMENTS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10
_LOW = 2**64 - 1


@dataclass(frozen=True)
class Stream:
    """The random words of one input in one stage of a run."""

    seed: Seed
    stage: str
    input: int

    def words(self, start: int, views: int, per_view: int, device: torch.device) -> torch.Tensor:
        """Uniform integers in [0, 2^63), int64 [views, per_view], for the views start, start + 1, …"""
        blocks = -(-per_view // WORDS_PER_BLOCK)
        if device.type == "cpu":
            return _numpy_words([self], [start], views, blocks)[:, :per_view]
        raw = self._torch_words(start * blocks, views * blocks, device)
        return raw.view(views, blocks * WORDS_PER_BLOCK)[:, :per_view]

    def generator_seed(self, start: int) -> int:
        """32 bits that seed the generators of a random base classifier for the shape from view `start` on.

        Generators of NumPy take no more bits. Shapes of one input in one stage never share them, since `start` is added; those of
        two inputs or stages may, by chance.
        """
        address = f"{self.seed.key:032x} {self.stage} {self.input}"
        return (int.from_bytes(hashlib.sha256(address.encode()).digest()[:4], "little") + start) % 2**32

    def raw_words(self, first: int, count: int) -> np.ndarray:
        """`count` words of 64 bits from block `first` on, by NumPy's generator; arrays spare it reading large numbers."""
        key = self.seed.key
        keys = np.array([key & _LOW, key >> 64], dtype=np.uint64)
        counter = np.array([first, self.input, STAGES[self.stage], 0], dtype=np.uint64)
        found: np.ndarray = np.random.Philox(key=keys, counter=counter).random_raw(count)
        return found

    def _torch_words(self, first: int, count: int, device: torch.device) -> torch.Tensor:
        streams = torch.tensor([[self.input, STAGES[self.stage]]], device=device)
        return philox(round_keys(self.seed, device), streams, torch.tensor([first], device=device), count).view(-1)


def words_of(
    streams: Sequence[Stream], starts: Sequence[int], views: int, per_view: int, device: torch.device
) -> torch.Tensor:
    """Words of `views` views from each stream's start, concatenated.

    int64 [len(streams) * views, per_view], the same words as `Stream.words` of each stream.
    """
    if device.type == "cpu":
        return _numpy_words(streams, starts, views, -(-per_view // WORDS_PER_BLOCK))[:, :per_view]
    keys, at = keys_of(streams, device), addresses(streams, starts).to(device, non_blocking=True)
    return addressed_words(keys, at, views, per_view)


def _numpy_words(streams: Sequence[Stream], starts: Sequence[int], views: int, blocks: int) -> torch.Tensor:
    """Words of `views` views of `blocks` Philox blocks from each stream's start, int64 [len(streams) * views, 4 * blocks]."""
    words = np.empty((len(streams), views * blocks * WORDS_PER_BLOCK), dtype=np.uint64)
    for row, stream, start in zip(words, streams, starts, strict=True):
        np.right_shift(stream.raw_words(start * blocks, len(row)), np.uint64(1), out=row)
    return torch.from_numpy(words.view(np.int64).reshape(-1, blocks * WORDS_PER_BLOCK))


def addresses(streams: Sequence[Stream], starts: Sequence[int]) -> torch.Tensor:
    """The addresses of words, int64 [len(streams), 3]: the input's number, the stage, the first view."""
    return torch.tensor([[s.input, STAGES[s.stage], start] for s, start in zip(streams, starts, strict=True)])


def addressed_words(keys: torch.Tensor, at: torch.Tensor, views: int, per_view: int) -> torch.Tensor:
    """Words for `addresses`, in torch operations only: elementwise and of fixed shape, so they can be compiled."""
    blocks = -(-per_view // WORDS_PER_BLOCK)
    words = philox(keys, at[:, :2], at[:, 2] * blocks, views * blocks)
    return words.view(len(at) * views, blocks * WORDS_PER_BLOCK)[:, :per_view]


def keys_of(streams: Sequence[Stream], device: torch.device) -> torch.Tensor:
    """The keys of the Philox rounds: int64 [rounds, 2], or [rounds, 2, len(streams), 1] where seeds differ."""
    if len({stream.seed for stream in streams}) == 1:
        return round_keys(streams[0].seed, device)
    each = [round_keys(stream.seed, torch.device("cpu")) for stream in streams]
    return torch.stack(each, dim=-1)[..., None].to(device, non_blocking=True)


def round_keys(seed: Seed, device: torch.device) -> torch.Tensor:
    """The keys of the Philox rounds, int64 [rounds, 2]."""
    pair = [seed.key & (2**64 - 1), seed.key >> 64]
    keys = [
        [_signed((k + i * step) % 2**64) for k, step in zip(pair, _INCREMENTS, strict=True)] for i in range(_ROUNDS)
    ]
    return torch.tensor(keys, device=device)


def philox(keys: torch.Tensor, streams: torch.Tensor, first: torch.Tensor, count: int) -> torch.Tensor:
    """Words of `count` blocks from block `first` [s] on, of the (input, stage) in `streams` [s, 2]: int64 [s, 4 * count]."""
    # NumPy increments its counter before it draws, hence the + 1.
    c0 = first[:, None] + torch.arange(1, count + 1, device=first.device)
    c1, c2, c3 = streams[:, :1], streams[:, 1:], torch.zeros_like(streams[:, :1])
    for key in keys.unbind():
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ key[0], low1, high0 ^ c3 ^ key[1], low0
    words = torch.stack([c.expand(-1, count) for c in (c0, c1, c2, c3)], dim=2).flatten(1)
    return (words >> 1) & (2**63 - 1)


def _signed(word: int) -> int:
    """The int64 with the same 64 bits."""
    return word - 2**64 if word >= 2**63 else word


def _multiply(a: torch.Tensor, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    """High and low 64 bits of the unsigned 128-bit products a * b, as int64 bit patterns; computed in 32-bit halves."""
    mask = 0xFFFFFFFF
    a0, a1 = a & mask, (a >> 32) & mask
    b0, b1 = b & mask, b >> 32
    low = a0 * b0
    cross = a1 * b0 + ((low >> 32) & mask)
    other = a0 * b1 + (cross & mask)
    high = a1 * b1 + ((cross >> 32) & mask) + ((other >> 32) & mask)
    return high, a * _signed(b)
