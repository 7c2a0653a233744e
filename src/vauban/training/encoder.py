"""A network that learns features: its last layer is left out, and layers that only the loss needs stand behind it."""

from __future__ import annotations

import copy

import torch
from torch import nn

from vauban.errors import BadInput


class Encoder(nn.Module):
    """In evaluation it returns features [n, d] of pictures, the input of the network's last linear layer; in training the
    projections [n, width] of these, followed by predictions of the projections [n, width] if there is a predictor."""

    def __init__(self, network: nn.Module, width: int, predicts: bool, seed: int, normalised: bool = False):
        super().__init__()
        self.place, last = _last_linear(network)
        self._classes, self.features = last.out_features, last.in_features
        self.trunk = network
        _put(network, self.place, nn.Identity())
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            projector = _siamese_projector if predicts else _normalised_projector if normalised else _projector
            self.projector = projector(self.features, width)
            self.predictor = _predictor(width) if predicts else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.trunk(x)
        if features.shape[1:] != (self.features,):
            raise BadInput(
                f"without {self.place}, its last linear layer in the order of assignment, {type(self.trunk).__name__} returns "
                f"{list(features.shape)}, not what that layer takes, [{len(x)}, {self.features}]: assign the layer last that is "
                "computed last"
            )
        if not self.training:
            return features
        points: torch.Tensor = self.projector(features)
        return points if self.predictor is None else torch.cat([points, self.predictor(points)], dim=1)

    def without_heads(self) -> nn.Module:
        """A copy of the network that was given, with what it learned; its last layer is all zeros."""
        network = copy.deepcopy(self.trunk)
        last = nn.Linear(self.features, self._classes)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        _put(network, self.place, last)
        return network


def trunk_state(state: dict[str, torch.Tensor], network: nn.Module) -> dict[str, torch.Tensor]:
    """Weights for a network out of the state of an `Encoder` around one like it, the last layer all zeros; others as they are."""
    names = set(network.state_dict())
    if set(state) <= names or not any(name.startswith("projector.") for name in state):
        return state
    place, last = _last_linear(network)
    own = {name.removeprefix("trunk."): tensor for name, tensor in state.items() if name.startswith("trunk.")}
    zeros = {f"{place}.{name}": torch.zeros_like(tensor) for name, tensor in last.state_dict().items()}
    return zeros | own


def _last_linear(network: nn.Module) -> tuple[str, nn.Linear]:
    found = [(name, part) for name, part in network.named_modules() if isinstance(part, nn.Linear)]
    if not found or not found[-1][0]:
        raise BadInput(
            f"{type(network).__name__} does not end with a linear layer behind features: features are learned by a network "
            "such as resnet18, or a module of your own whose last layer is torch.nn.Linear"
        )
    return found[-1]


def _put(network: nn.Module, place: str, part: nn.Module) -> None:
    parent, _, name = place.rpartition(".")
    setattr(network.get_submodule(parent), name, part)


def _projector(features: int, width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, width))


def _normalised_projector(features: int, width: int) -> nn.Module:
    """Two layers with batch normalisation between them and eight times as wide inside as features, as [Tong2023] has them."""
    inner = 8 * features
    return nn.Sequential(
        nn.Linear(features, inner, bias=False), nn.BatchNorm1d(inner), nn.ReLU(), nn.Linear(inner, width, bias=False)
    )


def _siamese_projector(features: int, width: int) -> nn.Module:
    """Three layers, the last without scale and offset, as [Chen2021] has them."""
    layers: list[nn.Module] = []
    for inside in (features, width):
        layers += [nn.Linear(inside, width, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, width, bias=False), nn.BatchNorm1d(width, affine=False))


def _predictor(width: int) -> nn.Module:
    inner = max(1, width // 4)
    return nn.Sequential(nn.Linear(width, inner, bias=False), nn.BatchNorm1d(inner), nn.ReLU(), nn.Linear(inner, width))
