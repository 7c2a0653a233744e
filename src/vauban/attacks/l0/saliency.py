"""Saliency attack: the pixels with the largest gradients, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from vauban.attacks.base import Attack, Found, Search, Target, at_least, register
from vauban.attacks.l0.resets import reset_groups
from vauban.attacks.l0.units import L0_THREATS, changed, extremes, ranks, units_of
from vauban.threats import Threat


@register("saliency")
@dataclass(frozen=True)
class Saliency(Attack):
    """The pixel (or feature) that raises the margin most by the gradient is set to its best extreme, until the input is
    adversarial; pixels that turn out not to be needed are put back. [Papernot2016]

    `growth`: the share of the pixels changed so far that is added in one step, at least one. A linear classifier is changed by
    the fewest possible features where growth is 0.
    """

    threats: ClassVar = L0_THREATS
    gradient: ClassVar = True

    steps: int = 100
    growth: float = 0.05
    passes: int = 2

    def __post_init__(self) -> None:
        at_least("steps", self.steps, 1)
        at_least("growth", self.growth, 0)
        at_least("passes", self.passes, 1)

    def attack(
        self, target: Target, x: torch.Tensor, labels: torch.Tensor, threat: Threat, generator: torch.Generator
    ) -> Found:
        extremes(target)
        search = Search(target, x, labels, threat)
        moved = x.clone()
        asked = torch.zeros(len(x), device=x.device)
        going = search.radii() > 0
        for _ in target.steps(self.steps):
            rows = going.nonzero()[:, 0]
            if not len(rows):
                break
            margin, slope = target.gradient(moved[rows], labels[rows])
            ready = rows[margin > asked[rows]]
            if len(ready):
                better = search.offer(moved[ready], ready)
                asked[ready[~better]] = 1.5 * asked[ready[~better]] + 0.05
                going[ready[better]] = False
            moved[rows] = self._further(target, x[rows], moved[rows], slope, threat)
        rows = (search.found() & (search.radii() > 0)).nonzero()[:, 0]
        if len(rows):
            best = search.best[rows]
            less = reset_groups(target, x[rows], best, labels[rows], threat, generator, self.passes)
            search.offer(less, rows)
        return Found.of(search)

    def _further(
        self, target: Target, x: torch.Tensor, moved: torch.Tensor, slope: torch.Tensor, threat: Threat
    ) -> torch.Tensor:
        """Inputs [b, ...] with the units of the largest gain set to the extremes that the gradient points to."""
        low, high = extremes(target)
        best = torch.where(slope > 0, high, low).to(moved)
        gain = units_of((slope * (best - moved)), threat).sum(dim=1)
        done = changed(x, moved, threat)
        gain = gain.masked_fill(done, -torch.inf)
        count = (self.growth * done.sum(dim=1)).long().clamp(min=1)
        chosen = ranks(-gain) < count[:, None]
        return torch.where(chosen[:, None], units_of(best, threat), units_of(moved, threat)).view_as(moved)
