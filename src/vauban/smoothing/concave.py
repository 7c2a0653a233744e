"""Views against attacks measured by a sum of a concave function of each change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Self

import torch

from vauban.laws.concave import ConcaveLaw, ConcavePartsLaw
from vauban.laws.designs.law import fraction
from vauban.laws.designs.metrics import Tabulated
from vauban.smoothing.base import Smoothing
from vauban.smoothing.design_views import follow_bins, shown_shape, views_of_design
from vauban.specs import Spec

G = Callable[[float], float | Fraction] | Sequence[float | Fraction]


class Concave(Smoothing):
    """A list of views of which an attack changes at most budget * (sum of g(|change|)), for any g on [0, 1] that is
    increasing, concave, zero at zero and at most 1. [Levine2023] Definition 4.1

    `g`: a function, or its values [levels + 1] at 0, 1 / levels, … 1; see `Tabulated.of`. Or a list of such, one for each
    feature of a table, or for each channel of pictures: sizes are then sums of g_i(|change_i|). A larger `scale` certifies larger
    radii and shows less of the input; it may be below 1. Python only: it has no text form. The other parameters are those of
    `Fractional`.

    >>> Concave(lambda z: min(8 * z, 1), scale=4).law.views
    4000
    >>> Concave([lambda z: z, lambda z: min(3 * z, 1)], budget=30, levels=6).view_shape(torch.Size([2]))
    torch.Size([4])
    """

    law: ConcaveLaw | ConcavePartsLaw

    def __init__(
        self,
        g: G | Sequence[G],
        *,
        scale: Fraction | str | float = 1,
        budget: int = 1000,
        offsets: int = 0,
        levels: int = 255,
        representation: str = "upper_lower",
        coupling: str = "cyclic",
        layout: str = "random",
    ):
        several = not callable(g) and any(callable(one) or hasattr(one, "__iter__") for one in g)
        given: Sequence[Any] = g if several else [g]  # type: ignore[assignment]
        settings = (fraction(scale), offsets, representation, coupling, budget, levels, layout)
        parts = tuple(ConcaveLaw(Tabulated.of(one, levels), *settings) for one in given)
        self.law = ConcavePartsLaw(parts) if several else parts[0]

    @classmethod
    def from_spec(cls, spec: Spec) -> Self:
        self = cls.__new__(cls)
        self.law = ConcaveLaw.from_spec(spec)
        return self

    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        return 1

    def view_shape(self, shape: torch.Size) -> torch.Size:
        return shown_shape(shape, self.law.representation)

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        if isinstance(self.law, ConcaveLaw):
            return views_of_design(self.law, x, words)
        parts = self.law.for_shape(x.shape[1:]).parts
        shown = [views_of_design(part, x[:, i : i + 1], words) for i, part in enumerate(parts)]
        # Of a two-part representation, all first parts come before all second parts.
        return torch.cat(
            [some.chunk(shown[0].shape[1], dim=1)[j] for j in range(shown[0].shape[1]) for some in shown], dim=1
        )

    def follow(self, views: torch.Tensor, change: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return follow_bins(views, change, self.law.representation)
