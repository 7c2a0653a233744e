"""Projections onto balls, shared by attacks and by the losses that train on attacked inputs."""

from __future__ import annotations

import torch


def into_l1_ball(change: torch.Tensor, epsilon: float | torch.Tensor) -> torch.Tensor:
    """The nearest points, in L2, to the rows of `change` [b, numbers] whose L1 norm is at most `epsilon`. [Duchi2008]"""
    size = change.abs()
    ordered = size.sort(dim=1, descending=True).values
    excess = ordered.cumsum(1) - epsilon
    ranks = torch.arange(1, change.shape[1] + 1, device=change.device)
    last = (ordered * ranks > excess).sum(1, keepdim=True).clamp(min=1) - 1
    threshold = (excess.gather(1, last) / (last + 1)).clamp(min=0)
    return change.sign() * (size - threshold).clamp(min=0)
