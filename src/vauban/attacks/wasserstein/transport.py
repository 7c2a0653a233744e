"""Transport between pictures of equal mass: exact 1-Wasserstein distances, and plans that move mass only to nearby pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from vauban.attacks.distances import Floats, metric
from vauban.errors import BadInput
from vauban.laws.flow import GROUNDS, planes
from vauban.specs import choose

SAME_MASS = 1e-6  # of the whole mass: by how much a channel of pictures rounded to float32 may seem to change its mass
EXACT_PIXELS = 4096
_HALVINGS = 60
_MOVED = 1e-15  # of the whole mass: what is less stays where it is

Solver = Callable[..., Any]


@dataclass(frozen=True)
class Window:
    """The moves of a local plan: offsets (down, right) of up to `size` // 2 pixels in each direction, and what each costs."""

    size: int
    ground: str

    def __post_init__(self) -> None:
        choose("ground metric", self.ground, GROUNDS)
        if self.size < 3 or self.size % 2 == 0:
            raise BadInput(f"a window of {self.size} pixels: an odd number from 3 on is needed, for example 5")

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """All moves; the one in the middle stays."""
        reach = range(-(self.size // 2), self.size // 2 + 1)
        return [(down, right) for down in reach for right in reach]

    def costs(self, device: torch.device) -> torch.Tensor:
        """What a unit of mass pays for each move: float64 [moves]."""
        moves = torch.tensor(self.offsets, dtype=torch.float64, device=device)
        return moves.abs().sum(1) if self.ground == "l1" else moves.norm(dim=1)

    def at_targets(self, values: torch.Tensor, outside: float) -> torch.Tensor:
        """The number at the target of every move from every pixel: [..., h, w] to [..., moves, h, w]; `outside` the picture."""
        reach = self.size // 2
        height, width = values.shape[-2:]
        padded = torch.nn.functional.pad(values, (reach, reach, reach, reach), value=outside)
        pieces = [padded[..., reach + d : reach + d + height, reach + r : reach + r + width] for d, r in self.offsets]
        return torch.stack(pieces, dim=-3)

    def arriving(self, plan: torch.Tensor) -> torch.Tensor:
        """The mass that a plan [..., moves, h, w] brings to every pixel, [..., h, w]; it moves nothing out of the picture."""
        reach = self.size // 2
        height, width = plan.shape[-2:]
        total = plan.new_zeros(*plan.shape[:-3], height + 2 * reach, width + 2 * reach)
        for i, (d, r) in enumerate(self.offsets):
            total[..., reach + d : reach + d + height, reach + r : reach + r + width] += plan[..., i, :, :]
        return total[..., reach : reach + height, reach : reach + width]


def as_planes(x: torch.Tensor) -> torch.Tensor:
    """Inputs [b, w], [b, h, w] or [b, c, h, w] as [b, c, h, w]."""
    return x.reshape(len(x), *planes(x.shape[1:]))


def best_plan(
    x: torch.Tensor, slope: torch.Tensor, radius: torch.Tensor, window: Window
) -> tuple[torch.Tensor, torch.Tensor]:
    """The pictures that local plans of cost at most `radius` [b] make from x [b, c, h, w] with the largest sum of slope times
    mass, and what the plans cost [b].

    A linear program, solved by bisection of its one multiplier: at a price every pixel sends its mass where slope - price * cost
    is largest; two plans, one on each side of the radius, are mixed to cost exactly that.
    """
    costs = window.costs(x.device)[:, None, None]
    gains = window.at_targets(slope, -torch.inf)
    low = x.new_zeros(len(x))
    high = slope.abs().amax((1, 2, 3)) * 4 + torch.finfo(x.dtype).tiny
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        over = _sent(x, gains, costs, middle)[1] > radius
        low, high = torch.where(over, middle, low), torch.where(over, high, middle)
    (dear, dear_cost), (cheap, cheap_cost) = (_sent(x, gains, costs, price) for price in (low, high))
    share = ((radius - cheap_cost) / (dear_cost - cheap_cost).clamp(min=1e-30)).clamp(0, 1)
    plan = cheap + share[:, None, None, None, None] * (dear - cheap)
    return window.arriving(plan), cheap_cost + share * (dear_cost - cheap_cost)


def _sent(
    x: torch.Tensor, gains: torch.Tensor, costs: torch.Tensor, price: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The plan [b, c, moves, h, w] in which every pixel sends all its mass where it is worth most at a price [b]; its cost [b].

    Of targets that are worth the same the nearest wins.
    """
    worth = gains - (price[:, None, None, None, None] + 1e-300) * costs
    best = worth.amax(-3, keepdim=True)
    nearest = torch.where(worth == best, costs, torch.inf).argmin(-3, keepdim=True)
    plan = torch.zeros_like(gains).scatter_(-3, nearest, x.unsqueeze(-3))
    return plan, (plan * costs).sum((1, 2, 3, 4))


@metric("wasserstein")
def wasserstein_l1(x: torch.Tensor, other: torch.Tensor) -> Floats:
    """The 1-Wasserstein distance [b] with ground metric l1."""
    return wasserstein(x, other, "l1")


@metric("wasserstein-l2")
def wasserstein_l2(x: torch.Tensor, other: torch.Tensor) -> Floats:
    """The 1-Wasserstein distance [b] with ground metric l2."""
    return wasserstein(x, other, "l2")


def wasserstein(x: torch.Tensor, other: torch.Tensor, ground: str = "l1") -> Floats:
    """The 1-Wasserstein distance [b] of pictures [b, ...], each divided by its mass; nothing moves between channels.

    Exact up to the rounding of float64, by the network simplex of POT, for pictures of up to EXACT_PIXELS pixels; above that the
    cost of a plan along rows, which may be much larger. Infinite where a channel's share of the mass differs. The distance is
    that of the positive from the negative part of the difference, since mass that is in both may stay.
    """
    changes = _shares(other) - _shares(x)
    kept = np.abs(changes.sum(axis=(2, 3))).max(axis=1) <= SAME_MASS
    few = changes.shape[2] * changes.shape[3] <= EXACT_PIXELS
    each = _exact if few else _along_rows
    return np.array(
        [sum(each(c, ground) for c in change) if keep else np.inf for change, keep in zip(changes, kept, strict=True)]
    )


def _shares(x: torch.Tensor) -> Floats:
    """Pictures [b, ...] divided by their mass, float64 [b, c, h, w]."""
    pictures = as_planes(x.detach()).double().cpu().numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        return pictures / pictures.sum(axis=(1, 2, 3), keepdims=True)


def _exact(change: Floats, ground: str) -> float:
    """What it costs to make a change [h, w] that adds up to 0."""
    solve = _solver()
    places, amounts = _places(*change.shape), change.reshape(-1)
    to, away = amounts > _MOVED, amounts < -_MOVED
    if not away.any() or not to.any():
        return 0.0
    leaving, coming = -amounts[away], amounts[to]
    step = places[away][:, None] - places[to][None]
    cost = np.abs(step).sum(2) if ground == "l1" else np.sqrt((step**2).sum(2))
    moved = max(leaving.sum(), coming.sum())
    return float(moved * solve(leaving / leaving.sum(), coming / coming.sum(), cost, numItermax=10**7))


def _along_rows(change: Floats, ground: str) -> float:
    """The cost of moving mass along the rows, one after another in turn to the right and to the left; or along the columns."""
    paths = []
    for picture in (change, change.T):
        snake = picture.copy()
        snake[1::2] = snake[1::2, ::-1]
        paths.append(float(np.abs(snake.reshape(-1).cumsum()).sum()))
    return min(paths)


@lru_cache(maxsize=8)
def _places(height: int, width: int) -> Floats:
    """Row and column of every pixel, [pixels, 2]."""
    return np.stack(np.unravel_index(np.arange(height * width), (height, width)), axis=1).astype(float)


def _solver() -> Solver:
    try:
        from ot import emd2
    except ImportError:
        raise BadInput(
            "exact Wasserstein distances are computed by POT, which is not installed: pip install 'vauban[attacks]'"
        ) from None
    return emd2
