"""Views that keep one band or block of a picture, or several, and hide the rest. [Levine2023] chapter 6"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from vauban.errors import BadInput
from vauban.laws.patches.exact import ExactBandLaw, ExactBlockLaw, ExactPatchLaw
from vauban.laws.patches.positions import chosen
from vauban.laws.patches.regions import Regions
from vauban.laws.patches.sampled import BandLaw, BlockLaw, KeptRegionLaw
from vauban.smoothing.base import Smoothing, follow_where_kept, register
from vauban.smoothing.grid import to_unit


class KeptRegion(Smoothing):
    """One word determines the kept region or regions. Views have twice the channels: (v, 1 - v) where kept, (0, 0) elsewhere,
    which no value has. [Levine2023] section 6.2.2.1"""

    law: ExactPatchLaw | KeptRegionLaw

    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        return 1

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        law = self.law.for_shape(x.shape[1:])
        if isinstance(law, ExactPatchLaw):
            levels = None if levels is None else law.levels
            if law.count > 1:
                return shown(x, union(words[:, 0] % law.views, law.regions, law.count), levels)
        return ablated(x, positions(words[:, 0] % law.regions.count, law.regions), law.regions, levels)

    def follow(self, views: torch.Tensor, change: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return follow_where_kept(views, change)

    def view_shape(self, shape: torch.Size) -> torch.Size:
        return torch.Size([2 * shape[0], *shape[1:]])


@register("band")
class Band(KeptRegion):
    """Keeps `size` neighbouring columns (or rows: `axis`), wrapping around; or `count` such bands of a grid.

    >>> Band(4), Band(4, sampled=True)
    (Band(size=4), Band(size=4, sampled=true))
    """

    def __init__(
        self,
        size: int,
        axis: str = "column",
        *,
        sampled: bool = False,
        stride: int = 1,
        count: int = 1,
        threshold: float | None = None,
        bound: str = "position",
    ):
        if sampled:
            _exact_only(count=(count, 1), threshold=(threshold, None), bound=(bound, "position"))
            self.law = BandLaw(size, stride=stride, axis=axis)
        else:
            self.law = ExactBandLaw(size, stride, count, threshold, bound, axis=axis)


@register("block")
class Block(KeptRegion):
    """Keeps a square of `size` x `size` pixels, wrapping around along both axes; or `count` such blocks of a grid.

    >>> Block(10, threshold=0.3), Block(10, sampled=True, stride=2)
    (Block(size=10, threshold=0.3), Block(size=10, sampled=true, stride=2))
    """

    def __init__(
        self,
        size: int,
        *,
        sampled: bool = False,
        stride: int = 1,
        count: int = 1,
        threshold: float | None = None,
        bound: str = "position",
    ):
        if sampled:
            _exact_only(count=(count, 1), threshold=(threshold, None), bound=(bound, "position"))
            self.law = BlockLaw(size, stride=stride)
        else:
            self.law = ExactBlockLaw(size, stride, count, threshold, bound)


def positions(indices: torch.Tensor, regions: Regions) -> torch.Tensor:
    """(top, left) of the regions with these indices [n], int64 [n, 2], in the order of `Regions.positions`."""
    across = len(regions.lefts)
    down = torch.div(indices, across, rounding_mode="floor")
    return torch.stack([down * regions.row_stride, indices % across * regions.column_stride], dim=1)


def ablated(x: torch.Tensor, where: torch.Tensor, regions: Regions, levels: int | None) -> torch.Tensor:
    """Pictures `x` [1 or n, c, h, w] with only the region at each (top, left) of `where` [n, 2]: float32 [n, 2c, h, w]."""
    rows = _kept(where[:, 0], regions.rows, regions.height)
    columns = _kept(where[:, 1], regions.columns, regions.width)
    return shown(x, rows[:, :, None] & columns[:, None, :], levels)


def union(indices: torch.Tensor, regions: Regions, count: int) -> torch.Tensor:
    """Which pixels [n, h, w] the views with these indices [n] keep: those of `count` grid regions, in the order of `chosen`."""
    choices, region_of_pixel = _grid(regions, count, indices.device)
    kept = torch.zeros(len(indices), regions.count, dtype=torch.bool, device=indices.device)
    return kept.scatter_(1, choices[indices], True)[:, region_of_pixel]


def shown(x: torch.Tensor, kept: torch.Tensor, levels: int | None) -> torch.Tensor:
    """Pictures `x` [1 or n, c, h, w] with only the `kept` [n, h, w] pixels: float32 [n, 2c, h, w]."""
    values = x.float()
    both = to_unit(torch.cat([values, (levels or 1) - values], dim=1), levels or 1)
    views = both * kept[:, None]
    return views.add_(0.0)  # a hidden negative number leaves -0.0, from which its sign could be read


def _kept(starts: torch.Tensor, size: int, length: int) -> torch.Tensor:
    """Which of `length` pixels lie in the run of `size` from each start [n] on, wrapping around: bool [n, length]."""
    return (torch.arange(length, device=starts.device) - starts[:, None]) % length < size


@lru_cache(maxsize=8)
def _grid(regions: Regions, count: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The regions every view keeps [views, count], and the region of the grid that each pixel is in [h, w]."""
    rows, columns = (
        np.arange(regions.height) // regions.row_stride,
        np.arange(regions.width) // regions.column_stride,
    )
    region_of_pixel = rows[:, None] * len(regions.lefts) + columns
    return torch.from_numpy(chosen(regions.count, count)).long().to(device), torch.from_numpy(region_of_pixel).to(
        device
    )


def _exact_only(**given: tuple[object, object]) -> None:
    """Refuse parameters (value, default) of the exact form in the sampled one."""
    for key, (value, default) in given.items():
        if value != default:
            raise BadInput(f"{key}={value} with sampled=true: {key} belongs to the exact form; leave one of them out")
