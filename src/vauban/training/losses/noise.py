"""Training on noise: cross-entropy on views as they are certified."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vauban.training.losses.base import LOSSES, Loss, Scores, check_numbers, mean_cross_entropy


def noise(scores: Scores, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over all views. [Cohen2019]

    `scores`: [views, batch, classes], or a sequence of [batch, classes]. `labels`: int64 [batch], or [batch, classes].
    """
    return mean_cross_entropy(scores, labels)


@LOSSES.register("noise")
@dataclass(frozen=True)
class Noise(Loss):
    """Cross-entropy on `views` views of each picture. [Cohen2019]"""

    views: int = 1

    def __post_init__(self) -> None:
        check_numbers(self, "views", low=1)
