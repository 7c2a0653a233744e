"""Linear classifiers, whose nearest adversarial inputs are known in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import vauban as vb

SMALL: dict[str, Any] = {"views": 16, "votes": 400, "confirm_votes": 2_000, "seed": 1, "progress": False}


@dataclass(frozen=True)
class LinearWorld:
    """Two classes cut by a hyperplane, `x` [b, d] around it and the labels [b] that it gives them."""

    model: torch.nn.Linear
    x: torch.Tensor
    labels: torch.Tensor

    @property
    def gap(self) -> torch.Tensor:
        """How much the label's score is ahead [b]."""
        with torch.no_grad():
            scores = self.model(self.x)
        return (scores[:, 0] - scores[:, 1]).abs()

    @property
    def normal(self) -> torch.Tensor:
        """The gradient of the other class's lead for label 0 [d]."""
        return (self.model.weight[1] - self.model.weight[0]).detach()

    def nearest(self, threat: str) -> torch.Tensor:
        """The distance [b] of the boundary; numbers may be anything in L2, L1 and L-infinity, and are in [0, 1] in L0."""
        w = self.normal
        if threat in ("l0", "l0-features"):
            toward = torch.where(self.labels == 0, 1.0, -1.0)[:, None] * w
            gains = torch.maximum(toward * (1 - self.x), -toward * self.x)
            best = gains.sort(dim=1, descending=True).values.cumsum(dim=1)
            return (best <= self.gap[:, None]).sum(dim=1) + 1
        dual = {"l2": w.norm(), "l1": w.abs().max(), "linf": w.abs().sum()}[threat]
        return self.gap / dual


def linear_world(dimensions: int, inputs: int = 6, seed: int = 0, shift: float = 0.0) -> LinearWorld:
    """A world with inputs that are not too near to the boundary; `shift`: of the boundary, as a share of all weights."""
    generator = torch.Generator().manual_seed(seed)
    model = torch.nn.Linear(dimensions, 2)
    with torch.no_grad():
        model.weight.copy_(torch.randn(2, dimensions, generator=generator))
        x = torch.rand(20 * inputs, dimensions, generator=generator)
        scores = x @ (model.weight[1] - model.weight[0])
        model.bias.copy_(torch.tensor([scores.median() + shift * scores.std() * dimensions**0.5, 0.0]))
        lead = model(x)[:, 1] - model(x)[:, 0]
        x = x[lead.abs() > 0.3 * lead.std()][:inputs]
        labels = model(x).argmax(dim=1)
    return LinearWorld(model, x, labels)


def half_space(sigma: float = 0.25) -> tuple[vb.SmoothedClassifier, np.ndarray, np.ndarray]:
    """A Gaussian smoothed half-space, whose certificate is tight, with inputs as floats."""
    world = linear_world(6, inputs=4, seed=7)
    smoothed = vb.SmoothedClassifier(world.model, f"gaussian:sigma={sigma}", num_classes=2, arithmetic="float")
    return smoothed, world.x.numpy(), world.labels.numpy()
