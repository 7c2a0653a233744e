"""What tells samples apart whose inputs are scaled copies of pictures of many sizes: keys made of the original pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput

SIDE = 256
"""Pictures are padded with black to this height and width before they are compared."""

_FIRST = 1024  # bytes of a padded picture that are kept for sorting; the rest is read again where these are equal


@dataclass(frozen=True, eq=False)
class Originals:
    """Keys of the original pictures [n]: the place of each among all, sorted; the sum of its pixels; its digest, uint8 [n, 32].

    Pictures sort by their pixels, row by row, the three colours of a pixel together, padded with black to one size at the right
    and below ([Levine2023] F.10); equal ones have the same place. Padding further would not change the order.
    """

    place: NDArray[np.int64]
    total: NDArray[np.int64]
    digest: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.place)

    def at(self, rows: Any) -> Originals:
        """The keys of some samples; their places are those among all, whose order is the same."""
        return Originals(self.place[rows], self.total[rows], self.digest[rows])

    def sha256(self) -> str:
        """A hash of the original pictures as a multiset, whatever their order."""
        return hashlib.sha256(b"".join(sorted(row.tobytes() for row in self.digest))).hexdigest()


class OriginalKeys:
    """Collects keys while pictures are read one after another; `read(i)` reads picture i again, where two begin alike."""

    def __init__(self, read: Callable[[int], NDArray[np.uint8]]):
        self.read = read
        self.first: list[bytes] = []
        self.total: list[int] = []
        self.digest: list[bytes] = []

    def add(self, pixels: NDArray[np.uint8]) -> None:
        """Take the next picture, uint8 [height, width, 3]."""
        height, width = pixels.shape[:2]
        if max(height, width) > SIDE:
            raise BadInput(
                f"picture {len(self.total)} has {width} x {height} pixels: keys of original pictures are made of at most "
                f"{SIDE} x {SIDE}; leave keys=original out"
            )
        rows = -(-_FIRST // (3 * SIDE))
        self.first.append(padded(pixels[:rows])[:_FIRST])
        self.total.append(int(pixels.sum(dtype=np.int64)))
        head = hashlib.blake2b(f"{height} {width}\n".encode(), digest_size=32, person=b"vauban original")
        head.update(pixels.tobytes())
        self.digest.append(head.digest())

    def made(self) -> Originals:
        """The keys of all pictures so far."""
        digests = np.frombuffer(b"".join(self.digest), np.uint8).reshape(-1, 32)
        return Originals(self._places(), np.array(self.total, np.int64), digests)

    def _places(self) -> NDArray[np.int64]:
        """The place of each picture among the distinct ones, sorted; only pictures that begin alike are read again."""
        _, begins, counts = np.unique(np.array(self.first, f"S{_FIRST}"), return_inverse=True, return_counts=True)
        rest = np.zeros(len(begins), np.int64)
        for begin in np.flatnonzero(counts > 1):
            alike = np.flatnonzero(begins == begin)
            rest[alike] = _ranks([padded(self.read(int(i))) for i in alike])
        _, places = np.unique(np.stack([begins, rest], axis=1), axis=0, return_inverse=True)
        return places.reshape(-1).astype(np.int64)


def padded(pixels: NDArray[np.uint8]) -> bytes:
    """The bytes of a picture [height, width, 3] after black padding to `SIDE` pixels a row, without the zeros at the end.

    Compared as bytes are, these sort as the pictures padded to `SIDE` rows do: what is left out is zero, the least value.
    """
    rows = np.zeros((len(pixels), SIDE, 3), np.uint8)
    rows[:, : pixels.shape[1]] = pixels
    return rows.tobytes().rstrip(b"\0")


def _ranks(keys: Sequence[bytes]) -> list[int]:
    place = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return [place[key] for key in keys]
