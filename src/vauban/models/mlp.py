"""A dense network for tables of features, or for pictures taken as such."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from vauban.errors import BadInput


class Mlp(nn.Module):
    """`depth` hidden layers of `width` units, ReLU after each; scores [batch, classes] for inputs [batch, features].

    Inputs of other shapes are flattened to [batch, features].
    """

    def __init__(self, features: int, classes: int, width: int, depth: int):
        super().__init__()
        self.features = features
        sides = [features, *[width] * depth, classes]
        layers: list[nn.Module] = []
        for inside, outside in pairwise(sides):
            layers += [nn.Linear(inside, outside), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        if flat.shape[1] != self.features:
            raise BadInput(
                f"the model takes {self.features} features; views have {flat.shape[1]}: {self._advice(flat.shape[1])}"
            )
        return self.layers(flat)

    def _advice(self, found: int) -> str:
        """What to do about views of so many features."""
        if found != 2 * self.features:
            return f"give features={found} to a new model; one that is trained needs inputs with its own columns"
        return (
            "the smoothing shows each feature twice. Ablation with null=mean keeps their number; else train a model on these "
            f"views, with features={found}"
        )


def mlp(features: int, classes: int, width: int, depth: int) -> nn.Module:
    """Return a dense network."""
    return Mlp(features, classes, width, depth)
