"""Metrics that add up a concave function of each number's change: costs of single changes, and projections onto their balls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import torch

from vauban.attacks.distances import METRICS, Floats
from vauban.errors import BadInput
from vauban.laws.concave import CONCAVE, ConcaveLaw
from vauban.threats import Threat, named

Cost = Callable[[torch.Tensor], torch.Tensor]

_COSTS: dict[str, Cost] = {}


def exponent(threat: Threat) -> float | None:
    """The p of a threat l1/2 and the like, 1 for l1; None for others."""
    try:
        name = named(threat.name).name
        return float(Fraction(name.removeprefix("l"))) if name not in ("l0", "l2", "linf") else None
    except (BadInput, ValueError):
        return None


def cost_of(threat: Threat) -> Cost | None:
    """What a change of one number costs, from sizes in [0, 1] to what is added up; None for metrics that do not add up."""
    p = exponent(threat)
    if p is not None and p <= 1:
        return lambda size: size.abs().pow(p)
    return _COSTS.get(threat.name)


def concave_threat(law: ConcaveLaw) -> Threat:
    """The threat of an elementwise-concave law with its own g, whose name holds the hash of g; distances know it from then on.

    >>> from vauban.laws.designs.metrics import Tabulated
    >>> concave_threat(ConcaveLaw(Tabulated.of(lambda z: min(2 * z, 1), 10), budget=40, levels=10)).name
    'concave-48ca3f20262cd06c'
    """
    threat = replace(CONCAVE, name=f"concave-{law.g.hash}")
    table, levels = torch.tensor([float(value) for value in law.g.values], dtype=torch.float64), law.levels

    def cost(size: torch.Tensor) -> torch.Tensor:
        steps = size.abs().double() * levels
        low = steps.floor().clamp(0, levels - 1)
        own, index = table.to(size.device), low.long()
        return own[index] + (steps - low) * (own[index + 1] - own[index])

    def distance(x: torch.Tensor, other: torch.Tensor) -> Floats:
        change = (other.double() - x.double()).flatten(1)
        return np.asarray(cost((change * levels).round() / levels).sum(1).cpu().numpy())

    _COSTS[threat.name], METRICS[threat.name] = cost, distance
    return threat


def into_star(change: torch.Tensor, radius: torch.Tensor, p: float) -> torch.Tensor:
    """Changes [b, n] with sum |change|^p <= radius^p [b], p <= 1: the largest numbers while they fit, the next one made smaller.

    The ball is a star around 0: whatever of a change is left out or made smaller, it stays inside.

    >>> into_star(torch.tensor([[0.5, -1.0, 0.25]]), torch.tensor([4.0]), 0.5)
    tensor([[ 0.5000, -1.0000,  0.0858]])
    """
    size, order = change.abs().sort(dim=1, descending=True)
    spent = size.double().pow(p).cumsum(1)
    left = (radius.double().pow(p)[:, None] - (spent - size.double().pow(p))).clamp(min=0)
    kept = torch.minimum(size.double(), left.pow(1 / p)).to(change.dtype)
    return torch.zeros_like(change).scatter(1, order, kept) * change.sign()
