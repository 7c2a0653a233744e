"""Regions of a picture that views keep, and which of them a patch touches, by enumeration. [Levine2023] chapter 6"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray


def meets(
    starts: ArrayLike, size: int, length: int, patch_positions: ArrayLike, extent: int, wraps: bool = True
) -> NDArray[np.bool_]:
    """Along one axis: which kept runs [n] a patch touches for each patch position [...]; bool [..., n].

    A run covers `size` pixels from its start on and wraps around at `length`, or ends there; a patch covers `extent` pixels from
    its position on and lies inside. With wrapping, the patch begins `offset` pixels after the run's start, modulo `length`: it
    touches the run if it begins inside it (offset < size) or reaches its start one turn later (offset + extent > length).
    """
    patch, run = np.asarray(patch_positions)[..., None], np.asarray(starts)
    if not wraps:
        return (extent > 0) & (patch < run + size) & (run < patch + extent)
    offset = (patch - run) % length
    return (extent > 0) & ((offset < size) | (offset + extent > length))


@dataclass(frozen=True)
class Regions:
    """All regions a view may keep: `rows` x `columns` pixels from (top, left) on, wrapping around at the edges or cut off there.

    Tops are the multiples of `row_stride` below `height`, lefts those of `column_stride` below `width`.
    """

    height: int
    width: int
    rows: int
    columns: int
    row_stride: int
    column_stride: int
    wraps: bool = True

    @property
    def tops(self) -> NDArray[np.int64]:
        return np.arange(0, self.height, self.row_stride)

    @property
    def lefts(self) -> NDArray[np.int64]:
        return np.arange(0, self.width, self.column_stride)

    @property
    def count(self) -> int:
        """The number of regions."""
        return -(-self.height // self.row_stride) * -(-self.width // self.column_stride)

    @property
    def positions(self) -> NDArray[np.int64]:
        """(top, left) of every region [count, 2], row by row: region i is at (tops[i // len(lefts)], lefts[i % len(lefts)])."""
        return np.stack(np.meshgrid(self.tops, self.lefts, indexing="ij"), axis=-1).reshape(-1, 2)

    def touched(self, corners: ArrayLike, patch: tuple[int, int]) -> NDArray[np.bool_]:
        """Which regions [n, count] a patch of `patch` (height, width) touches at each of `corners` [n, 2] (top, left)."""
        at = np.asarray(corners)
        by_row, by_column = self._touched_at(at[:, 0], at[:, 1], patch)
        return (by_row[:, :, None] & by_column[:, None, :]).reshape(len(at), -1)

    def touched_by_axis(self, patch: tuple[int, int]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which tops and which lefts a patch touches at every position inside the picture: [patch tops, tops] and
        [patch lefts, lefts].

        The region at (top, left) is touched if both are.
        """
        return self._touched_at(np.arange(self.height - patch[0] + 1), np.arange(self.width - patch[1] + 1), patch)

    def most_touched(self, patch: tuple[int, int]) -> int:
        """The most regions that a patch of this height and width can touch: the two axes are independent.

        >>> [Regions(224, 224, 224, 19, 224, stride).most_touched((32, 32)) for stride in (10, 5)]
        [6, 11]
        """
        return math.prod(int(touched.sum(axis=1).max()) for touched in self.touched_by_axis(patch))

    def square(self, side: int) -> tuple[int, int]:
        """The height and width of a square of this side, cut off at the picture's edges."""
        return min(side, self.height), min(side, self.width)

    def _touched_at(
        self, patch_tops: NDArray[np.int64], patch_lefts: NDArray[np.int64], patch: tuple[int, int]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        return (
            meets(self.tops, self.rows, self.height, patch_tops, patch[0], self.wraps),
            meets(self.lefts, self.columns, self.width, patch_lefts, patch[1], self.wraps),
        )


def bands(height: int, width: int, size: int, axis: str, stride: int, wraps: bool = True) -> Regions:
    """Bands of `size` columns (or rows: `axis`), at every multiple of the stride."""
    if axis == "column":
        return Regions(height, width, height, size, height, stride, wraps)
    return Regions(height, width, size, width, stride, width, wraps)


def blocks(height: int, width: int, size: int, stride: int, wraps: bool = True) -> Regions:
    """Squares of `size` x `size` pixels, at every multiple of the stride along both axes."""
    return Regions(height, width, size, size, stride, stride, wraps)


@lru_cache(maxsize=64)
def touched_by_side(regions: Regions) -> NDArray[np.int64]:
    """The most regions that a change within an m x m square can touch, for m = 0 up to the picture's longer side.

    A square larger than the picture along one axis is cut off there and covers that axis completely.
    """
    longest = max(regions.height, regions.width)
    return np.array([regions.most_touched(regions.square(m)) for m in range(longest + 1)])
