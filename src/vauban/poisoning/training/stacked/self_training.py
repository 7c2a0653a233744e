"""Linear heads in closed form, many at once: on their own samples, then on pictures without labels that they label themselves.

Against flipped labels the unlabelled pictures are trusted, so a head may learn from all of them. Its weights are a function of
these, of its own samples and of nothing else: heads are computed side by side and never added to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

_START = 4.0  # the deviation of scores on unlabelled pictures before the first round
_BALANCED = 3  # passes in which each class gets an equal share of the unlabelled pictures
_LEAST = 1e-6

Samples = tuple[torch.Tensor, torch.Tensor]
"""Features [n, d] and labels [n] of one head."""


@dataclass(frozen=True)
class SelfTraining:
    """Settings. `ridge`: the penalty of the first fit, in mean squared lengths of a feature vector. `rounds`: how often
    unlabelled pictures are labelled and heads fitted to them; 0 leaves the ridge regression. `shrink`: how much of the mean
    variance is added to the covariance. `sharpness`: the factor of scores from the second round on. `unseen`: whether a class of
    which a head has no sample gets its share of the unlabelled pictures too, those that fit the other classes least, and may be
    answered from then on."""

    ridge: float
    rounds: int
    shrink: float
    sharpness: float
    unseen: bool = False

    def fit(self, samples: Sequence[Samples], classes: int, pool: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights [heads, d, classes] and biases [heads, classes] of heads with these samples and the unlabelled pool [N, d]."""
        middle = pool.mean(0)
        found = [self._own(x - middle, y, classes) for x, y in samples]
        weight = torch.stack([ridge for ridge, _, _ in found])
        bias = weight.new_zeros(len(samples), classes)
        if self.rounds:
            sums, counts = side_by_side(torch.stack([s for _, s, _ in found])), torch.stack([n for _, _, n in found])
            weight, bias = self._rounds(sums, counts, pool - middle, weight)
        return weight, bias - middle @ weight

    def _own(self, x: torch.Tensor, y: torch.Tensor, classes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of one head: its ridge regression [d, classes] of targets 1 - 1/classes and -1/classes, the sum of its samples of each
        class [d, classes], and their number [classes]. Computed on its own, since shapes of others would change its last bits."""
        hot = functional.one_hot(y, classes).to(x.dtype)
        length = x.square().sum(1).mean() if len(x) else x.new_zeros(())
        products = x @ x.T + (self.ridge * length + _LEAST) * torch.eye(len(x), device=x.device)
        return x.T @ torch.linalg.solve(products, hot - 1 / classes), x.T @ hot, hot.sum(0)

    def _rounds(
        self, sums: torch.Tensor, counts: torch.Tensor, pool: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Linear discriminants with the covariance of all pictures, whose class means are those of pictures as they were labelled
        by the round before; unless `unseen`, classes of which a head has no sample get no votes."""
        covariance = pool.T @ pool / len(pool)
        covariance += (self.shrink * covariance.diagonal().mean() + _LEAST) * torch.eye(
            len(covariance), device=pool.device
        )
        known = (counts > 0) | self.unseen
        scores = (pool @ side_by_side(weight)).view(len(pool), *counts.shape)
        scores = scores * (_START / scores.std((0, 2), keepdim=True).clamp(min=_LEAST))
        for number in range(self.rounds):
            shares = torch.softmax(scores * (self.sharpness if number else 1.0), dim=2) * known
            for _ in range(_BALANCED):
                shares = shares / shares.sum(0).clamp(min=_LEAST)
                shares = shares / shares.sum(2, keepdim=True).clamp(min=_LEAST)
            total = (counts + shares.sum(0)).clamp(min=_LEAST).flatten()
            means = (sums + pool.T @ shares.flatten(1)) / total
            flat = torch.linalg.solve(covariance, means)
            bias = torch.where(known, -(flat * means).sum(0).view_as(counts) / 2, -1e4)
            scores = (pool @ flat).view_as(shares) + bias
        return flat.view(-1, *counts.shape).transpose(0, 1).contiguous(), bias


def side_by_side(weight: torch.Tensor) -> torch.Tensor:
    """[heads, d, classes] as one matrix [d, heads * classes]."""
    return weight.transpose(0, 1).flatten(1)
