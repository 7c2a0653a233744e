"""What stacked networks are made of: their tensors, and products of many models at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class TensorSpec:
    """Shape and initial values of one tensor of a model: uniform within +-`limit`, or all `fill` where limit is 0."""

    shape: tuple[int, ...]
    limit: float = 0.0
    fill: float = 0.0
    trained: bool = True


@dataclass(frozen=True)
class StackedNetwork:
    """The tensors of one model, and the function that computes the scores of all models.

    weights(shape [c, h, w], classes) returns the tensors by name. forward(weights, x [models, n, h, w, c], training) returns
    [models, n, classes]; in training, batch normalisation uses each model's own batch and updates its running means and
    variances, which are weights that no gradient changes.
    """

    weights: Callable[[tuple[int, int, int], int], dict[str, TensorSpec]]
    forward: Callable[[Weights, torch.Tensor, bool], torch.Tensor]


def dense(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x [g, n, in] times weight [g, in, out], plus bias [g, out], in the precision of x."""
    weight = weight.to(x.dtype)
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias.to(x.dtype)[:, None], x, weight)
