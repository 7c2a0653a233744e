"""The benchmark of training measures both loops and their ratio."""

import pytest

from vauban.bench.train import measure
from vauban.training import Recipe


def test_both_loops_are_measured() -> None:
    told: list[int] = []
    recipe = Recipe(batch=4, augment="crop-flip", ema=0.5, optimizer="sgd", lr=0.01)
    found = measure("mlp:width=4", "gaussian:sigma=0.25", recipe, 20, 0.02, "cpu", False, told.append)
    assert found["bare"] > 0
    assert found["seconds_an_epoch"] == pytest.approx(20 / found["vauban"])
    assert found["vauban_to_bare"] > 0
    assert (found["model"], found["batch"]) == ("mlp:features=3072,classes=10,width=4,depth=2", 4)
