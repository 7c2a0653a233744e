"""ContinuousSeek is learned: two dimensions by small networks, five as in the thesis except for an earlier start."""

from __future__ import annotations

from pathlib import Path

import pytest

from vauban.rl.curves import read_run
from vauban.rl.recipes import Plan
from vauban.rl.training import open_run, train_seed

FIVE = Plan(
    "reengage-ddpg",
    "ContinuousSeek-v0:dim=5",
    {"goal_weight": 0.1, "learning_starts": 500},
    steps=2_200,
    every=1_100,
    episodes=300,
)
TWO = Plan(
    "reengage-ddpg",
    "ContinuousSeek-v0:dim=2",
    {"goal_weight": 0.1, "learning_starts": 200, "net_arch": [64, 64], "batch_size": 128, "learning_rate": 3e-3},
    steps=900,
    every=450,
    episodes=300,
)


@pytest.mark.slow
@pytest.mark.parametrize("asked", [TWO, FIVE], ids=lambda asked: asked.env)
def test_reaching_a_point_is_learned(asked: Plan, tmp_path: Path) -> None:
    open_run(tmp_path, asked, "ReenGAGE")
    assert train_seed(tmp_path, asked, 0)
    success = read_run(tmp_path).values[0]
    assert success[0] < 0.02, "by chance no goal is reached"
    assert success[-1] > 0.3
