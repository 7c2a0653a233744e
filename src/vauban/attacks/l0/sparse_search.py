"""Random search over few pixels, for classifiers without gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from vauban.attacks.base import Attack, Found, Search, Target, at_least, register
from vauban.attacks.l0.units import L0_THREATS, changed, extremes, mixed, ranks, salt_and_pepper, units_of
from vauban.attacks.walks import climb
from vauban.threats import Threat


@register("sparse")
@dataclass(frozen=True)
class SparseSearch(Attack):
    """A set of pixels (or features) at extreme values, one smaller in tenths than the best so far, in which random ones are
    exchanged where the margin rises. [Croce2022]

    It begins with salt-and-pepper noise, or with nine tenths of all where that is not adversarial. It needs scores, but no
    gradient. Fewer are exchanged as steps go on.
    """

    threats: ClassVar = L0_THREATS
    gradient: ClassVar = False

    steps: int = 1000
    starts: int = 3

    def __post_init__(self) -> None:
        at_least("steps", self.steps, 1)
        at_least("starts", self.starts, 1)

    def attack(
        self, target: Target, x: torch.Tensor, labels: torch.Tensor, threat: Threat, generator: torch.Generator
    ) -> Found:
        search = Search(target, x, labels, threat)
        begin = (search.radii() > 0).nonzero()[:, 0]
        for _ in target.steps(self.starts if len(begin) else 0):
            search.offer(salt_and_pepper(target, x[begin], labels[begin], threat, generator), begin)
        units = units_of(x, threat).shape[2]

        def proposed(step: int, rows: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
            size = (0.9 * search.radii()[rows].clamp(max=units)).long().clamp(min=1)
            share = 0.5 / (1 + step / 50)
            return target.allowed(_exchanged(target, x[rows], held, size, share, threat, generator))

        climb(search, self.steps, lambda: (search.radii() > 1).nonzero()[:, 0], proposed)
        return Found.of(search)


def _exchanged(
    target: Target,
    x: torch.Tensor,
    held: torch.Tensor,
    size: torch.Tensor,
    share: float,
    threat: Threat,
    generator: torch.Generator,
) -> torch.Tensor:
    """`held` [b, ...] with `size` [b] changed units: a `share` of them, at least one, replaced by others at random extremes."""
    low, high = extremes(target)
    mask = changed(x, held, threat)
    keys = torch.rand(mask.shape, generator=generator).to(x.device)
    stay = (size - (share * size).long().clamp(min=1)).clamp(min=0)
    keep = mask & (ranks(keys.masked_fill(~mask, 2.0)) < stay[:, None])
    other = torch.rand(mask.shape, generator=generator).to(x.device).masked_fill(keep, 2.0)
    added = ranks(other) < (size - keep.sum(dim=1))[:, None]
    noise = low + (high - low) * torch.randint(2, x.shape, generator=generator).to(x)
    values = torch.where(added[:, None], units_of(noise, threat), units_of(held, threat)).view_as(x)
    return mixed(x, values, keep | added, threat)
