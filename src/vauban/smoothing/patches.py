"""Views that keep one band or block of a picture and hide the rest. [Levine2023] chapter 6"""

from __future__ import annotations

import torch

from vauban.certificates.patches import BandLaw, BlockLaw, KeptRegionLaw, Regions
from vauban.smoothing.base import Smoothing
from vauban.smoothing.grid import to_unit


class KeptRegion(Smoothing):
    """One kept region at a position drawn by one word. Views have twice the channels: (v, 1 - v) where kept, (0, 0) elsewhere,
    which no value looks like. [Levine2023] section 6.2.2.1"""

    law: KeptRegionLaw

    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        return 1

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        regions = self.law.for_shape(x.shape[1:]).regions
        return ablated(x, positions(words[:, 0] % regions.count, regions), regions, levels)

    def view_shape(self, shape: torch.Size) -> torch.Size:
        return torch.Size([2 * shape[0], *shape[1:]])


class Band(KeptRegion):
    """Keeps `size` columns (or rows: `axis`) next to each other, wrapping around.

    >>> Band(4, sampled=True)
    Band(size=4, sampled=true)
    """

    law_type = BandLaw

    def __init__(self, size: int, axis: str = "column", *, sampled: bool = False, stride: int = 1):
        self.law = BandLaw(size, sampled, stride, axis=axis)


class Block(KeptRegion):
    """Keeps a square of `size` x `size` pixels, wrapping around both ways.

    >>> Block(10, sampled=True, stride=2)
    Block(size=10, sampled=true, stride=2)
    """

    law_type = BlockLaw

    def __init__(self, size: int, *, sampled: bool = False, stride: int = 1):
        self.law = BlockLaw(size, sampled, stride)


def positions(numbers: torch.Tensor, regions: Regions) -> torch.Tensor:
    """(top, left) of regions by their number [n], int64 [n, 2], in the order of `Regions.positions`."""
    across = len(regions.lefts)
    down = torch.div(numbers, across, rounding_mode="floor")
    return torch.stack([down * regions.row_stride, numbers % across * regions.column_stride], dim=1)


def ablated(x: torch.Tensor, where: torch.Tensor, regions: Regions, levels: int | None) -> torch.Tensor:
    """Keep of pictures `x` [1 or n, c, h, w] the region at each (top, left) of `where` [n, 2]: float32 [n, 2c, h, w]."""
    values = x.float()
    both = to_unit(torch.cat([values, (levels or 1) - values], dim=1), levels or 1)
    rows = _kept(where[:, 0], regions.rows, regions.height)
    columns = _kept(where[:, 1], regions.columns, regions.width)
    views = both * (rows[:, None, :, None] & columns[:, None, None, :])
    return views.add_(0.0)  # a hidden negative number leaves -0.0, from which its sign could be read


def _kept(starts: torch.Tensor, size: int, length: int) -> torch.Tensor:
    """Which of `length` pixels lie in the run of `size` from each start [n] on, going round: bool [n, length]."""
    return (torch.arange(length, device=starts.device) - starts[:, None]) % length < size
