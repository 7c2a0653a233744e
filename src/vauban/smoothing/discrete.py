"""Views in which every feature is kept or replaced by another value of the grid."""

from __future__ import annotations

import torch

from vauban.errors import BadInput
from vauban.laws.discrete import DiscreteLaw
from vauban.smoothing.base import Smoothing, register, without_value
from vauban.smoothing.grid import grid_noise, to_unit


@register("discrete")
class Discrete(Smoothing):
    """Each feature keeps its value with probability `keep`, else takes another of `values`, all equally likely. [Lee2019]

    Computed in integers; inputs without a grid are refused. `codes`: features are codes from 0 to values - 1, as a table of
    categories has them, and a view shows a code as code / 255.

    >>> Discrete(keep=0.8)
    Discrete(keep=0.8)
    """

    law: DiscreteLaw

    def __init__(self, keep: float, *, values: int = 256, features: int | None = None, codes: bool = False):
        self.law = DiscreteLaw(float(keep), values, features, codes)

    def check(self, x: torch.Tensor) -> None:
        """Refuse inputs [m, ...] with numbers that are no codes, naming the first."""
        if not self.law.codes:
            return
        if x.is_floating_point():
            raise BadInput(
                "codes=true needs codes of 8 bits, and these inputs are floats: read the table with codes=all"
            )
        rows = (x.flatten(1) >= self.law.values).any(dim=1).nonzero()
        if len(rows):
            worst = int(x.flatten(1)[int(rows[0])].max())
            raise BadInput(
                f"input {int(rows[0])} has the code {worst}: values={self.law.values} allows 0 to {self.law.values - 1}"
            )

    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        return shape.numel()

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        if levels is None:
            raise BadInput(
                "discrete replaces values by other values of a grid: give 8-bit pictures, or round the inputs to 1/255"
            )
        moved = grid_noise(self.law, levels).draw(words).view(len(words), *x.shape[1:]).add(x).sub_(self.law.values)
        below = moved >> (8 * moved.element_size() - 1)  # all ones where negative: there `values` is added back
        return to_unit(moved.add_(below.bitwise_and_(self.law.values)), levels)

    def follow(self, views: torch.Tensor, change: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """The gradient passes where the feature is kept: another value does not depend on it."""
        kept = grid_noise(self.law, self.law.values - 1).draw(words).view(views.shape) % self.law.values == 0
        return views + torch.where(kept, without_value(change), 0)
