"""Searches that do more are never weaker, paths aim at other classes, and pixels are put back in the right order."""

from typing import Any

import numpy as np
import pytest
import torch
from linear_worlds import linear_world

import vauban as vb
from vauban.attacks.base import ATTACKS, BaseTarget, SmoothedTarget, Target, build
from vauban.attacks.l0.resets import reset_groups
from vauban.attacks.l0.units import changed
from vauban.attacks.running import DEFAULTS, _defaults
from vauban.attacks.targets import _needed_lead
from vauban.threats import L0, L1, L2, LINF, PATCH, Threat, lp, named

SEARCH: dict[str, Any] = {"votes": 400, "confirm_votes": 2_000, "seed": 1, "progress": False}


def network(pixels: int = 16, classes: int = 3) -> torch.nn.Module:
    """A small network whose answers are not linear."""
    torch.manual_seed(3)
    layers = torch.nn.Linear(pixels, 24), torch.nn.ReLU(), torch.nn.Linear(24, classes)
    with torch.no_grad():
        layers[0].weight.mul_(4)
        layers[2].weight.mul_(4)
    return torch.nn.Sequential(torch.nn.Flatten(), *layers)


@pytest.mark.parametrize(
    ("less", "more", "threat"),
    [
        ("minimal:steps=10,restarts=1", "minimal:steps=30,restarts=1", L2),
        ("minimal:steps=10,restarts=1", "minimal:steps=10,restarts=4", L1),
        ("pgd:steps=20,inner=5", "pgd:steps=60,inner=5", LINF),
        ("pgd:steps=20,inner=5", "pgd:steps=20,inner=5,restarts=3", L2),
        ("random:steps=20", "random:steps=80", L2),
        ("pointwise:restarts=1", "pointwise:restarts=4", L0),
        ("sparse:steps=20", "sparse:steps=80", L0),
        ("saliency:steps=3", "saliency:steps=30", L0),
        ("ifgsm:steps=5,step=0.02", "ifgsm:steps=40,step=0.02", LINF),
        ("patch-ifgsm:size=2,places=1,steps=5", "patch-ifgsm:size=2,places=6,steps=5", PATCH),
        ("star:steps=30", "star:steps=90", lp(1 / 2)),
    ],
)
def test_more_steps_and_restarts_are_never_weaker(less: str, more: str, threat: Threat) -> None:
    x = torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    x = (x * 255).round() / 255
    smoothed = vb.SmoothedClassifier(network(), "gaussian:sigma=0.1", num_classes=3)
    targets: list[Target] = [BaseTarget(network(), 3)]
    if less.split(":")[0] in ("minimal", "pointwise"):
        targets.append(SmoothedTarget(smoothed, x.shape[1:], views=4, votes=150))
    for target in targets:
        labels = target.hard(x).argmax(dim=1)
        few, many = (build(text).run(target, x, labels, threat, 5).distance for text in (less, more))
        assert (many <= few).all(), (few, many)


@pytest.mark.parametrize(
    ("smoothing", "attack"), [("gaussian:sigma=0.2", "minimal:steps=15"), ("ablation:retained=6", "saliency")]
)
def test_four_times_the_views_contain_the_search_with_fewer(smoothing: str, attack: str) -> None:
    x = torch.randint(256, (6, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)).numpy()
    base = network(32 if smoothing.startswith("ablation") else 16)
    smoothed = vb.SmoothedClassifier(base, smoothing, num_classes=3)
    few, many = (vb.attack(smoothed, x, attacks=attack, views=views, **SEARCH) for views in (4, 16))
    assert np.isfinite(few.distance).any()
    assert (many.distance <= few.distance).all(), (few.distance, many.distance)


def test_gradients_of_fewer_views_are_those_of_the_first() -> None:
    smoothed = vb.SmoothedClassifier(network(), "gaussian:sigma=0.2", num_classes=3)
    x = torch.rand(2, 1, 4, 4)
    many, few = (SmoothedTarget(smoothed, x.shape[1:], views=views, votes=10, seed=4) for views in (64, 16))
    assert many.rungs == (4, 16, 64)
    with many.following(16):
        assert torch.equal(many.scores(x), few.scores(x))
    assert not torch.equal(many.scores(x), few.scores(x))


class Wedge(torch.nn.Module):
    """Class 1 is second best at the origin of [0, 1]^2 and far away, class 2 is third and near."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.zeros(len(x)), x[:, 0] - 0.8, 8 * x[:, 1] - 1.6], dim=1)


def test_a_second_path_aims_at_the_next_class() -> None:
    target, x = BaseTarget(Wedge(), 3, levels=None), torch.zeros(1, 2)
    labels = torch.zeros(1, dtype=torch.long)
    assert target.rivals(x, labels).tolist() == [[1, 2]]
    one, two = (build(f"minimal:steps=40,restarts={n}").run(target, x, labels, L2, 0).distance[0] for n in (1, 2))
    assert one == pytest.approx(0.8, rel=0.03)
    assert two == pytest.approx(0.2, rel=0.03)


def test_pixels_are_put_back_that_matter_least() -> None:
    world = linear_world(40, inputs=6, seed=2)
    target = BaseTarget(world.model, 2)
    direction = torch.where(world.labels == 0, 1.0, -1.0)[:, None] * world.normal
    far = torch.where(direction > 0, 1.0, 0.0)
    x = (world.x * 255).round() / 255
    less = reset_groups(target, x, far, world.labels, L0, torch.Generator().manual_seed(0), 2)
    assert bool(target.adversarial(less, world.labels).all())
    assert (changed(x, less, L0).sum(dim=1) <= world.nearest("l0") + 1).all()


def test_abstentions_count_where_they_are_asked_for() -> None:
    world = linear_world(6, inputs=4, seed=7)
    smoothed = vb.SmoothedClassifier(world.model, "gaussian:sigma=0.25", num_classes=2, arithmetic="float")
    x, y = world.x.numpy(), world.labels.numpy()
    certs = smoothed.certify(x, y, n=5_000, seed=1, progress=False)
    options = {"certificates": certs, "attacks": "minimal:steps=30,restarts=1", "views": 16, **SEARCH}
    answers = vb.attack(smoothed, x, y, **options)
    either = vb.attack(smoothed, x, y, abstain=0.001, **options)
    assert (either.distance < answers.distance).all()
    assert any(found is not None and not found.answer and found.abstained for found in either.results)
    assert not either.alarms
    assert set(either.adversarial()["answer"].flatten().tolist()) <= {-1, 0, 1}


def test_a_search_with_as_many_votes_as_decide_asks_for_what_they_do() -> None:
    assert _needed_lead(1_000, 10_000, None) == 3.0
    assert _needed_lead(10_000, 10_000, 0.05) == pytest.approx(-1.96, abs=0.001)
    assert _needed_lead(100, 10_000, 0.05) == pytest.approx(1 - 0.196, abs=0.001)


@pytest.mark.parametrize(
    "name", ["l2", "l1", "linf", "l0", "l0-features", "patch", "wasserstein", "wasserstein-l2", "l1/3"]
)
def test_every_threat_has_attacks_by_default(name: str) -> None:
    chosen = [build(text) for text in _defaults(named(name))]
    assert chosen
    assert all(one.fits(named(name)) for one in chosen)
    assert all(one.name in ATTACKS.names() for one in chosen)


def test_defaults_name_no_unknown_attack() -> None:
    assert all(build(text) for texts in DEFAULTS.values() for text in texts)
