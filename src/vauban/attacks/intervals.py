"""Interval bounds of a network's scores over boxes of inputs, for a baseline trained to have good ones. [Gowal2018]

Float rounding is not accounted for: what is proven here is not one of Vauban's certificates.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from vauban.errors import BadInput
from vauban.models.normalise import Normalise

Box = tuple[torch.Tensor, torch.Tensor]

_AFFINE = (nn.Linear, nn.Conv2d)
_MONOTONE = (nn.ReLU, nn.Flatten, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.MaxPool2d, Normalise)
_IDENTITY = (nn.Identity, nn.Dropout)


def interval_scores(network: nn.Module, low: torch.Tensor, high: torch.Tensor) -> Box:
    """Bounds [n, classes] from below and above of the scores that the network, in eval mode, gives inputs in [low, high].

    `low`, `high`: floats [n, ...], low <= high. An affine layer takes centre and radius of a box to W centre + b and |W| radius;
    a layer that does not decrease in any input takes both ends of the box as they are.
    """
    return _through(_layers(network), (low, high))


def worst_scores(network: nn.Module, x: torch.Tensor, labels: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Upper bounds [n, classes] of score_j - score_label over changes of each number of x by at most `epsilon` within [0, 1].

    `x`: floats in [0, 1], [n, ...]. `labels`: [n], where the bound is 0. Where the last layer is dense, the bound is the largest
    value of (w_j - w_label) z + b_j - b_label over the box of its input z, which is below the difference of the scores' bounds.
    """
    if not x.is_floating_point() or not epsilon >= 0:
        raise BadInput(
            f"{x.dtype} pictures, epsilon={epsilon:g}: floats in [0, 1] and an epsilon of 0 or more are needed"
        )
    layers, box = _layers(network), ((x - epsilon).clamp(0, 1), (x + epsilon).clamp(0, 1))
    if layers and type(layers[-1]) is nn.Linear:
        last = layers[-1]
        centre, radius = _centred(_through(layers[:-1], box))
        scores = last(centre)
        change = last.weight - last.weight[labels][:, None]
        spread = (change.abs() @ radius[:, :, None]).squeeze(2)
        return scores - _of(labels, scores) + spread
    low, high = _through(layers, box)
    return (high - _of(labels, low)).scatter(1, labels[:, None], 0.0)


@torch.no_grad()
def proven(network: nn.Module, x: torch.Tensor, labels: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Which pictures [n] have their label for every change of each number by at most `epsilon` in [0, 1], by `worst_scores`."""
    others = worst_scores(network, x, labels, epsilon).scatter(1, labels[:, None], -torch.inf)
    return (others < 0).all(1)


def _layers(network: nn.Module) -> list[nn.Module]:
    """The layers of nested Sequentials in their order, without those that change nothing.

    Types are compared exactly: subclasses may compute something else.
    """
    if type(network) is nn.Sequential:
        return [layer for part in network for layer in _layers(part)]
    allowed = _AFFINE + _MONOTONE + _IDENTITY
    if type(network) not in allowed:
        names = ", ".join(kind.__name__ for kind in allowed)
        raise BadInput(
            f"no interval bounds of {type(network).__name__}: a Sequential of {names} is needed, such as wong-mnist"
        )
    return [] if type(network) in _IDENTITY else [network]


def _through(layers: Sequence[nn.Module], box: Box) -> Box:
    for layer in layers:
        if isinstance(layer, _AFFINE):
            centre, radius = _centred(box)
            centre, radius = layer(centre), _spread(layer, radius)
            box = centre - radius, centre + radius
        else:
            box = layer(box[0]), layer(box[1])
    return box


def _spread(layer: nn.Linear | nn.Conv2d, radius: torch.Tensor) -> torch.Tensor:
    """|W| radius."""
    if isinstance(layer, nn.Linear):
        return nn.functional.linear(radius, layer.weight.abs())
    return layer._conv_forward(radius, layer.weight.abs(), None)


def _centred(box: Box) -> Box:
    low, high = box
    return (low + high) / 2, (high - low) / 2


def _of(labels: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    return scores.gather(1, labels[:, None])
