"""Consistency regularization: views of a picture should get one and the same confident answer."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vauban.errors import BadInput
from vauban.surrogate import log_mean_softmax
from vauban.training.losses.base import LOSSES, Batch, Loss, Scores, check_numbers, mean_cross_entropy, stacked


def consistency(scores: Scores, labels: torch.Tensor, weight: float = 10.0, entropy: float = 0.5) -> torch.Tensor:
    """Mean cross-entropy over views + weight * mean_i KL(mean p || p_i) + entropy * H(mean p). [Jeong2020]

    `scores`: [views, batch, classes], two views or more; p_i is the softmax of view i.
    """
    together = stacked(scores)
    return mean_cross_entropy(together, labels) + inconsistency(together, weight, entropy)


def inconsistency(scores: torch.Tensor, weight: float, entropy: float) -> torch.Tensor:
    """weight * mean_i KL(mean p || p_i) + entropy * H(mean p), the mean over pictures. [Jeong2020]"""
    if len(scores) < 2:
        raise BadInput(f"scores of {len(scores)} view: consistency compares two views or more")
    logs, log_mean = scores.log_softmax(-1), log_mean_softmax(scores)
    mean = log_mean.exp()
    divergence = (mean * (log_mean - logs)).sum(-1).mean()
    return weight * divergence - entropy * (mean * log_mean).sum(-1).mean()


@LOSSES.register("consistency")
@dataclass(frozen=True)
class Consistency(Loss):
    """Cross-entropy on `views` views plus `weight` times their divergence and `entropy` times that of their mean. [Jeong2020]"""

    weight: float = 10.0
    entropy: float = 0.5
    views: int = 2

    def __post_init__(self) -> None:
        check_numbers(self, "weight", "entropy", low=0)
        check_numbers(self, "views", low=2)

    def penalty(self, scores: torch.Tensor, batch: Batch) -> torch.Tensor:
        return inconsistency(scores, self.weight, self.entropy)
