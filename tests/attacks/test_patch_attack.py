"""Patch attacks: with every place tried they find what enumeration finds; signed gradients in L-infinity."""

import itertools

import numpy as np
import pytest
import torch
from amounts import some_slow

import vauban as vb
from vauban.attacks.base import BaseTarget, SmoothedTarget, build
from vauban.attacks.distances import distance
from vauban.errors import BadInput
from vauban.threats import LINF, PATCH


class Weighted(torch.nn.Module):
    """Class 1 where a weighted sum of all numbers is above a bound."""

    def __init__(self, weights: torch.Tensor, bound: float):
        super().__init__()
        self.weights, self.bound = torch.nn.Parameter(weights), bound

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        margin = x.flatten(1) @ self.weights.flatten() - self.bound
        return torch.stack([-margin, margin], dim=1)


def zeros(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(x), dtype=torch.long)


def world(seed: int, views: int = 1) -> tuple[torch.Tensor, Weighted]:
    """Two-level pictures 4 x 4 and a linear classifier that calls most of them class 0."""
    random = torch.Generator().manual_seed(seed)
    x = (torch.rand(8, 1, 4, 4, generator=random) > 0.5).float()
    weights = torch.randn(views, 4, 4, generator=random)
    shown = torch.cat([x, 1 - x], dim=1) if views == 2 else x
    return x, Weighted(weights, float((shown.flatten(1) @ weights.flatten()).max()) + 0.5)


def smallest_patch(target: BaseTarget | SmoothedTarget, x: torch.Tensor, most: int) -> list[float]:
    """The side of the smallest square whose two-level contents change the answer 0, by trying all places and contents."""
    found = []
    for picture in x:
        best = np.inf
        for side in range(1, most + 1):
            contents = torch.tensor(list(itertools.product([0.0, 1.0], repeat=side * side))).view(-1, side, side)
            for top, left in itertools.product(range(5 - side), repeat=2):
                tried = picture.repeat(len(contents), 1, 1, 1)
                tried[:, 0, top : top + side, left : left + side] = contents
                if bool(target.adversarial(tried, zeros(tried)).any()):
                    best = min(best, side)
        found.append(best)
    return found


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_place_finds_what_enumeration_finds(seed: int) -> None:
    x, model = world(seed)
    target = BaseTarget(model, 2)
    attack = build("patch-ifgsm:size=1,largest=3,places=0,steps=25,together=4")
    found = attack.run(target, x, zeros(x), PATCH, 0)
    assert found.distance.tolist() == smallest_patch(target, x, 3)
    hit = torch.from_numpy(np.isfinite(found.distance))
    assert bool(hit.any())
    assert (distance(x, found.x, PATCH)[hit] == found.distance[hit]).all()


@pytest.mark.parametrize(
    "smoothing", some_slow(["band:size=2", "block:size=2", "band:size=1,threshold=0.6"], quick=[0, 2])
)
def test_no_exact_patch_certificate_is_violated(smoothing: str) -> None:
    x, model = world(3, views=2)
    model.bound *= 0.3
    smoothed = vb.SmoothedClassifier(model, smoothing, num_classes=2)
    certs = smoothed.certify(x, progress=False)
    labels = torch.from_numpy(np.asarray(certs.label, dtype=np.int64))
    target = SmoothedTarget(smoothed, x.shape[1:])
    found = build("patch-ifgsm:size=1,largest=4,places=0,steps=15").run(target, x, labels, PATCH, 0)
    sure = ~np.asarray(certs.abstained)
    assert np.isfinite(found.distance[sure]).any()
    assert (found.distance[sure] > np.asarray(certs.radius)[sure]).all()


def test_rectangles_change_nothing_outside_and_count_as_their_square() -> None:
    x, model = world(0)
    model.bound = float((x.flatten(1) @ model.weights.detach().flatten()).max()) + 0.01
    found = build("patch-ifgsm:height=1,width=3,places=0,steps=25").run(BaseTarget(model, 2), x, zeros(x), PATCH, 0)
    hit = np.isfinite(found.distance)
    assert hit.any()
    assert (found.distance[hit] <= 3).all()
    changed = (found.x != x)[torch.from_numpy(hit)][:, 0]
    assert int(changed.any(dim=2).sum(dim=1).max()) == 1


def test_random_places_are_drawn_without_repetition_and_from_the_seed() -> None:
    x, model = world(1)
    attack = build("patch-ifgsm:size=2,places=3,steps=3")
    first, again = (attack.run(BaseTarget(model, 2), x, zeros(x), PATCH, seed=4) for _ in range(2))
    assert torch.equal(first.x, again.x)
    corners = attack._places(x, 2, 2, torch.Generator().manual_seed(0))  # type: ignore[attr-defined]
    assert len(corners) == len(corners.unique(dim=0)) == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("patch-ifgsm:height=2", "needs both"),
        ("patch-ifgsm:height=2,width=2,largest=3", "leave it out"),
        ("patch-ifgsm:steps=0", "at least 1"),
    ],
)
def test_bad_parameters_are_refused(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        build(text)


def test_a_patch_must_fit_and_needs_a_picture() -> None:
    x, model = world(0)
    with pytest.raises(BadInput, match="does not fit"):
        build("patch-ifgsm:size=5").run(BaseTarget(model, 2), x, zeros(x), PATCH, 0)
    with pytest.raises(BadInput, match="pictures"):
        build("patch-ifgsm").run(BaseTarget(model, 2), x.flatten(1), zeros(x), PATCH, 0)


def test_signed_gradients_reach_the_linf_distance_of_a_linear_classifier() -> None:
    random = torch.Generator().manual_seed(0)
    weights, x = torch.randn(12, generator=random), 0.5 + 0.1 * torch.rand(4, 12, generator=random)
    model = Weighted(weights, float((x @ weights).max()) + 0.2)
    least = (model.bound - x @ weights) / weights.abs().sum()
    found = build("ifgsm:steps=100").run(BaseTarget(model, 2, levels=None), x, zeros(x), LINF, 0)
    assert (found.distance >= least.numpy() - 1e-6).all()
    assert (found.distance <= least.numpy() + 0.5 / 255 + 1e-6).all()
