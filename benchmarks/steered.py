"""Networks with random weights, and pictures for them, such that certifying has something to decide.

A network's scores are computed in full, and then the mean of nine pixels of the view decides whether class 0 or class 1 gets the
vote. Those pixels are set so that class 0 wins with probabilities spread as in P: means of tens of the 500 label probabilities of
CIFAR-10 inputs, in order (sigma 0.25).
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.special import ndtri

from vauban.inputs import Inputs

SIGMA = 0.25
P = (
    "0.0002 0.0016 0.0071 0.0287 0.0668 0.1353 0.2048 0.2503 0.2857 0.3482 0.3967 0.4611 0.5166 0.5793 0.6333 0.6704 0.7109 "
    "0.7494 0.7827 0.8303 0.8534 0.8803 0.9004 0.912 0.9322 0.9496 0.9604 0.9689 0.9767 0.9844 0.9891 0.9918 0.9944 0.9959 "
    "0.9973 0.9983 0.9988 0.9992 0.9995 0.9998 0.9999 0.99995 0.99998 0.99999 0.99999 0.99999 0.99999 0.99999 0.99999 0.99999"
)
STEERING = 9


class Steered(torch.nn.Module):
    """A network whose winner is class 0 or class 1 by the mean of nine pixels, after all its work is done."""

    def __init__(self, net: torch.nn.Module):
        super().__init__()
        self.net = net

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        scores = self.net(views).float().clamp(-1e3, 1e3)
        won = views[:, 0, 0, :STEERING].float().mean(dim=1) > 0.5
        return torch.cat([scores[:, :2] + 1e4 * torch.stack([won, ~won], dim=1), scores[:, 2:]], dim=1)


def pictures(count: int, size: int) -> Inputs:
    """Random pictures whose steering pixels give class 0 probabilities spread as those in P."""
    values = torch.randint(
        0,
        256,
        (count, 3, size, size),
        dtype=torch.uint8,
        generator=torch.Generator().manual_seed(0),
    )
    values[:, 0, 0, :STEERING] = steering(count)
    return Inputs(values, 255)


def probabilities(count: int) -> np.ndarray:
    """That many probabilities, spread as those in P."""
    known = np.array([float(text) for text in P.split()])
    order = np.random.default_rng(0).permutation(count)
    return np.interp((order + 0.5) / count, (np.arange(len(known)) + 0.5) / len(known), known)


def steering(count: int) -> torch.Tensor:
    """Steering pixels [count, 9] whose mean is so far from 1/2 that class 0 wins with these probabilities."""
    place = 0.5 + SIGMA / STEERING**0.5 * ndtri(probabilities(count))
    total = np.clip(np.rint(STEERING * 255 * place), 0, STEERING * 255).astype(int)
    return torch.from_numpy((total[:, None] + np.arange(STEERING)) // STEERING).to(torch.uint8)
