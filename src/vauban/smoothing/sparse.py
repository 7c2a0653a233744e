"""Sparse views: each pixel of an input is kept in exactly one of them."""

from __future__ import annotations

from functools import lru_cache

import torch

from vauban.laws.sparse import SparseLaw
from vauban.smoothing.base import Smoothing, follow_where_kept, register
from vauban.smoothing.grid import to_unit


@register("sparse")
class Sparse(Smoothing):
    """View j keeps the pixels (or features) assigned to it, as (v, 1 - v); all others are (0, 0), which no value has.

    [Levine2023] section 4.5

    >>> Sparse(scale=25), Sparse(scale=25).view_shape(torch.Size([1, 28, 28]))
    (Sparse(scale=25), torch.Size([2, 28, 28]))
    """

    law: SparseLaw

    def __init__(self, scale: int, *, unit: str = "pixel", offsets: int = 0, layout: str = "random"):
        self.law = SparseLaw(scale, unit, offsets, layout=layout)

    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        return 1

    def view_shape(self, shape: torch.Size) -> torch.Size:
        return torch.Size([2 * shape[0], *shape[1:]])

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        number = (words % self.law.views).view(-1, *[1] * (x.dim() - 1))
        kept = _view_of_feature(self.law, x.shape[1:], x.device) == number
        shown = x.float()
        both = torch.cat([shown, self.law.levels - shown], dim=1) * torch.cat([kept, kept], dim=1)
        return to_unit(both, self.law.levels)

    def follow(self, views: torch.Tensor, change: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return follow_where_kept(views, change)


@lru_cache(maxsize=16)
def _view_of_feature(law: SparseLaw, shape: torch.Size, device: torch.device) -> torch.Tensor:
    """The index of the view that keeps each feature: int64 [...shape]."""
    return torch.from_numpy(law.view_of_feature(shape).copy()).to(device)
