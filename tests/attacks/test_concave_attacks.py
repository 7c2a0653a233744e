"""Attacks in elementwise-concave metrics: linear classifiers give the optimum of all sets of numbers, certificates hold."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.attacks.base import BaseTarget, SmoothedTarget, build
from vauban.attacks.concave.elementwise import concave_threat, cost_of, into_star
from vauban.attacks.distances import distance
from vauban.errors import BadInput
from vauban.threats import L2, lp

NUMBERS = 8


class Weighted(torch.nn.Module):
    """Class 1 where a weighted sum is above a bound."""

    def __init__(self, weights: torch.Tensor, bound: float):
        super().__init__()
        self.weights, self.bound = torch.nn.Parameter(weights), bound

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        margin = x.flatten(1) @ self.weights - self.bound
        return torch.stack([-margin, margin], dim=1)


def world() -> tuple[torch.Tensor, torch.Tensor, float]:
    random = torch.Generator().manual_seed(0)
    weights, x = torch.randn(NUMBERS, generator=random), torch.rand(4, NUMBERS, generator=random)
    x[0] = 0.5
    x = (x * 255).round() / 255
    return x, weights, float((x @ weights).max()) + 0.6


def least_size(x: np.ndarray, weights: np.ndarray, bound: float, p: float) -> float:
    """The least Lp size of a change to the bound: all but one of the changed numbers go to the end of their range."""
    room, size, best = np.where(weights > 0, 1 - x, x), np.abs(weights), np.inf
    for last in range(NUMBERS):
        others = [i for i in range(NUMBERS) if i != last]
        for count in range(NUMBERS):
            for full in itertools.combinations(others, count):
                rest = max(0.0, bound - x @ weights - sum(size[i] * room[i] for i in full)) / size[last]
                if rest <= room[last] + 1e-12:
                    best = min(best, sum(room[i] ** p for i in full) + rest**p)
    return float(best ** (1 / p))


@pytest.mark.parametrize("p", [Fraction(1, 3), Fraction(1, 2), Fraction(1)])
@pytest.mark.parametrize(("text", "within"), [("coordinates:halvings=14", 1.1), ("star", 1.4)])
def test_linear_classifiers_give_nearly_the_optimum(text: str, within: float, p: Fraction) -> None:
    x, weights, bound = world()
    least = np.array([least_size(row.double().numpy(), weights.double().numpy(), bound, float(p)) for row in x])
    target = BaseTarget(Weighted(weights, bound), 2, levels=None)
    found = build(text).run(target, x, torch.zeros(4, dtype=torch.long), lp(p), 0)
    assert (found.distance >= least * (1 - 1e-4)).all()
    assert (found.distance <= least * within).all()
    assert np.allclose(found.distance, distance(x, found.x, lp(p)))


def test_a_star_holds_every_projection() -> None:
    random = torch.Generator().manual_seed(1)
    change, radius = torch.randn(50, 20, generator=random), 5 * torch.rand(50, generator=random)
    for p in (0.3, 0.5, 1.0):
        made = into_star(change, radius, p)
        assert (made.double().abs().pow(p).sum(1).pow(1 / p) <= radius.double() * (1 + 1e-5)).all()
        assert (made * change >= 0).all()
        assert (made.abs() <= change.abs()).all()
    assert torch.allclose(into_star(change, torch.full((50,), 1e6), 0.5), change)


@pytest.mark.parametrize("text", ["coordinates", "star"])
def test_no_exact_fractional_certificate_is_violated(text: str) -> None:
    x, weights, bound = world()
    model = Weighted(torch.cat([weights, weights]), 2 * bound - 2.5)
    smoothed = vb.SmoothedClassifier(model, "fractional:p=1/2,budget=60", num_classes=2)
    pictures = x.view(4, 1, 2, 4)
    certs = smoothed.certify(pictures, progress=False)
    target = SmoothedTarget(smoothed, pictures.shape[1:], views=32)
    labels = torch.from_numpy(np.asarray(certs.label, dtype=np.int64))
    found = build(text).run(target, pictures, labels, smoothed.smoothing.threat, 0)
    sure = ~np.asarray(certs.abstained)
    assert np.isfinite(found.distance[sure]).any()
    assert (found.distance[sure] > np.asarray(certs.radius)[sure]).all()


def test_own_concave_metrics_are_attacked_and_their_certificates_hold() -> None:
    x, weights, bound = world()
    smoothing = vb.Concave(lambda z: 0.25 * z + 0.75 * z**0.5, budget=60)
    smoothed = vb.SmoothedClassifier(Weighted(torch.cat([weights, weights]), 2 * bound - 2.5), smoothing, num_classes=2)
    pictures = x.view(4, 1, 2, 4)
    threat = concave_threat(smoothing.law)
    certs = smoothed.certify(pictures, progress=False)
    labels = torch.from_numpy(np.asarray(certs.label, dtype=np.int64))
    found = build("coordinates").run(
        SmoothedTarget(smoothed, pictures.shape[1:], views=32), pictures, labels, threat, 0
    )
    change = (found.x - pictures).abs().flatten(1).double().numpy()
    g = (0.25 * change + 0.75 * change**0.5).sum(1)
    hit, sure = np.isfinite(found.distance), ~np.asarray(certs.abstained)
    assert (hit & sure).any()
    assert np.allclose(found.distance[hit], g[hit], atol=1e-6)
    assert (found.distance[sure] > np.asarray(certs.radius)[sure]).all()
    attacked = vb.attack(smoothed, pictures, certificates=certs, views=32, seed=0, progress=False)
    assert attacked.threat == threat
    assert np.isfinite(attacked.distance).any()
    assert not attacked.alarms


def test_other_metrics_are_refused() -> None:
    x, weights, bound = world()
    assert cost_of(L2) is None
    with pytest.raises(BadInput, match="coordinates"):
        build("coordinates").run(BaseTarget(Weighted(weights, bound), 2), x, torch.zeros(4, dtype=torch.long), L2, 0)
