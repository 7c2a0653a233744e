"""Schedules against numbers worked out by hand, and the order of pictures."""

import math

import pytest
import torch

from vauban.errors import BadInput
from vauban.training import Recipe
from vauban.training.batches import Order


def rates(steps: int, **settings: object) -> list[float]:
    recipe = Recipe(**settings)  # type: ignore[arg-type]
    return [recipe.rate(step, steps) for step in range(steps)]


def test_constant() -> None:
    assert rates(3, schedule="constant", lr=0.5) == [0.5, 0.5, 0.5]
    found = rates(8, schedule="constant", lr=0.5, epochs=8, warmup=4)
    assert found == [0, 0.125, 0.25, 0.375, 0.5, 0.5, 0.5, 0.5]


def test_step_falls_at_its_epochs() -> None:
    found = rates(12, schedule="step:at=2/5,factor=0.1", lr=1.0, epochs=6)  # two steps an epoch
    assert found == pytest.approx([1, 1, 1, 1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.01, 0.01], abs=1e-15)


def test_cosine() -> None:
    found = rates(8, schedule="cosine", lr=2.0, warmup=0)
    cosines = [1, 0.96193977, 0.85355339, 0.69134172, 0.5, 0.30865828, 0.14644661, 0.03806023]
    assert found == pytest.approx([2 * (c + 1e-4) for c in cosines], abs=1e-7)
    rising = rates(40, schedule="cosine", lr=1.0)  # in a twentieth of all steps, two of them
    assert rising[0] == pytest.approx(1e-4)
    assert rising[1] == pytest.approx(0.5 * (0.5 + 0.5 * math.cos(math.pi / 40)) + 1e-4)


def test_onecycle_rises_for_three_tenths() -> None:
    found = rates(10, schedule="onecycle", lr=1.0)
    assert found[0] == pytest.approx(0.04)
    assert found[3] == pytest.approx(1.0)
    assert found[1] == pytest.approx(0.04 + 0.96 * 0.25)
    assert max(found) == found[3]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=11, pct_start=4 / 11)
    for rate in found:
        assert theirs.get_last_lr() == pytest.approx([rate], rel=1e-9)
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"lr": math.nan}, "lr=nan"),
        ({"schedule": "step"}, "step:at=30/60"),
        ({"schedule": "step:at=thirty"}, "step:at=30/60"),
        ({"schedule": "cosine:at=3"}, "step:at=30/60"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"optimizer": "adam"}, "adamw"),
        ({"ema": 1.0}, "from 0 to below 1"),
        ({"batch": 10, "accumulate": 3}, "does not divide"),
        ({"augment": "rotate"}, "augmentation"),
        ({"masks": "pixel"}, "masks"),
    ],
)
def test_bad_settings(settings: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Recipe(**settings)  # type: ignore[arg-type]


def test_every_picture_comes_once_in_an_epoch() -> None:
    order = Order(size=50, batch=15, seed=3)
    places = torch.cat([order.rows(step) for step in range(20)])  # six epochs, in steps that do not divide them
    for epoch in places.split(50):
        assert sorted(epoch.tolist()) == list(range(50))
    assert not torch.equal(places[:50], places[50:100])
    assert not torch.equal(places[:50], torch.cat([Order(50, 15, 4).rows(step) for step in range(4)])[:50])


def test_processes_share_a_step() -> None:
    whole = Order(size=50, batch=16, seed=3).rows(5)
    parts = [Order(size=50, batch=16, seed=3, rank=rank, world=4).rows(5) for rank in range(4)]
    assert torch.equal(torch.cat(parts), whole)


def test_a_batch_larger_than_the_data_has_every_picture_equally_often() -> None:
    rows = Order(size=4, batch=12, seed=0).rows(0)
    assert torch.bincount(rows).tolist() == [3, 3, 3, 3]
