"""Gradient attacks in the 1-Wasserstein metric, over plans that move mass to nearby pixels. [Wong2019], [Wu2020]"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from vauban.attacks.base import Attack, Found, Search, Target, at_least, register
from vauban.attacks.walks import walk
from vauban.attacks.wasserstein.sinkhorn import ENTROPY, ITERATIONS, Moved, project
from vauban.attacks.wasserstein.transport import EXACT_PIXELS, Window, as_planes, best_plan
from vauban.specs import choose
from vauban.threats import WASSERSTEIN_L2, Threat

DIRECTIONS = ("sign", "gradient")


@dataclass(frozen=True)
class GrowingBall(Attack):
    """Steps inside a Wasserstein ball whose radius is `radius` at first and `factor` times as much after `every` steps.

    Pictures are divided by their mass, as flow noise does, no mass moves between channels, and plans move it within `window` x
    `window` pixels. An input stops at its first success, from which `halvings` bisections go back along the line, on which the
    distance is linear.
    """

    steps: int = 200
    radius: float = 0.01
    factor: float = 1.1
    every: int = 10
    window: int = 5
    halvings: int = 8

    threats: ClassVar[tuple[str, ...]] = ("wasserstein", "wasserstein-l2")
    gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("steps", "every", "factor"):
            at_least(name, getattr(self, name), 1)
        at_least("radius", self.radius, 1e-12)
        at_least("halvings", self.halvings, 0)
        Window(self.window, "l1")

    @abstractmethod
    def step_from(
        self, start: torch.Tensor, now: Moved, slope: torch.Tensor, radius: torch.Tensor, window: Window, since: int
    ) -> Moved:
        """One step from where a search is `now`, along the gradient `slope` [b, c, h, w], inside the ball of `radius` [b] around
        `start`; `since`: steps since the radius grew."""

    def attack(
        self, target: Target, x: torch.Tensor, labels: torch.Tensor, threat: Threat, generator: torch.Generator
    ) -> Found:
        """See `Attack.attack`."""
        window = Window(self.window, "l2" if threat.name == WASSERSTEIN_L2.name else "l1")
        search = Search(target, x, labels, threat)
        own = as_planes(x).double()
        mass = own.sum((1, 2, 3), keepdim=True)
        start = own / mass.clamp(min=torch.finfo(own.dtype).tiny)
        moved, paid = start.clone(), mass.new_zeros(len(x))
        full = (mass.view(-1) > 0).nonzero()[:, 0]  # an empty picture has nothing to move

        def point(which: torch.Tensor) -> torch.Tensor:
            return _pictures(moved[full[which]], mass[full[which]], x, None)

        def move(i: int, which: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
            rows = full[which]
            radius = mass.new_full((len(rows),), self.radius * self.factor ** (i // self.every))
            now, along = Moved(moved[rows], paid[rows]), as_planes(slope).double()
            made = self.step_from(start[rows], now, along, radius, window, i % self.every)
            moved[rows], paid[rows] = made.pictures, made.cost
            return _pictures(made.pictures, mass[rows], x, target.levels)

        walk(search, full, self.steps, point, move)
        known = search.found().cpu().numpy() & (target.levels is None)
        cost = np.where(known, paid.cpu().numpy(), np.inf)
        self._back(search, target, cost)
        return self._bounded(Found.of(search), cost)

    def _back(self, search: Search, target: Target, cost: np.ndarray) -> None:
        """Bisect between each input and what was found for it; `cost` [b] of the plans follows."""
        x, rows = search.x, (search.found() & (search.radii() > 0)).nonzero()[:, 0]
        own = as_planes(x).double()[rows]
        mass = own.sum((1, 2, 3), keepdim=True)
        start = own / mass
        end = as_planes(search.best).double()[rows]
        change = end / end.sum((1, 2, 3), keepdim=True) - start
        low, high = (torch.full((len(rows),), t, dtype=start.dtype, device=x.device) for t in (0.0, 1.0))
        for _ in target.steps(self.halvings if len(rows) else 0):
            middle = (low + high) / 2
            made = _pictures(start + middle[:, None, None, None] * change, mass, x, target.levels)
            better = search.offer(made, rows)
            high, low = torch.where(better, middle, high), torch.where(better, low, middle)
        cost[rows.cpu().numpy()] *= high.cpu().numpy()

    def _bounded(self, found: Found, cost: np.ndarray) -> Found:
        """The distances of what was found; for large pictures no more than the plans cost."""
        if as_planes(found.x)[0, 0].numel() <= EXACT_PIXELS:
            return found
        return Found(found.x, np.minimum(found.distance, cost), found.evaluations)


@register("wasserstein")
@dataclass(frozen=True)
class ProjectedSinkhorn(GrowingBall):
    """Steps along the gradient, projected onto the ball by Sinkhorn iterations. [Wong2019], [Levine2023] section 5.5.2

    A step adds `step` times the sign of the gradient (`direction` gradient: the gradient divided by its largest number). See
    `sinkhorn.project` for `entropy` and `iterations`, and `GrowingBall` for the rest.
    """

    step: float = 0.1
    direction: str = "sign"
    entropy: float = ENTROPY
    iterations: int = ITERATIONS

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("direction of a step", self.direction, DIRECTIONS)
        at_least("iterations", self.iterations, 1)
        for name in ("step", "entropy"):
            at_least(name, getattr(self, name), 1e-12)

    def step_from(
        self, start: torch.Tensor, now: Moved, slope: torch.Tensor, radius: torch.Tensor, window: Window, since: int
    ) -> Moved:
        """See `GrowingBall.step_from`."""
        largest = slope.abs().amax((1, 2, 3), keepdim=True).clamp(min=torch.finfo(slope.dtype).tiny)
        along = slope.sign() if self.direction == "sign" else slope / largest
        return project(start, now.pictures + self.step * along, radius, window, self.entropy, self.iterations)


@register("frank-wolfe")
@dataclass(frozen=True)
class FrankWolfe(GrowingBall):
    """Steps towards the picture of the ball that is best by the gradient, which a linear program over plans gives. [Wu2020]

    The k-th step after the radius grew goes 2 / (k + 2) of the way. The program is solved exactly (`transport.best_plan`).
    """

    def step_from(
        self, start: torch.Tensor, now: Moved, slope: torch.Tensor, radius: torch.Tensor, window: Window, since: int
    ) -> Moved:
        """See `GrowingBall.step_from`."""
        best, cost = best_plan(start, slope, radius, window)
        way = 2 / (since + 2)
        return Moved(now.pictures + way * (best - now.pictures), now.cost + way * (cost - now.cost))


def _pictures(shares: torch.Tensor, mass: torch.Tensor, like: torch.Tensor, levels: int | None) -> torch.Tensor:
    """Pictures, float32 in the shape of `like` [b, ...], of shares [b, c, h, w] of their mass [b, 1, 1, 1].

    They have that mass, or less where a number would be above 1. With `levels` they are on the grid, each channel as near to its
    mass as a whole number of steps is, so that its share stays.
    """
    pictures = shares * torch.minimum(mass, 1 / shares.amax((1, 2, 3), keepdim=True))
    if levels is not None:
        pictures = _whole(pictures * levels) / levels
    return pictures.float().view(len(shares), *like.shape[1:])


def _whole(steps: torch.Tensor) -> torch.Tensor:
    """Whole numbers near `steps` [b, c, h, w] with the same sum in each channel, rounded: the largest remainders go up."""
    flat = (steps + 1e-9).flatten(2)
    down = flat.floor()
    missing = (steps.flatten(2).sum(2) - down.sum(2)).round()
    ranks = (down - flat).argsort(dim=2, stable=True).argsort(dim=2)
    return (down + (ranks < missing[..., None])).view_as(steps)
