"""Networks that compute features which all base classifiers share, and what is put behind them to learn the features."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from vauban.errors import BadInput
from vauban.files import sha256
from vauban.models.building import build_bare
from vauban.models.files import SPEC_KEY, WITHOUT_LABELS
from vauban.models.weights import read_weights
from vauban.poisoning.training.stacked.network_in_network import BLOCKS, pooled
from vauban.specs import Spec

NIN = "nin"


def new_trunk(channels: int, text: str = "") -> nn.Module:
    """The network that computes features of pictures with so many channels, with random weights.

    `text`: "nin", the first two blocks of a network in network, or an architecture of `vauban.models`, whose last layer is left
    out. Unless given: three convolutions over gradient maps for grey pictures, a ResNet-18 for colour.
    """
    if text == NIN:
        return nn.Sequential(*_nin_block(channels, 0), _Pooled(True), *_nin_block(BLOCKS[0][-1][1], 1), _Pooled(False))
    if text or channels == 3:
        net = build_bare(text or "resnet18:channels=3,classes=10")
        if not isinstance(getattr(net, "fc", None), nn.Linear):
            raise BadInput(f"features of {text}: a residual network is needed, whose last layer is called fc")
        net.fc = nn.Identity()
        return net
    return nn.Sequential(
        *_layer(8, 64, 3, 1), *_layer(64, 128, 3, 2), *_layer(128, 128, 3, 1), nn.AvgPool2d(3, stride=2, padding=1), nn.Flatten()
    )  # fmt: skip


def learning_head(features: torch.Size, outputs: int) -> nn.Module:
    """What is put behind a trunk while it learns: two dense layers, or behind maps the last block of a network in network."""
    if len(features) == 1:
        return nn.Sequential(nn.Linear(features[0], 256), nn.ReLU(), nn.Linear(256, outputs))
    return nn.Sequential(
        *_nin_block(features[0], 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(BLOCKS[2][-1][1], outputs)
    )


def learned_before(path: Path) -> tuple[str, str, dict[str, torch.Tensor]]:
    """The architecture, the hash and the tensors of a trunk that `vauban train` wrote, without those of its last layer.

    One that may have seen labels is refused: a flipped label would change the features that all heads share.
    """
    tensors, about = read_weights(path)
    text = about.get(SPEC_KEY, "")
    if {"mean", "std"} & set(Spec.parse(text or "none").params):
        raise BadInput(
            f"{path}: features of {text} cannot be taken up, since its normalisation is no tensor: leave mean= out"
        )
    with torch.device("meta"):
        needed = new_trunk(3, text).state_dict() if text else {}
    missing = sorted(set(needed) - set(tensors))
    if not text or missing:
        raise BadInput(
            f"{path} holds no features: a file is needed that vauban train --model resnet18 --loss simsiam (or simclr) wrote"
        )
    if WITHOUT_LABELS not in about:
        raise BadInput(
            f"{path} does not say that its weights, and those they began with, were learned without labels, so one flipped label "
            "may have changed all features; learn them by vauban train --loss simsiam (or simclr), with no --init or one made so"
        )
    return text, sha256(path.read_bytes()), {name: tensors[name].contiguous() for name in needed}


class _Pooled(nn.Module):
    """Maximum or mean over 3x3 pixels at every second one."""

    def __init__(self, largest: bool):
        super().__init__()
        self.largest = largest

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return pooled(x, self.largest)


def _layer(inside: int, outside: int, kernel: int, stride: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inside, outside, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outside), nn.ReLU()]


def _nin_block(inside: int, number: int) -> list[nn.Module]:
    layers = []
    for kernel, outside in BLOCKS[number]:
        layers += _layer(inside, outside, kernel, 1)
        inside = outside
    return layers
