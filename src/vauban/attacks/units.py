"""Units of inputs: a search changes numbers in [0, 1] or standardised features, a classifier is given what data sets hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.smoothing.grid import to_unit
from vauban.standardise import Standardisation


@dataclass(frozen=True)
class Units:
    """From inputs as a search has them to those that a classifier is given, and back.

    `levels`: 255 where 8-bit pictures are given, whose search is in [0, 1]; None for floats. `by`: how the classifier
    standardises features; a search is then in standardised units, as radii are, and the classifier is given the features.
    """

    levels: int | None = None
    by: Standardisation | None = None

    def given(self, x: torch.Tensor) -> NDArray[Any]:
        """Inputs [b, ...] of a search as a classifier is given them: uint8 on the grid, float32 off it."""
        values = x.detach().cpu()
        if self.levels is not None:
            return (values.double() * self.levels).round().numpy().astype(np.uint8)
        return values.numpy().astype(np.float32) if self.by is None else self.by.undone(values.numpy())

    def read(self, given: NDArray[Any]) -> torch.Tensor:
        """Inputs [b, ...] that a classifier is given as a search has them: what the classifier makes views of."""
        if self.by is not None:
            return torch.from_numpy(self.by.applied(given))
        values = torch.from_numpy(np.array(given)).float()
        return values / self.levels if self.levels else values

    def seen(self, x: torch.Tensor) -> torch.Tensor:
        """Inputs [b, ...] of a search as the classifier sees them once they are given to it: 8-bit pictures on their grid, with
        the same bits on every device; features float32 both before and after they are standardised."""
        if self.levels is not None:
            return to_unit((x * self.levels).round(), self.levels)
        return x if self.by is None else self.read(self.given(x)).to(x.device)
