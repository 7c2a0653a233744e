"""Steps and projections in L2, L1 and L-infinity, for attacks that follow gradients."""

from __future__ import annotations

import torch

from vauban.attacks.targets import Target
from vauban.projections import into_l1_ball
from vauban.threats import Threat

NORMS = ("l2", "l1", "linf")

_SHARE = 0.01  # of the numbers of an input: those that one step in L1 moves


def times(factors: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """x [b, ...], each multiplied by its factor [b]."""
    return factors.view(-1, *[1] * (x.dim() - 1)) * x


def size(change: torch.Tensor, threat: Threat) -> torch.Tensor:
    """The norm of changes [b, ...], float32 [b]."""
    order = {"l2": 2.0, "l1": 1.0, "linf": torch.inf}[threat.name]
    return torch.linalg.vector_norm(change.flatten(1), order, dim=1)


def dual_size(slope: torch.Tensor, threat: Threat) -> torch.Tensor:
    """The dual norm of gradients [b, ...]: how fast a linear function rises with the norm of a change."""
    order = {"l2": 2.0, "l1": torch.inf, "linf": 1.0}[threat.name]
    return torch.linalg.vector_norm(slope.flatten(1), order, dim=1)


def steepest(slope: torch.Tensor, threat: Threat, share: float = _SHARE) -> torch.Tensor:
    """Changes [b, ...] of norm 1 along gradients: in L1 the `share` of numbers with the largest ones, equally far."""
    flat = slope.flatten(1)
    if threat.name == "l2":
        made = flat / flat.norm(dim=1, keepdim=True).clamp(min=torch.finfo(flat.dtype).tiny)
    elif threat.name == "linf":
        made = flat.sign()
    else:
        count = max(1, int(share * flat.shape[1]))
        largest = flat.abs().topk(count, dim=1).indices
        made = torch.zeros_like(flat).scatter(1, largest, flat.gather(1, largest).sign() / count)
    return made.view_as(slope)


def into_ball(change: torch.Tensor, radius: torch.Tensor, threat: Threat) -> torch.Tensor:
    """The nearest changes, in L2, to `change` [b, ...] whose norm is at most `radius` [b]."""
    flat, most = change.flatten(1), radius[:, None]
    if threat.name == "l2":
        flat = flat * (most / flat.norm(dim=1, keepdim=True).clamp(min=torch.finfo(flat.dtype).tiny)).clamp(max=1)
    elif threat.name == "linf":
        flat = flat.clamp(-most, most)
    else:
        flat = into_l1_ball(flat, most)
    return flat.view_as(change)


def inside(x: torch.Tensor, change: torch.Tensor, target: Target) -> torch.Tensor:
    """The change [b, ...] less what would leave the input range."""
    return change if target.input_range is None else (x + change).clamp(*target.input_range) - x


def movable(moved: torch.Tensor, slope: torch.Tensor, target: Target) -> torch.Tensor:
    """The gradient without those numbers that would leave the input range."""
    if target.input_range is None:
        return slope
    low, high = target.input_range
    return slope.masked_fill((moved <= low) & (slope < 0) | (moved >= high) & (slope > 0), 0)


def first_radius(margin: torch.Tensor, slope: torch.Tensor, threat: Threat) -> torch.Tensor:
    """How far a linear classifier with this margin [b] below 0 and gradient has its boundary [b], a first guess."""
    guess = margin.clamp(max=-1e-3).abs() / dual_size(slope, threat).clamp(min=1e-12)
    largest = size(torch.ones_like(slope), threat)
    return torch.minimum(guess, largest)
