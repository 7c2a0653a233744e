"""Training losses by name; other packages bring theirs by the entry point group vauban.losses."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import cross_entropy

from vauban.registry import Registry

Views = Callable[[], torch.Tensor]
Loss = Callable[[torch.nn.Module, Views, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


class LossRegistry(Registry[Loss]):
    """Losses by name: `loss(network, views, labels)` returns the mean loss of a batch and scores [batch, classes] on views.

    Every call of `views()` returns a new view of each picture of the batch, float32 [batch, ...].
    """

    group, kind = "vauban.losses", "loss"


LOSSES = LossRegistry()


@LOSSES.register("noise")
def noise(network: torch.nn.Module, views: Views, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross-entropy on one view of each picture. [Cohen2019]"""
    scores = network(views())
    return cross_entropy(scores, labels), scores
