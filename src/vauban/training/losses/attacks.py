"""Gradients in pictures, and steps of the attacks that losses use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from vauban.projections import into_l1_ball

Objective = Callable[[torch.Tensor], torch.Tensor]

_SHARE = 0.01  # of the numbers of a picture: those that one step in L1 moves


@contextmanager
def same_statistics(network: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The network without its parallel wrapper; afterwards its batch normalisations have the statistics that they had before.

    The network stays in its mode: in training mode it normalises by the batch of the attack, and dropout is drawn anew. Its
    parameters need no gradient meanwhile, so that none is computed.
    """
    own = network.module if isinstance(network, torch.nn.parallel.DistributedDataParallel) else network
    buffers = [b for part in own.modules() if isinstance(part, _BatchNorm) for b in part.buffers(recurse=False)]
    before = [buffer.clone() for buffer in buffers]
    learning = [parameter for parameter in own.parameters() if parameter.requires_grad]
    try:
        for parameter in learning:
            parameter.requires_grad_(False)
        yield own
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)
        with torch.no_grad():
            for buffer, value in zip(buffers, before, strict=True):
                buffer.copy_(value)


def gradient(objective: Objective, x: torch.Tensor) -> torch.Tensor:
    """The gradient in x of an objective, summed over pictures; none is computed in parameters."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(objective(leaf), leaf)[0]


def ascend_l2(objective: Objective, x: torch.Tensor, epsilon: float | torch.Tensor, steps: int) -> torch.Tensor:
    """Inputs within L2 distance `epsilon` of x [b, ...], by `steps` steps of 2 epsilon / steps along the normalised gradient of
    the objective. Pictures stay in [0, 1]. [Salman2019]"""
    moved, tiny = x, torch.finfo(x.dtype).tiny
    for _ in range(steps):
        slope = gradient(objective, moved).flatten(1)
        slope = slope / slope.norm(dim=1, keepdim=True).clamp(min=tiny)
        change = (moved - x).flatten(1) + 2 * epsilon / steps * slope
        change = change * (epsilon / change.norm(dim=1, keepdim=True).clamp(min=tiny)).clamp(max=1)
        moved = _in_range(x + change.view_as(x), x)
    return moved


def ascend_l1(objective: Objective, x: torch.Tensor, epsilon: float | torch.Tensor, steps: int) -> torch.Tensor:
    """Inputs within L1 distance `epsilon` of x [b, ...], by `steps` steps of 2 epsilon / steps. Pictures stay in [0, 1].

    A step moves the hundredth of the numbers that have the largest gradients, equally far; numbers of a picture that would leave
    [0, 1] do not count. [Tramer2019]
    """
    moved = x
    for _ in range(steps):
        slope, flat = gradient(objective, moved).flatten(1), moved.flatten(1)
        if x.dim() > 2:
            slope = slope.masked_fill((flat <= 0) & (slope < 0) | (flat >= 1) & (slope > 0), 0)
        count = max(1, int(_SHARE * slope.shape[1]))
        largest = slope.abs().topk(count, dim=1).indices
        direction = torch.zeros_like(slope).scatter(1, largest, slope.gather(1, largest).sign())
        change = into_l1_ball(flat - x.flatten(1) + 2 * epsilon / steps / count * direction, epsilon)
        moved = _in_range(x + change.view_as(x), x)
    return moved


def _in_range(moved: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Pictures [b, channels, height, width] in [0, 1], or no farther outside than x is; rows of a table [b, features], which may
    have any values, as they are."""
    if moved.dim() == 2:
        return moved
    return torch.minimum(torch.maximum(moved, x.clamp(max=0)), x.clamp(min=1))
