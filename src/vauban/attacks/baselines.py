"""Classifiers without certificates, which the papers attack beside their smoothed ones. [Levine2023] sections 5.5.2, D.3"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from vauban.attacks.intervals import worst_scores
from vauban.attacks.wasserstein.transport import Window, as_planes, best_plan
from vauban.errors import BadInput
from vauban.inputs import LEVELS
from vauban.models.building import build
from vauban.specs import Spec, choose
from vauban.training.losses.attacks import Objective, gradient, same_statistics

BASELINES = ("undefended", "binarised", "linf-adversarial", "linf-provable", "wasserstein-adversarial")


@dataclass(frozen=True)
class BaselineRecipe:
    """How a baseline is trained: Adam at `lr` for `epochs`, against changes within `epsilon`.

    `epsilon` is the largest change of a number (linf-adversarial, linf-provable), or pixels moved by the whole mass
    (wasserstein-adversarial, ground metric l2). It grows to its value over the first half of the training. `steps`: how
    many the attack on an adversarial baseline takes.
    """

    epochs: int = 5
    batch: int = 128
    lr: float = 1e-3
    epsilon: float = 0.1
    steps: int = 7


def train_baseline(
    name: str,
    network: torch.nn.Module,
    x: torch.Tensor,
    labels: torch.Tensor,
    recipe: BaselineRecipe | None = None,
    *,
    seed: int = 0,
) -> torch.nn.Module:
    """Train a network on uint8 or float pictures x [n, ...] with labels [n], in place, and return the classifier of [0, 1].

    "undefended": plain cross-entropy. "binarised": numbers are 0 below 0.5 and 1 from there on, also at test time.
    "linf-adversarial" and "wasserstein-adversarial": cross-entropy on adversarial pictures.
    "linf-provable": cross-entropy on pictures and, with a weight that grows to 1/2 as epsilon grows to its value, on the
    worst scores that interval bounds allow [Gowal2018]; the network is one of which `intervals` knows all layers.
    """
    recipe = recipe or BaselineRecipe()
    choose("baseline", name, BASELINES)
    if len(x) != len(labels) or len(x) == 0:
        raise BadInput(f"{len(x)} pictures and {len(labels)} labels: as many of both, one or more, are needed")
    model = Binarised(network) if name == "binarised" else network
    attack = {"linf-adversarial": ascend_linf, "wasserstein-adversarial": ascend_wasserstein}.get(name)
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    random = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.lr)
    steps, done = recipe.epochs * -(-len(x) // recipe.batch), 0
    model.train()
    for _ in range(recipe.epochs):
        for rows in torch.randperm(len(x), generator=random).split(recipe.batch):
            pictures, wanted = _unit(x[rows]).to(device), labels[rows].to(device)
            grown = min(1.0, 2 * (done + 1) / steps)
            if attack is not None:
                pictures = _changed(model, pictures, wanted, attack, grown * recipe.epsilon, recipe.steps)
            loss = cross_entropy(model(pictures), wanted)
            if name == "linf-provable":
                worst = worst_scores(model, pictures, wanted, grown * recipe.epsilon)
                loss = (1 - grown / 2) * loss + grown / 2 * cross_entropy(worst, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
    return model.eval()


class Binarised(torch.nn.Module):
    """A network that sees numbers as 0 or 1; gradients pass as if it saw them as they are."""

    def __init__(self, network: torch.nn.Module):
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores [b, classes] of pictures [b, ...]."""
        return self.network((x >= 0.5).to(x.dtype) + (x - x.detach()))


def binarised(network: str, **sides: Any) -> Binarised:
    """A binarised network with fresh weights, for `--model 'vauban.attacks.baselines:binarised:network=wong-mnist,…'`.

    >>> binarised("cnn-small", channels=1, classes=10)(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    return Binarised(build(Spec(network, {key: str(value) for key, value in sides.items()})))


def saved_as(name: str, spec: str) -> str:
    """The text form of a baseline whose network has this one."""
    if name != "binarised":
        return spec
    own = Spec.parse(spec)
    return str(Spec(f"{__name__}:binarised", {"network": own.name, **own.params}))


Ascent = Callable[[Objective, torch.Tensor, float, int], torch.Tensor]


def ascend_linf(objective: Objective, x: torch.Tensor, epsilon: float, steps: int) -> torch.Tensor:
    """Pictures in [0, 1] within L-infinity distance `epsilon` of x, by steps of 2.5 epsilon / steps along the gradient's sign."""
    moved = x
    for _ in range(steps):
        wanted = moved + 2.5 * epsilon / steps * gradient(objective, moved).sign()
        moved = torch.minimum(torch.maximum(wanted, x - epsilon), x + epsilon).clamp(0, 1)
    return moved


def ascend_wasserstein(objective: Objective, x: torch.Tensor, epsilon: float, steps: int) -> torch.Tensor:
    """Pictures of the mass of x within 1-Wasserstein distance `epsilon` (ground metric l2) of it, by Frank-Wolfe steps. [Wu2020]

    Numbers may be above 1: mass is moved, and not cut off.
    """
    own = as_planes(x).double()
    mass = own.sum((1, 2, 3), keepdim=True).clamp(min=torch.finfo(own.dtype).tiny)
    start, radius = own / mass, own.new_full((len(x),), epsilon)
    moved = start
    for k in range(steps):
        slope = as_planes(gradient(objective, (moved * mass).float().view_as(x))).double()
        best, _ = best_plan(start, slope, radius, Window(5, "l2"))
        moved = moved + 2 / (k + 2) * (best - moved)
    return (moved * mass).float().view_as(x)


def _changed(
    model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor, attack: Ascent, epsilon: float, steps: int
) -> torch.Tensor:
    with same_statistics(model) as own:

        def objective(moved: torch.Tensor) -> torch.Tensor:
            return cross_entropy(own(moved), labels, reduction="sum")

        return attack(objective, x, epsilon, steps).detach()


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x.float() / LEVELS if x.dtype == torch.uint8 else x.float()
