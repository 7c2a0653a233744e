"""Inputs that are decoded when they are needed, so that memory does not grow with their number; imports no torch."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput

WORKERS = 4
"""Threads that decode inputs, unless a number is given."""

_DIGEST = 16  # bytes
_KEPT = 4  # decoded inputs that are kept, since all views of an input follow one another


class Unreadable(BadInput):
    """A file that cannot be decoded."""


@dataclass
class Source:
    """Where inputs come from: `read(number)` decodes one of `size`, `name(number)` says which it is in a message.

    A hash of every input that was decoded is kept, 16 bytes: one that is decoded again must be the same.
    """

    size: int
    read: Callable[[int], NDArray[Any]]
    name: Callable[[int], str]

    def __post_init__(self) -> None:
        self._digests = np.zeros((self.size, _DIGEST), np.uint8)
        self._known = np.zeros(self.size, bool)

    def decoded(self, number: int) -> NDArray[Any]:
        """Decode one input; one that has changed since it was first decoded is refused."""
        values = np.ascontiguousarray(self.read(number))
        hashed = hashlib.blake2b(f"{values.dtype} {values.shape}".encode(), digest_size=_DIGEST)
        hashed.update(values.data)
        digest = np.frombuffer(hashed.digest(), np.uint8)
        if not self._known[number]:
            self._digests[number], self._known[number] = digest, True
        elif not np.array_equal(self._digests[number], digest):
            raise BadInput(
                f"{self.name(number)} is another input than when it was first read: leave data as they are during a run, and "
                "make no random changes to them"
            )
        return values


class Streamed:
    """Inputs [m, ...] of a source, as an array that decodes each when it is read; `workers` threads decode those that follow.

    An index that selects one input gives it as an array; a slice or an array of positions gives inputs that are still streamed.
    `numpy.asarray` reads them all.
    """

    def __init__(self, source: Source, numbers: NDArray[np.int64] | None = None, workers: int = WORKERS):
        self.source, self.workers = source, workers
        self.numbers = np.arange(source.size, dtype=np.int64) if numbers is None else numbers
        self._first: NDArray[Any] | None = None
        self._ahead: dict[int, Future[NDArray[Any]]] = {}
        self._recent: OrderedDict[int, NDArray[Any]] = OrderedDict()
        self._last = -1
        self._pool: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all inputs; that of the first decides, and others are refused."""
        return (len(self), *self._one().shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions, that of the inputs included."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""
        return self._one().dtype

    def _one(self) -> NDArray[Any]:
        if self._first is None:
            self._first = np.empty_like(self.source.decoded(int(self.numbers[0])))
        return self._first

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, int | np.integer):
            return Streamed(self.source, self.numbers[key], self.workers)
        position = range(len(self))[int(key)]
        if position not in self._recent:
            self._one()
            self._recent[position] = self._read(position)
            while len(self._recent) > _KEPT:
                self._recent.popitem(last=False)
        return self._recent[position]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[position] for position in range(len(self)))

    def pieces(self) -> Iterator[NDArray[Any]]:
        """The inputs one after the other, whose bytes in this order are those of the whole array."""
        return iter(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        whole = np.empty(self.shape, self.dtype)
        for position, values in enumerate(self):
            whole[position] = values
        return whole if dtype is None else whole.astype(dtype)

    def unreadable(self) -> list[int]:
        """The positions of inputs whose files cannot be decoded."""
        bad = []
        for position in range(len(self)):
            try:
                self._read(position)
            except Unreadable:
                bad.append(position)
        return bad

    def with_workers(self, workers: int) -> Streamed:
        """The same inputs, decoded by this many threads; 0 decodes where they are read."""
        return Streamed(self.source, self.numbers, workers)

    def _read(self, position: int) -> NDArray[Any]:
        """Decode one input, or take it from those that were decoded ahead; inputs read in order are decoded ahead."""
        future = self._ahead.pop(position, None)
        follows, self._last = position == self._last + 1, position
        wanted = range(position + 1, min(position + 1 + 2 * self.workers, len(self)) if follows else position + 1)
        for other in [other for other in self._ahead if other not in wanted]:
            self._ahead.pop(other).cancel()
        for other in wanted:
            if other not in self._ahead:
                self._ahead[other] = self._submit(other)
        return self._decoded(position) if future is None else future.result()

    def _submit(self, position: int) -> Future[NDArray[Any]]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.workers, "vauban decodes")
        return self._pool.submit(self._decoded, position)

    def _decoded(self, position: int) -> NDArray[Any]:
        number = int(self.numbers[position])
        values, first = self.source.decoded(number), self._first
        if first is not None and (values.shape, values.dtype) != (first.shape, first.dtype):
            there = self.source.name(int(self.numbers[0]))
            raise BadInput(
                f"{there} is {_size(first)} and {self.source.name(number)} is {_size(values)}; make all pictures one shape or "
                "give size="
            )
        return values


def _size(values: NDArray[Any]) -> str:
    if values.ndim == 3:
        return f"{values.shape[2]} x {values.shape[1]}"
    return f"{'x'.join(map(str, values.shape)) or 'a number'} {values.dtype}"
