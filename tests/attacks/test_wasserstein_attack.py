"""Wasserstein attacks: projections stay in the ball, distances are exact, linear classifiers give the optimum."""

import itertools
import sys

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import linprog

import vauban as vb
from vauban.attacks.base import BaseTarget, SmoothedTarget, build
from vauban.attacks.distances import distance
from vauban.attacks.wasserstein.sinkhorn import project
from vauban.attacks.wasserstein.transport import Window, best_plan, wasserstein
from vauban.errors import BadInput
from vauban.threats import WASSERSTEIN, WASSERSTEIN_L2

GROUNDS = {"l1": WASSERSTEIN, "l2": WASSERSTEIN_L2}


class Shares(torch.nn.Module):
    """Class 1 where a weighted sum of the shares of the mass is above a bound; negative numbers count as they are."""

    def __init__(self, weights: torch.Tensor, bound: float):
        super().__init__()
        self.weights, self.bound = torch.nn.Parameter(weights), bound

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        margin = x.flatten(1) / x.flatten(1).sum(1, keepdim=True) @ self.weights - self.bound
        return torch.stack([-margin, margin], dim=1) * 20


def costs(side: int, ground: str) -> np.ndarray:
    places = np.array(list(itertools.product(range(side), range(side))), dtype=float)
    step = places[:, None] - places[None]
    return np.abs(step).sum(2) if ground == "l1" else np.sqrt((step**2).sum(2))


def least_cost(shares: np.ndarray, weights: np.ndarray, bound: float, ground: str) -> float:
    """The least cost of a plan from `shares` to a picture whose weighted sum is `bound`: a linear program."""
    n = len(shares)
    rows = np.kron(np.eye(n), np.ones(n))
    cost = costs(int(n**0.5), ground).ravel()
    return float(linprog(cost, A_ub=[-np.tile(weights, n)], b_ub=[-bound], A_eq=rows, b_eq=shares).fun)


def world(seed: int = 0, count: int = 4) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Pictures 3 x 3, weights, and a bound that all pictures are below."""
    random = torch.Generator().manual_seed(seed)
    x, weights = torch.rand(count, 1, 3, 3, generator=random), torch.rand(9, generator=random)
    x = (x * 255).round() / 255
    sums = (x / x.sum((1, 2, 3), keepdim=True)).flatten(1) @ weights
    return x, weights, float(sums.max()) + 0.02


@pytest.mark.parametrize("ground", ["l1", "l2"])
def test_projection_is_inside_the_ball_and_its_plan_bounds_the_exact_distance(ground: str) -> None:
    random = torch.Generator().manual_seed(1)
    x = torch.rand(3, 2, 4, 5, generator=random, dtype=torch.float64)
    x[0, 0, :2] = 0
    x = x / x.sum((1, 2, 3), keepdim=True)
    wanted = x + 0.1 * torch.randn(x.shape, generator=random, dtype=torch.float64)
    radius = torch.tensor([0.01, 0.05, 0.2], dtype=torch.float64)
    moved = project(x, wanted, radius, Window(5, ground))
    exact = wasserstein(x, moved.pictures, ground)
    assert (moved.cost <= radius * (1 + 1e-9)).all()
    assert (exact <= moved.cost.numpy() * (1 + 1e-9)).all()
    assert (exact >= 0.8 * radius.numpy()).all()
    assert torch.allclose(moved.pictures.sum((2, 3)), x.sum((2, 3)))
    assert (((moved.pictures - wanted) ** 2).sum((1, 2, 3)) < ((x - wanted) ** 2).sum((1, 2, 3))).all()


def test_a_projection_of_what_is_inside_is_near_it() -> None:
    random = torch.Generator().manual_seed(2)
    x = torch.rand(2, 1, 4, 4, generator=random, dtype=torch.float64)
    x = x / x.sum((1, 2, 3), keepdim=True)
    wanted = 0.9 * x + 0.1 * x.roll(1, dims=3)
    moved = project(x, wanted, torch.full((2,), 1.0, dtype=torch.float64), Window(5, "l1"), entropy=1e3, iterations=300)
    assert (moved.pictures - wanted).abs().max() < 0.01 < (x - wanted).abs().max()


@pytest.mark.parametrize("ground", ["l1", "l2"])
def test_distances_are_those_of_whole_plans(ground: str) -> None:
    random = torch.Generator().manual_seed(3)
    x, y = (torch.rand(5, 1, 3, 3, generator=random) for _ in range(2))
    a, b = ((p.double() / p.double().sum((1, 2, 3), keepdim=True)).flatten(1).numpy() for p in (x, y))
    whole = [float(ot.emd2(i / i.sum(), j / j.sum(), costs(3, ground))) for i, j in zip(a, b, strict=True)]
    assert np.allclose(distance(x, y, GROUNDS[ground]), whole, rtol=1e-9)
    assert np.allclose(distance(x, 3 * y, GROUNDS[ground]), whole, rtol=1e-6)


@pytest.mark.parametrize("ground", ["l1", "l2"])
def test_the_best_plan_is_that_of_the_linear_program(ground: str) -> None:
    random = torch.Generator().manual_seed(5)
    x, slope = (torch.rand(4, 1, 3, 3, generator=random, dtype=torch.float64) for _ in range(2))
    x = x / x.sum((1, 2, 3), keepdim=True)
    radius = torch.tensor([0.0, 0.05, 0.3, 5.0], dtype=torch.float64)
    made, cost = best_plan(x, slope, radius, Window(5, ground))
    assert (cost <= radius * (1 + 1e-9)).all()
    assert (wasserstein(x, made, ground) <= cost.numpy() + 1e-12).all()
    for i in range(4):
        gain, price = slope[i].flatten().numpy(), costs(3, ground).ravel()
        rows = np.kron(np.eye(9), np.ones(9))
        best = linprog(-np.tile(gain, 9), A_ub=[price], b_ub=[radius[i]], A_eq=rows, b_eq=x[i].flatten().numpy())
        assert np.isclose(made[i].flatten().numpy() @ gain, -best.fun, atol=1e-9)


def test_mass_that_changes_its_channel_is_infinitely_far() -> None:
    x = torch.ones(1, 2, 2, 2)
    y = x.clone()
    y[0, 0] *= 1.01
    assert distance(x, y, WASSERSTEIN).tolist() == [np.inf]


def test_large_pictures_are_bounded_from_above() -> None:
    random = torch.Generator().manual_seed(4)
    x, y = (torch.rand(1, 1, 8, 9, generator=random) for _ in range(2))
    exact = distance(x, y, WASSERSTEIN)
    from vauban.attacks.wasserstein import transport

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "EXACT_PIXELS", 10)
        assert distance(x, y, WASSERSTEIN) >= exact


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(BadInput, match=r"vauban\[attacks\]"):
        distance(torch.eye(2)[None], torch.ones(1, 2, 2), WASSERSTEIN)


@pytest.mark.parametrize(
    ("text", "ground", "levels", "within"),
    [
        ("wasserstein:iterations=15,entropy=60,steps=50,every=2,factor=1.2", "l1", None, 1.4),
        ("wasserstein:iterations=15,entropy=60,steps=50,every=2,factor=1.2,direction=gradient", "l2", 255, 1.4),
        ("frank-wolfe:every=1,steps=60", "l1", None, 1.02),
        ("frank-wolfe:every=1,steps=60", "l2", 255, 1.05),
    ],
)
def test_linear_classifiers_give_nearly_the_optimum(text: str, ground: str, levels: int | None, within: float) -> None:
    x, weights, bound = world()
    least = [least_cost(p, weights.numpy(), bound, ground) for p in _shares(x)]
    target = BaseTarget(Shares(weights, bound), 2, levels=levels)
    found = build(text).run(target, x, torch.zeros(len(x), dtype=torch.long), GROUNDS[ground], 0)
    assert (found.distance >= np.array(least) * (1 - 1e-6)).all()
    assert (found.distance <= np.array(least) * within).all()
    assert np.allclose(found.distance, distance(x, found.x, GROUNDS[ground]))
    assert target.adversarial(found.x, torch.zeros(len(x), dtype=torch.long)).all()
    if levels:
        assert torch.equal((found.x * levels).round() / levels, found.x)


@pytest.mark.parametrize("text", ["wasserstein:iterations=10,entropy=60", "frank-wolfe"])
def test_no_flow_certificate_is_violated(text: str) -> None:
    x, weights, bound = world(count=6)
    smoothed = vb.SmoothedClassifier(Shares(weights, bound), vb.Flow(sigma=0.05), num_classes=2)
    certs = smoothed.certify(x, n=2_000, alpha=1e-4, seed=1, progress=False)
    target = SmoothedTarget(smoothed, x.shape[1:], levels=None, views=32, votes=400, confirm_votes=4_000)
    labels = torch.from_numpy(np.asarray(certs.label, dtype=np.int64))
    found = build(f"{text}{',' if ':' in text else ':'}steps=25,factor=1.4,every=2").run(
        target, x, labels, WASSERSTEIN, 0
    )
    answers = target.confirm(found.x, seed=5)[0][:, 0]
    moved = np.isfinite(found.distance) & (answers != labels.numpy()) & (answers >= 0) & ~certs.abstained
    assert moved.any()
    assert (found.distance[moved] >= np.asarray(certs.radius)[moved]).all()


@pytest.mark.parametrize("text", ["wasserstein:window=4", "wasserstein:direction=up", "wasserstein:steps=0"])
def test_bad_parameters_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        build(text)


def _shares(x: torch.Tensor) -> np.ndarray:
    return (x.double() / x.double().sum((1, 2, 3), keepdim=True)).flatten(1).numpy()
