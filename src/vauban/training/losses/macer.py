"""MACER: maximizes a differentiable estimate of the radius that Gaussian smoothing certifies."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from vauban.errors import BadInput
from vauban.laws.gaussian import GaussianLaw
from vauban.smoothing import Smoothing
from vauban.surrogate import log_mean_softmax
from vauban.training.losses.base import LOSSES, Batch, Loss, Scores, check_labels, check_numbers, stacked


def macer(
    scores: Scores, labels: torch.Tensor, sigma: float, beta: float = 16.0, gamma: float = 8.0, weight: float = 12.0
) -> torch.Tensor:
    """-log of the mean softmax of views at the label + weight * the hinge loss of the radius. [Zhai2020]

    `scores`: [views, batch, classes], of views with Gaussian noise of standard deviation `sigma`. `labels`: int64 [batch].
    """
    together = stacked(scores)
    check_labels(labels, *together.shape[1:])
    _refuse_probabilities(labels.is_floating_point())
    labels = labels.long()
    return _classification(together, labels) + weight * radius_loss(together, labels, sigma, beta, gamma)


def radius_loss(
    scores: torch.Tensor, labels: torch.Tensor, sigma: float, beta: float = 16.0, gamma: float = 8.0
) -> torch.Tensor:
    """sigma / 2 * max(gamma - xi, 0) at pictures that are classified correctly and 0 at others, the mean over pictures.

    xi = Phi^-1(p(y)) - Phi^-1(the highest other p), p the mean over views of the softmax of beta * scores: sigma / 2 * xi is
    the soft radius. Probabilities are kept away from 0 and 1, where Phi^-1 is infinite.
    """
    soft = log_mean_softmax(beta * scores).exp()
    least = torch.finfo(soft.dtype).eps
    own = soft.gather(1, labels[:, None])[:, 0]
    best = soft.scatter(1, labels[:, None], 0).amax(1)
    own_quantile, best_quantile = (torch.special.ndtri(p.clamp(least, 1 - least)) for p in (own, best))
    hinge = (gamma - (own_quantile - best_quantile)).clamp(min=0)
    return sigma / 2 * torch.where(own > best, hinge, 0).mean()


def _classification(scores: torch.Tensor, labels: torch.Tensor, label_smoothing: float = 0.0) -> torch.Tensor:
    return cross_entropy(log_mean_softmax(scores), labels, label_smoothing=label_smoothing)


def _refuse_probabilities(soft_labels: bool) -> None:
    if soft_labels:
        raise BadInput("macer compares one label with all others, not probabilities: leave mixup and cutmix out")


@LOSSES.register("macer")
@dataclass(frozen=True)
class Macer(Loss):
    """-log of the mean softmax of `views` views plus `weight` times the hinge loss of the radius. [Zhai2020]"""

    views: int = 16
    beta: float = 16.0
    gamma: float = 8.0
    weight: float = 12.0

    def __post_init__(self) -> None:
        check_numbers(self, "views", low=1)
        check_numbers(self, "beta", "gamma", low=0, above=True)
        check_numbers(self, "weight", low=0)

    def check(self, smoothing: Smoothing, soft_labels: bool = False) -> None:
        if not isinstance(smoothing.law, GaussianLaw):
            raise BadInput(
                f"macer maximizes the radius of gaussian, not of {smoothing.spec}: use consistency or stability, or gaussian"
            )
        _refuse_probabilities(soft_labels)

    def classification(self, scores: torch.Tensor, labels: torch.Tensor, label_smoothing: float) -> torch.Tensor:
        return _classification(scores, labels, label_smoothing)

    def penalty(self, scores: torch.Tensor, batch: Batch) -> torch.Tensor:
        assert isinstance(batch.smoothing.law, GaussianLaw)
        radius = radius_loss(scores, batch.labels, batch.smoothing.law.scale, self.beta, self.gamma)
        return self.weight * radius
