"""Baselines: each trains, the binarised one sees two levels, and adversarial training costs its attacker more."""

import numpy as np
import pytest
import torch

from vauban.attacks.base import BaseTarget, build
from vauban.attacks.baselines import BASELINES, BaselineRecipe, ascend_linf, ascend_wasserstein, train_baseline
from vauban.attacks.wasserstein.transport import wasserstein
from vauban.errors import BadInput
from vauban.threats import LINF, WASSERSTEIN_L2


def world(count: int = 192) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures 4 x 4 whose class is the half that is brighter."""
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (count,), generator=random)
    x = 0.3 + 0.4 * torch.rand(count, 1, 4, 4, generator=random)
    sides = torch.stack([labels == 0, labels == 1], dim=1)[:, None, None].repeat_interleave(2, dim=3)
    return (x + 0.25 * sides.expand_as(x)).clamp(0, 1), labels


def network(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_learns(name: str) -> None:
    x, labels = world()
    model = train_baseline(
        name, network(), x, labels, BaselineRecipe(epochs=6, batch=32, lr=0.02, epsilon=0.03, steps=2)
    )
    assert not model.training
    with torch.no_grad():
        assert (model(x).argmax(1) == labels).float().mean() > 0.9


def test_a_binarised_classifier_sees_two_levels() -> None:
    x, labels = world(32)
    model = train_baseline("binarised", network(), x, labels, BaselineRecipe(epochs=1))
    with torch.no_grad():
        assert torch.equal(model(x), model((x >= 0.5).float()))


def test_adversarial_training_keeps_answers_within_its_epsilon() -> None:
    """One pixel tells the class by much, but not always; the others always, but by little."""
    random = torch.Generator().manual_seed(2)
    labels = torch.randint(2, (256,), generator=random)
    signs = 2.0 * labels - 1
    x = 0.5 + 0.04 * signs[:, None, None, None] + 0.02 * torch.randn(256, 1, 4, 4, generator=random)
    x[:, 0, 0, 0] = 0.5 + 0.15 * signs * torch.where(torch.rand(256, generator=random) < 0.2, -1, 1)
    kept = {}
    for name in ("undefended", "linf-adversarial"):
        recipe = BaselineRecipe(epochs=60, batch=64, lr=0.03, epsilon=0.06, steps=4)
        target = BaseTarget(train_baseline(name, network(), x, labels, recipe), 2, levels=None)
        found = build("ifgsm:steps=40").run(target, x, labels, LINF, 0)
        kept[name] = float((found.distance > 0.05).mean())
    assert kept["linf-adversarial"] > kept["undefended"] + 0.3


@pytest.mark.slow
def test_wasserstein_attacks_need_more_after_adversarial_training() -> None:
    x, labels = world()
    x[:, 0, 0, 0] = 0.5 + 0.02 * (2.0 * labels - 1)
    far = {}
    for name in ("undefended", "wasserstein-adversarial"):
        recipe = BaselineRecipe(epochs=25, batch=32, lr=0.01, epsilon=0.08, steps=4)
        target = BaseTarget(train_baseline(name, network(), x, labels, recipe), 2, levels=None)
        found = build("frank-wolfe:every=1,steps=60").run(target, x[:48], labels[:48], WASSERSTEIN_L2, 0)
        far[name] = np.median(found.distance)
    assert far["wasserstein-adversarial"] > 1.1 * far["undefended"]


def test_training_attacks_stay_in_their_balls() -> None:
    x, _ = world(8)
    random = torch.Generator().manual_seed(1)
    weights = torch.randn(16, generator=random)

    def objective(moved: torch.Tensor) -> torch.Tensor:
        return (moved.flatten(1) @ weights).sum()

    linf, moved = ascend_linf(objective, x, 0.1, 5), ascend_wasserstein(objective, x, 0.05, 5)
    assert float((linf - x).abs().max()) <= 0.1 + 1e-6
    assert (wasserstein(x, moved, "l2") <= 0.05 * (1 + 1e-4)).all()
    assert (objective(linf) > objective(x)) & (objective(moved) > objective(x))


def test_bad_input_is_refused() -> None:
    x, labels = world(4)
    with pytest.raises(BadInput, match="baseline"):
        train_baseline("none", network(), x, labels)
    with pytest.raises(BadInput, match="as many"):
        train_baseline("undefended", network(), x, labels[1:])
