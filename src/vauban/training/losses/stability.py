"""Stability training: two views of a picture should get the same probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vauban.errors import BadInput
from vauban.training.losses.base import LOSSES, Batch, Loss, Scores, check_numbers, mean_cross_entropy, stacked


def stability(scores: Scores, labels: torch.Tensor, weight: float = 6.0) -> torch.Tensor:
    """-log p(y | v1) + weight * KL(p(v1) || p(v2)), the mean over pictures. [Li2019]

    `scores`: [views, batch, classes], two views or more (KL is then the mean over all but the first). Gradients pass through
    both sides of KL. There is no pass over the picture itself, unlike in the paper: views of it may have another shape.
    """
    together = stacked(scores)
    return mean_cross_entropy(together[:1], labels) + weight * divergence_from_first(together)


def divergence_from_first(scores: torch.Tensor) -> torch.Tensor:
    """KL(p(v1) || p(vi)), the mean over pictures and over i = 2, 3, …"""
    if len(scores) < 2:
        raise BadInput(f"scores of {len(scores)} view: stability compares two views or more")
    logs = scores.log_softmax(-1)
    return (logs[:1].exp() * (logs[:1] - logs[1:])).sum(-1).mean()


@LOSSES.register("stability")
@dataclass(frozen=True)
class Stability(Loss):
    """Cross-entropy on one view plus `weight` times the divergence of a second one from it. [Li2019]"""

    views = 2
    weight: float = 6.0

    def __post_init__(self) -> None:
        check_numbers(self, "weight", low=0)

    def classification(self, scores: torch.Tensor, labels: torch.Tensor, label_smoothing: float) -> torch.Tensor:
        return mean_cross_entropy(scores[:1], labels, label_smoothing)

    def penalty(self, scores: torch.Tensor, batch: Batch) -> torch.Tensor:
        return self.weight * divergence_from_first(scores)
