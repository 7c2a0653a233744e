"""Fast minimum-norm attack: one path that crosses the decision boundary back and forth while its norm shrinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from vauban.attacks.base import Attack, Found, Search, Target, at_least, register
from vauban.attacks.lp.norms import NORMS, dual_size, first_radius, inside, into_ball, movable, size, steepest, times
from vauban.threats import Threat

_EVERY = 5  # steps between two judgements by hard labels


@register("minimal")
@dataclass(frozen=True)
class MinimumNorm(Attack):
    """Direction and norm are decoupled: a step follows the gradient, and the norm shrinks where the input is adversarial and
    grows where it is not. [Rony2019] [Pintor2021]

    Steps are adversarial by the scores; every fifth step the nearest of those is judged by hard labels. Where they disagree a
    larger margin is asked for, and as long as nothing is found the same direction is followed further. The second path aims at
    the second best class, and so on; where there is none left (or k is above 1) paths begin at random points. Step n depends on
    n only, so that further steps and restarts only add to what is found.
    """

    threats: ClassVar = NORMS
    gradient: ClassVar = True

    steps: int = 80
    restarts: int = 2
    step: float = 0.3
    shrink: float = 0.1

    def __post_init__(self) -> None:
        at_least("steps", self.steps, 1)
        at_least("restarts", self.restarts, 1)
        at_least("step", self.step, 1e-6)
        at_least("shrink", self.shrink, 1e-6)

    def attack(
        self, target: Target, x: torch.Tensor, labels: torch.Tensor, threat: Threat, generator: torch.Generator
    ) -> Found:
        search = Search(target, x, labels, threat)
        rivals = target.rivals(x, labels) if self.restarts > 1 and target.k == 1 else x.new_zeros(len(x), 0).long()
        for restart in range(self.restarts):
            if target.exhausted:
                break
            aim = rivals[:, restart] if 0 < restart < rivals.shape[1] else None
            change = torch.zeros_like(x)
            if restart and aim is None:
                change = 0.05 * torch.randn(x.shape, generator=generator).to(x.device)
            self._path(search, change, aim)
        return Found.of(search)

    def _path(self, search: Search, change: torch.Tensor, aim: torch.Tensor | None) -> None:
        target, x, labels, threat = search.target, search.x, search.labels, search.threat
        asked = torch.zeros(len(x), device=x.device)
        near, nearest = change.clone(), torch.full_like(asked, torch.inf)
        radius = torch.full_like(asked, torch.inf)
        for step in target.steps(self.steps):
            decay = 1 / (1 + step / 20)
            change = inside(x, change, target)
            margin, slope = target.gradient(x + change, labels, aim)
            success, long = margin > asked, size(change, threat)
            gained = success & (long < nearest)
            nearest = torch.where(gained, long, nearest)
            near = torch.where(gained.view(-1, *[1] * (x.dim() - 1)), change, near)
            further = long + (asked - margin).clamp(min=0) / dual_size(slope, threat).clamp(min=1e-12)
            known = nearest.isfinite()
            grown = torch.where(known, radius * (1 + self.shrink * decay), torch.maximum(further, 1.02 * long))
            shrunk = torch.minimum(radius, nearest) * (1 - self.shrink * decay)
            radius = torch.where(success, shrunk, grown)
            radius = torch.minimum(radius, size(torch.ones_like(x), threat))
            length = self.step * decay * torch.where(radius > 0, radius, first_radius(margin, slope, threat))
            change = change + times(length, steepest(movable(x + change, slope, target), threat))
            change = into_ball(change, radius, threat)
            if step % _EVERY == _EVERY - 1 or step == self.steps - 1:
                asked, nearest = self._judge(search, near, nearest, asked)

    def _judge(
        self, search: Search, near: torch.Tensor, nearest: torch.Tensor, asked: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Offer the nearest changes by scores; where hard labels refuse one, ask for more and forget it."""
        rows = ((nearest < search.radii()) & (search.radii() > 0)).nonzero()[:, 0]
        if not len(rows):
            return asked, nearest
        better = search.offer(search.x[rows] + near[rows], rows)
        useful = better | ~search.found()[rows]
        search.reach(near[rows[useful]], rows[useful], 3, better[useful])
        refused = rows[~better]
        asked[refused] = 1.5 * asked[refused] + 0.05
        nearest[refused] = torch.inf
        return asked, nearest
