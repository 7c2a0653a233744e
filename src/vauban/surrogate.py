"""The smoothed classifier as a module that is differentiable in its pictures, for attacks and training."""

from __future__ import annotations

import math

import torch


def log_mean_softmax(scores: torch.Tensor) -> torch.Tensor:
    """The log of the mean over views of the softmax of scores [views, ..., classes]: [..., classes]. [Salman2019]"""
    return scores.log_softmax(-1).logsumexp(0) - math.log(len(scores))
