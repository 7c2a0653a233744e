"""Views that keep a few pixels, chosen without replacement, and hide the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from vauban.laws.ablation import AblationLaw
from vauban.laws.subsets import draws_needed
from vauban.smoothing.base import Smoothing, follow_where_kept, register
from vauban.smoothing.grid import to_unit

_BLOCK = 1 << 20  # numbers of a block of rows


@register("ablation")
class Ablation(Smoothing):
    """`retained` pixels (all their channels) or features are kept, the others become NULL. [Levine2020]

    `null="multichannel"`: a number v is shown as (v, 1 - v) and NULL as (0, 0), which no value has; the first dimension
    of a view is twice that of the input, all v first. `null="standardised"`: the same with (v - `mean`) / `std` in place of v,
    where NULL differs from every value and is not equally far from all ([Levine2023] chapter 2, footnote 3). `null="mean"`: NULL
    is the number `mean`, which a pixel may also have. `mean` and `std` are one number, or one for each channel. The certificate
    is the same for all.

    >>> Ablation(retained=45).view_shape(torch.Size([1, 28, 28]))
    torch.Size([2, 28, 28])
    """

    law: AblationLaw

    def __init__(
        self,
        retained: int,
        *,
        null: str = "multichannel",
        unit: str = "pixel",
        features: int | None = None,
        mean: float | Sequence[float] = 0.5,
        std: float | Sequence[float] = 1.0,
    ):
        self.law = AblationLaw(retained, null, unit, features, _numbers(mean), _numbers(std))

    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        return draws_needed(*_population_and_chosen(self.law.for_shape(shape)))

    def view_shape(self, shape: torch.Size) -> torch.Size:
        return shape if self.law.null == "mean" else torch.Size([2 * shape[0], *shape[1:]])

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        law = self.law.for_shape(x.shape[1:])
        kept = _kept(law, words)
        shown = x.reshape(len(x), -1, law.total).float()
        if law.null == "multichannel":
            shown = torch.cat([shown, (levels or 1) - shown], dim=1)
        shown = to_unit(shown, levels or 1)
        if law.null == "standardised":
            mean, std = (self._by_channel(value, shown) for value in (law.mean, law.std))
            scaled = (shown - mean) / std
            shown = torch.cat([scaled, 1 - scaled], dim=1)
        # Where scaling goes beyond float32, a product of infinity and 0 would be NaN and show what is hidden.
        views = torch.where(kept > 0, shown, 0.0) if law.null == "standardised" else shown * kept
        if law.null == "mean":
            views += (1 - kept) * self._by_channel(law.mean, shown)
        elif levels is None and law.null == "multichannel":
            views += 0.0  # a hidden negative number leaves -0.0, from which its sign could be read
        return views.view(len(words), *self.view_shape(x.shape[1:]))

    def _by_channel(self, value: float | tuple[float, ...], shown: torch.Tensor) -> torch.Tensor | float:
        """A setting for numbers [n, groups, total]: by group if they are the channels of pixels, else by the part of the row."""
        if not isinstance(value, tuple):
            return value
        numbers = torch.tensor(value, dtype=shown.dtype, device=shown.device)
        if self.law.unit == "pixel":
            return numbers[None, :, None]
        return numbers.repeat_interleave(shown.shape[2] // len(value))[None, None, :]

    def follow(self, views: torch.Tensor, change: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        if self.law.null == "multichannel":
            return follow_where_kept(views, change)
        law = self.law.for_shape(change.shape[1:])
        moved = change.reshape(len(change), -1, law.total)
        if law.null == "standardised":
            moved = moved / self._by_channel(law.std, moved)
            moved = torch.cat([moved, -moved], dim=1)
        return views + (moved * _kept(law, words)).view(views.shape)


def _numbers(value: float | Sequence[float]) -> float | tuple[float, ...]:
    return tuple(float(one) for one in value) if isinstance(value, Sequence) else float(value)


def _kept(law: AblationLaw, words: torch.Tensor) -> torch.Tensor:
    """1 for each pixel (or feature) that is kept and 0 for the others, float32 [n, 1, total]."""
    total, fewer = _population_and_chosen(law)
    chosen = first_different(words, total, fewer)
    return (chosen if fewer == law.retained else ~chosen).float()[:, None, :]


def _population_and_chosen(law: AblationLaw) -> tuple[int, int]:
    """The number of pixels (or features), and how many are drawn: the kept or the hidden ones, whichever are fewer."""
    return law.total, min(law.retained, law.total - law.retained)


def first_different(words: torch.Tensor, population: int, chosen: int) -> torch.Tensor:
    """The first `chosen` different ones of words [n, m] modulo `population`, as a mask [n, population].

    `vauban.laws.subsets` says how many words this takes, and how close it is to a uniform choice without replacement.
    """
    if words.device.type == "cpu":
        return torch.from_numpy(_first_different_on_cpu(words.numpy(), population, chosen))
    return _first_different_on_device(words, population, chosen)


def _first_different_on_device(words: torch.Tensor, population: int, chosen: int) -> torch.Tensor:
    """Values whose earliest draw is not after the draw that completes the first `chosen` different ones."""
    drawn, width = words % population, words.shape[1]
    order = torch.arange(width, dtype=torch.int32, device=words.device).expand_as(drawn)
    earliest = torch.full((len(words), population), width + 1, dtype=torch.int32, device=words.device)
    earliest.scatter_reduce_(1, drawn, order, "amin")
    different = (earliest.gather(1, drawn) == order).cumsum(1)
    return earliest <= (different < chosen).sum(1, keepdim=True)


def _first_different_on_cpu(words: np.ndarray, population: int, chosen: int) -> np.ndarray:
    """The same in NumPy, in blocks of rows that fit into the cache: four times as fast on the CPU."""
    count, width = words.shape
    mask = np.empty((count, population), dtype=bool)
    rows = max(1, min(count, _BLOCK // max(population, width)))
    order = np.arange(width, dtype=np.int16 if width < np.iinfo(np.int16).max else np.int32)
    orders, starts = np.tile(order, rows), np.arange(rows)[:, None] * population
    earliest = np.empty((rows, population), dtype=order.dtype)
    for row in range(0, count, rows):
        block = words[row : row + rows]
        index = (block.view(np.uint64) % np.uint64(population)).view(np.int64)
        index += starts[: len(block)]
        earliest.fill(width + 1)
        flat = earliest.reshape(-1)
        np.minimum.at(flat, index.reshape(-1), orders[: index.size])
        different = (flat[index] == order).cumsum(axis=1, dtype=order.dtype)
        last = (different < chosen).sum(axis=1, keepdims=True, dtype=order.dtype)
        np.less_equal(earliest[: len(block)], last, out=mask[row : row + rows])
    return mask
