"""Projection onto a ball of the 1-Wasserstein distance by Sinkhorn iterations over local plans. [Wong2019]"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vauban.attacks.wasserstein.transport import Window

ENTROPY = 1000.0
ITERATIONS = 20
_LEAST = -600.0  # logarithms below this are of no mass
_NEWTON = 12


@dataclass(frozen=True)
class Moved:
    """Pictures [b, c, h, w] of the mass of those they were moved from, and what the plans that made them cost [b].

    The plan is a transport, so that the cost is an upper bound on the distance.
    """

    pictures: torch.Tensor
    cost: torch.Tensor


def project(
    x: torch.Tensor,
    wanted: torch.Tensor,
    radius: torch.Tensor,
    window: Window,
    entropy: float = ENTROPY,
    iterations: int = ITERATIONS,
) -> Moved:
    """Pictures near `wanted` that a plan of cost at most `radius` [b] makes from x [b, c, h, w], float64, of mass 1 each.

    Minimises entropy / 2 |wanted - z|^2 + sum of P log P over plans P with rows x, columns z and cost at most the radius, by
    ascent in the dual variables of the three constraints in turn. [Wong2019] With P = exp(rows + columns - price * cost), the
    rows have a closed form; a column solves u + log u = t for u = entropy * z; the price takes Newton steps for the logarithm of
    the cost. The result is made feasible exactly: the last plan has the rows x, and is mixed with the plan that moves nothing
    until its cost is the radius. It converges slowly where entropy times the mass of a pixel is far above 10.
    """
    costs = window.costs(x.device)[:, None, None]
    inside = window.at_targets(torch.zeros_like(x), -torch.inf)
    log_x = x.clamp(min=0).log()
    columns = entropy * (wanted - x)
    price = columns.abs().amax((1, 2, 3)).clamp(min=1)[:, None, None, None, None]
    for _ in range(iterations):
        paid = inside - price * costs
        rows = log_x - (window.at_targets(columns, 0.0) + paid).logsumexp(-3)
        reach = _log_arriving(rows, paid, window)
        columns = entropy * wanted - wright_omega(entropy * wanted + torch.log(x.new_tensor(entropy)) + reach)
        price = _next_price(price, _plan(log_x, columns, paid, window), costs, radius)
    plan = _plan(log_x, columns, inside - price * costs, window)
    spent = (plan * costs).sum((1, 2, 3, 4))
    share = torch.where(spent > radius, radius / spent, 1.0)
    pictures = x + share[:, None, None, None] * (window.arriving(plan) - plan.sum(-3))
    return Moved(pictures.clamp(min=0), share * spent)


def wright_omega(t: torch.Tensor) -> torch.Tensor:
    """The solution u > 0 of u + log u = t, by Newton's method.

    >>> u = wright_omega(torch.tensor([-30.0, 1.0, 50.0], dtype=torch.float64))
    >>> torch.allclose(u + u.log(), torch.tensor([-30.0, 1.0, 50.0], dtype=torch.float64))
    True
    """
    t = t.clamp(min=_LEAST)
    u = torch.where(t > 1, t - t.clamp(min=1).log(), (t - 1).clamp(max=0).exp())
    for _ in range(_NEWTON):
        u = u * (1 + t - u.log()) / (1 + u)
    return u


def _next_price(price: torch.Tensor, plan: torch.Tensor, costs: torch.Tensor, radius: torch.Tensor) -> torch.Tensor:
    """A Newton step in the logarithm of the plan's cost, which falls nearly in proportion to the price; at most a factor of 4
    down."""
    tiny = torch.finfo(plan.dtype).tiny
    spent = (plan * costs).sum((1, 2, 3, 4)).clamp(min=tiny)
    curvature = (plan * costs**2).sum((1, 2, 3, 4)).clamp(min=tiny)
    newton = (spent / radius).log() * spent / curvature
    return torch.maximum(price + newton[:, None, None, None, None], price / 4)


def _plan(log_x: torch.Tensor, columns: torch.Tensor, paid: torch.Tensor, window: Window) -> torch.Tensor:
    """The plan [b, c, moves, h, w] of these dual variables whose rows are x."""
    targets = window.at_targets(columns, 0.0) + paid
    return (targets - targets.logsumexp(-3, keepdim=True) + log_x.unsqueeze(-3)).exp()


def _log_arriving(rows: torch.Tensor, paid: torch.Tensor, window: Window) -> torch.Tensor:
    """The logarithm of the sum over moves into each pixel of exp(rows - price * cost); moves are their own reverse."""
    sources = window.at_targets(rows, -torch.inf)
    return (sources + paid).logsumexp(-3).clamp(min=_LEAST)
