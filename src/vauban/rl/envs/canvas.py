"""Images of two-dimensional worlds, drawn in numpy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

COLOURS = {"cyan": (0, 200, 220), "blue": (30, 60, 220), "magenta": (220, 0, 200), "black": (20, 20, 20)}


class Canvas:
    """A white square picture of [-reach, reach]^2, y upwards; `pixels` is (side, side, 3) of bytes."""

    def __init__(self, reach: float, side: int = 336):
        self.reach, self.side = reach, side
        self.pixels = np.full((side, side, 3), 255, np.uint8)

    def _column(self, x: np.ndarray) -> np.ndarray:
        return np.rint((x + self.reach) / (2 * self.reach) * (self.side - 1)).astype(int)

    def squares(self, centres: np.ndarray, colour: str, width: float) -> None:
        """Filled squares of a width in world units, at (n, 2) centres."""
        for x, y in np.asarray(centres, float):
            left, right = self._column(np.array([x - width / 2, x + width / 2]))
            bottom, top = self._column(np.array([y - width / 2, y + width / 2]))
            rows = slice(max(0, self.side - 1 - top), max(0, self.side - bottom))
            self.pixels[rows, max(0, left) : max(0, right + 1)] = COLOURS[colour]

    def path(self, points: np.ndarray) -> None:
        """A thin line through (n, 2) points (a jump across an edge is not drawn), with a thick end."""
        points = np.asarray(points, float)
        for one, two in pairwise(points):
            if np.abs(two - one).max() < self.reach:
                for part in np.linspace(one, two, 24):
                    self._dot(part, 1)
        self._dot(points[-1], 4)

    def _dot(self, point: np.ndarray, radius: int) -> None:
        column, row = self._column(point[0]), self.side - 1 - self._column(point[1])
        rows = slice(max(0, row - radius + 1), max(0, row + radius))
        self.pixels[rows, max(0, column - radius + 1) : max(0, column + radius)] = COLOURS["black"]
