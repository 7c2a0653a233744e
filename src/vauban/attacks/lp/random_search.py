"""Random search in L2, L1 and L-infinity, for classifiers without gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from vauban.attacks.base import Attack, Found, Search, Target, at_least, register
from vauban.attacks.lp.norms import NORMS, inside, into_ball, size, times
from vauban.attacks.walks import climb
from vauban.threats import Threat

_INSIDE = 0.95  # of the best distance: the radius at which proposals are made


@register("random")
@dataclass(frozen=True)
class RandomSearch(Attack):
    """Begins at the nearest adversarial one of `starts` random inputs, and then changes random numbers on a sphere a little
    inside it: a proposal is kept where the margin rises, and the sphere shrinks where hard labels change. [Andriushchenko2020]

    It needs scores, but no gradient. Fewer numbers are proposed at once as steps go on.
    """

    threats: ClassVar = NORMS
    gradient: ClassVar = False

    steps: int = 1000
    starts: int = 8

    def __post_init__(self) -> None:
        at_least("steps", self.steps, 1)
        at_least("starts", self.starts, 1)

    def attack(
        self, target: Target, x: torch.Tensor, labels: torch.Tensor, threat: Threat, generator: torch.Generator
    ) -> Found:
        search = Search(target, x, labels, threat)
        for number in target.steps(self.starts):
            search.reach(_far(x, target, generator, number) - x, halvings=5)

        def proposed(step: int, rows: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
            radius = _INSIDE * search.radii()[rows]
            change = _on_sphere(held - x[rows], radius, threat)
            if step:
                change = _proposed(change, radius, threat, _count(step, x[0].numel()), generator)
            return x[rows] + inside(x[rows], change, target)

        climb(search, self.steps, lambda: (search.found() & (search.radii() > 0)).nonzero()[:, 0], proposed, 3)
        return Found.of(search)


def _count(step: int, numbers: int) -> int:
    """How many numbers are proposed at once: a tenth of them first, then fewer, one at last."""
    return max(1, int(0.1 * numbers / (1 + step / 30)))


def _on_sphere(change: torch.Tensor, radius: torch.Tensor, threat: Threat) -> torch.Tensor:
    return into_ball(times(radius / size(change, threat).clamp(min=1e-12), change), radius, threat)


def _proposed(
    change: torch.Tensor, radius: torch.Tensor, threat: Threat, count: int, generator: torch.Generator
) -> torch.Tensor:
    """Changes [b, ...] of norm `radius` [b] in which `count` numbers are others: the radius up or down in L-infinity, moved
    by a part of it in L2 and L1, where the rest shrinks; every second proposal sets them to 0."""
    flat = change.flatten(1)
    where = torch.rand(flat.shape, generator=generator).topk(count, dim=1).indices.to(flat.device)
    sign = torch.randint(2, where.shape, generator=generator).to(flat.device) * 2.0 - 1
    if threat.name == "linf":
        return flat.scatter(1, where, sign * radius[:, None]).view_as(change)
    part = float(torch.rand(1, generator=generator)) / count ** (0.5 if threat.name == "l2" else 1.0)
    drop = bool(torch.rand(1, generator=generator) < 0.5)
    new = torch.zeros_like(sign) if drop else flat.gather(1, where) + sign * part * radius[:, None]
    return _on_sphere(flat.scatter(1, where, new).view_as(change), radius, threat)


def _far(x: torch.Tensor, target: Target, generator: torch.Generator, number: int) -> torch.Tensor:
    """Inputs [b, ...] that have little to do with x: uniform noise, its extremes, one colour, or large steps in any direction."""
    noise = torch.rand(x.shape, generator=generator).to(x.device)
    if target.input_range is None:
        return x + 4.0 ** (number // 2 % 4) * (2 * noise - 1)
    low, high = target.input_range
    colour = noise.flatten(1)[:, :1].view(-1, *[1] * (x.dim() - 1)).round().expand_as(x)
    return low + (high - low) * (noise, noise.round(), colour, 1 - colour)[number % 4]
