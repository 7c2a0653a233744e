"""Projected gradient ascent in a ball whose radius is bisected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from vauban.attacks.base import Attack, Found, Search, Target, at_least, register
from vauban.attacks.lp.norms import NORMS, first_radius, inside, into_ball, movable, size, steepest, times
from vauban.threats import Threat

_FIRST_AIM = 4  # rounds by which a bisection is nearly done
_NEARLY = 0.98


@register("pgd")
@dataclass(frozen=True)
class ProjectedGradient(Attack):
    """Rounds of `inner` steps along the gradient of the margin, each inside a ball; its radius is halved towards the largest
    that failed after a success and doubled after a failure. [Madry2018]

    `steps`: all steps together. `restarts`: how often the bisection begins again, from random points of the ball. Steps within
    a round become shorter, and each round begins at the input, so that further rounds and restarts only add to what is found.
    From the fifth round on every second one aims at another class, the next best ones in turn, a little inside what is known.
    """

    threats: ClassVar = NORMS
    gradient: ClassVar = True

    steps: int = 200
    inner: int = 20
    restarts: int = 1

    def __post_init__(self) -> None:
        for name in ("steps", "inner", "restarts"):
            at_least(name, getattr(self, name), 1)

    def attack(
        self, target: Target, x: torch.Tensor, labels: torch.Tensor, threat: Threat, generator: torch.Generator
    ) -> Found:
        search = Search(target, x, labels, threat)
        begin = first_radius(*target.gradient(x, labels), threat)
        aims = self.steps > _FIRST_AIM * self.inner and target.k == 1
        rivals = target.rivals(x, labels) if aims else x.new_zeros(len(x), 0).long()
        for restart in range(self.restarts):
            low, radius = torch.zeros_like(begin), torch.minimum(begin, 0.95 * search.radii())
            for number in target.steps(-(-self.steps // self.inner)):
                going = (search.distance > 0).nonzero()[0]
                if not len(going):
                    return Found.of(search)
                rows = torch.from_numpy(going).to(x.device)
                aim = _aim(rivals[rows], number)
                most = radius[rows] if aim is None else torch.minimum(_NEARLY * search.radii(), 2 * radius)[rows]
                start = _start(x[rows], most, threat, generator, at_random=restart > 0)
                change = self._ascend(target, x[rows], labels[rows], most, start, threat, aim)
                better = search.offer(x[rows] + change, rows)
                search.reach(change[better], rows[better], 4, torch.ones_like(better[better]))
                if aim is None:
                    low[rows[~better]] = radius[rows[~better]]
                high = search.radii()
                radius = torch.where(high.isfinite(), (low + high) / 2, 2 * radius)
                low = torch.where(low > 0.98 * high, 0.8 * high, low)
        return Found.of(search)

    def _ascend(
        self,
        target: Target,
        x: torch.Tensor,
        labels: torch.Tensor,
        radius: torch.Tensor,
        change: torch.Tensor,
        threat: Threat,
        aim: torch.Tensor | None,
    ) -> torch.Tensor:
        """The change [b, ...] of the largest margin that one round meets."""
        best, most = change, torch.full_like(radius, -torch.inf)
        for step in range(self.inner):
            change = inside(x, into_ball(change, radius, threat), target)
            margin, slope = target.gradient(x + change, labels, aim)
            gained = margin > most
            most = torch.where(gained, margin, most)
            best = torch.where(gained.view(-1, *[1] * (x.dim() - 1)), change, best)
            length = 2 * radius / (2 + step)
            change = change + times(length, steepest(movable(x + change, slope, target), threat))
        return best


def _aim(rivals: torch.Tensor, number: int) -> torch.Tensor | None:
    """The class [b] that a round aims at, of the rivals [b, n] of the label, the best first; None: whichever is ahead."""
    if number < _FIRST_AIM or number % 2 == 1 or rivals.shape[1] < 2:
        return None
    return rivals[:, 1 + (number - _FIRST_AIM) // 2 % (rivals.shape[1] - 1)]


def _start(
    x: torch.Tensor, radius: torch.Tensor, threat: Threat, generator: torch.Generator, at_random: bool
) -> torch.Tensor:
    if not at_random:
        return torch.zeros_like(x)
    noise = torch.randn(x.shape, generator=generator).to(x.device)
    return times(radius / size(noise, threat).clamp(min=1e-12), noise)
