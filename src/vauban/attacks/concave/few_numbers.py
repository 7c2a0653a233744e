"""Attacks for fractional Lp and other elementwise-concave metrics, in which few large changes cost less than many small ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch

from vauban.attacks.base import Attack, Found, Search, Target, at_least, register
from vauban.attacks.concave.elementwise import Cost, cost_of, exponent, into_star
from vauban.threats import Threat

_TINY = 1e-12

Rank = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From the slopes and the rooms of numbers to what moving each is worth."""


@register("coordinates")
@dataclass(frozen=True)
class Coordinates(Attack):
    """Moves numbers to the end of their range, one after another: the cheapest by gradient and cost first.

    With a concave cost some best attack on a linear classifier moves all its numbers but one as far as they go. Numbers are
    added first by what they gain for their cost and then, anew, by what they gain: in stages, each with `growth` times as many in
    all, at a new gradient, until the answer changes or `most` are moved. Then as few of the last stage as needed are kept, moved
    numbers are put back where the answer allows it, and one of the `partial` last is moved less far.
    """

    most: int = 200
    growth: float = 1.2
    halvings: int = 8
    partial: int = 3

    threats: ClassVar[tuple[str, ...]] = ("l1", "l1/2", "concave")
    gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        at_least("most", self.most, 1)
        at_least("growth", self.growth, 1)
        for name in ("halvings", "partial"):
            at_least(name, getattr(self, name), 0)

    def fits(self, threat: Threat) -> bool:
        """Whether the metric adds up a concave function of each change."""
        return cost_of(threat) is not None

    def attack(
        self, target: Target, x: torch.Tensor, labels: torch.Tensor, threat: Threat, generator: torch.Generator
    ) -> Found:
        """See `Attack.attack`."""
        cost, best = cost_of(threat), Search(target, x, labels, threat)
        assert cost is not None
        for rank in (_per_cost, _most):
            search = Search(target, x, labels, threat)
            order, ends = self._add(search, target, partial(rank, cost))
            self._put_back(search, target, order)
            for back in range(self.partial):
                self._less(search, target, order, ends, back)
            best.offer(search.best[search.found()], search.found().nonzero()[:, 0])
        return Found.of(best)

    def _add(self, search: Search, target: Target, rank: Rank) -> tuple[torch.Tensor, torch.Tensor]:
        """Move numbers until the answer changes: their places in order [b, moved], -1 where none, and where they go [b, n]."""
        flat, moved = search.x.flatten(1), search.x.flatten(1).clone()
        ends, order = flat.clone(), torch.full((len(flat), 0), -1, device=flat.device)
        used, going = torch.zeros_like(flat, dtype=torch.bool), search.radii() > 0
        low, high = target.input_range or (0.0, 1.0)
        while order.shape[1] < min(self.most, flat.shape[1]) and not target.exhausted:
            rows = going.nonzero()[:, 0]
            if not len(rows):
                break
            before = order.shape[1]
            count = min(max(before + 1, int(before * self.growth)), self.most, flat.shape[1])
            slope = target.gradient(moved[rows].view(-1, *search.x.shape[1:]), search.labels[rows])[1].flatten(1)
            end = torch.where(slope > 0, high, low).to(flat.dtype)
            room = (end - flat[rows]).abs()
            worth = rank(slope, room).to(flat.dtype).masked_fill(used[rows] | (room == 0), -1.0)
            new = worth.topk(count - before, dim=1).indices
            order = torch.cat([order, order.new_full((len(flat), count - before), -1)], dim=1)
            order[rows, before:] = new
            used[rows[:, None], new] = True
            ends[rows[:, None], new] = end.gather(1, new)
            moved[rows] = torch.where(used[rows], ends[rows], flat[rows])
            made = moved[rows].view(-1, *search.x.shape[1:])
            better = search.offer(made, rows)
            going[rows] = ~better
            self._fewer(search, rows[better], order, ends, before)
        return order, ends

    def _fewer(self, search: Search, rows: torch.Tensor, order: torch.Tensor, ends: torch.Tensor, before: int) -> None:
        """Of what the last stage moved, keep the first numbers alone, as few as change the answer, by bisection."""
        low, high = torch.full_like(rows, before), torch.full_like(rows, order.shape[1])
        while len(rows) and bool((low + 1 < high).any()):
            middle = (low + high) // 2
            chosen = torch.arange(order.shape[1], device=order.device) < middle[:, None]
            better = search.offer(_moved(search.x, rows, order[rows], ends[rows], chosen), rows)
            high, low = torch.where(better, middle, high), torch.where(better, low, middle)

    def _put_back(self, search: Search, target: Target, order: torch.Tensor) -> None:
        """Put numbers back, those moved last first, where the answer stays another."""
        flat = search.x.flatten(1)
        for j in reversed(range(order.shape[1])):
            best = search.best.flatten(1)
            place = order[:, j].clamp(min=0)[:, None]
            rows = (search.found() & (best.gather(1, place) != flat.gather(1, place))[:, 0]).nonzero()[:, 0]
            if target.exhausted:
                return
            if len(rows):
                back = best[rows].scatter(1, place[rows], flat[rows].gather(1, place[rows]))
                search.offer(back.view(-1, *search.x.shape[1:]), rows)

    def _less(self, search: Search, target: Target, order: torch.Tensor, ends: torch.Tensor, back: int) -> None:
        """Move one number less far, by bisection: the last that was moved, or one `back` positions before it."""
        flat, best = search.x.flatten(1), search.best.flatten(1).clone()
        changed = (best.gather(1, order.clamp(min=0)) != flat.gather(1, order.clamp(min=0))) & (order >= 0)
        rows = (changed.sum(1) > back).nonzero()[:, 0]
        if not len(rows):
            return
        after = changed.long().flip(1).cumsum(1).flip(1)
        position = (changed & (after == back + 1)).long().argmax(1, keepdim=True)
        place = order.gather(1, position)[rows]
        own, end = flat[rows].gather(1, place), ends[rows].gather(1, place)
        low, high = torch.zeros_like(own), torch.ones_like(own)
        for _ in target.steps(self.halvings):
            middle = (low + high) / 2
            tried = best[rows].scatter(1, place, own + middle * (end - own))
            better = search.offer(tried.view(-1, *search.x.shape[1:]), rows)[:, None]
            high, low = torch.where(better, middle, high), torch.where(better, low, middle)


@register("star")
@dataclass(frozen=True)
class Star(Attack):
    """Projected gradient in an Lp ball with p <= 1, a star that grows: its largest changes are kept, the others left out.

    The radius is `radius` at first and `factor` times as much after `every` steps; a step moves numbers by up to `step`, in
    proportion to the gradient. What is found is made smaller along the line by bisection.
    """

    steps: int = 300
    radius: float = 0.1
    factor: float = 1.15
    every: int = 5
    step: float = 0.25

    threats: ClassVar[tuple[str, ...]] = ("l1", "l1/2")
    gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("steps", "every", "factor"):
            at_least(name, getattr(self, name), 1)
        for name in ("radius", "step"):
            at_least(name, getattr(self, name), _TINY)

    def fits(self, threat: Threat) -> bool:
        """Whether it is an Lp quasi-norm with p <= 1."""
        p = exponent(threat)
        return p is not None and p <= 1

    def attack(
        self, target: Target, x: torch.Tensor, labels: torch.Tensor, threat: Threat, generator: torch.Generator
    ) -> Found:
        """See `Attack.attack`."""
        search, p = Search(target, x, labels, threat), exponent(threat)
        assert p is not None
        flat, low_high = x.flatten(1), target.input_range or (0.0, 1.0)
        change = torch.zeros_like(flat)
        for i in target.steps(self.steps):
            rows = (~search.found()).nonzero()[:, 0]
            if not len(rows):
                break
            slope = target.gradient((flat + change)[rows].view(-1, *x.shape[1:]), labels[rows])[1].flatten(1)
            slope = slope / slope.abs().amax(1, keepdim=True).clamp(min=_TINY)
            wanted = (flat[rows] + change[rows] + self.step * slope).clamp(*low_high) - flat[rows]
            radius = torch.full((len(rows),), self.radius * self.factor ** (i // self.every), device=x.device)
            change[rows] = into_star(wanted, radius, p)
            search.offer((flat + change)[rows].view(-1, *x.shape[1:]), rows)
        rows = (search.found() & (search.radii() > 0)).nonzero()[:, 0]
        if len(rows):
            search.reach((search.best - x)[rows], rows, ended=torch.ones_like(rows, dtype=torch.bool))
        return Found.of(search)


def _per_cost(cost: Cost, slope: torch.Tensor, room: torch.Tensor) -> torch.Tensor:
    return slope.abs() * room / cost(room).clamp(min=_TINY)


def _most(cost: Cost, slope: torch.Tensor, room: torch.Tensor) -> torch.Tensor:
    return slope.abs() * room


def _moved(
    x: torch.Tensor, rows: torch.Tensor, order: torch.Tensor, ends: torch.Tensor, chosen: torch.Tensor
) -> torch.Tensor:
    """The inputs `rows` with the chosen [n, moved] of the places in `order` [n, moved] where `ends` [n, numbers] says."""
    flat, use = x[rows].flatten(1), torch.zeros_like(ends, dtype=torch.bool)
    use.scatter_(1, order.clamp(min=0), chosen & (order >= 0))
    return torch.where(use, ends, flat).view(-1, *x.shape[1:])
