"""ContinuousSeek in five dimensions is learned, with the thesis's settings except for an earlier start of learning."""

from __future__ import annotations

from pathlib import Path

from vauban.rl.curves import read_run
from vauban.rl.recipes import Plan
from vauban.rl.training import open_run, train_seed

ASKED = Plan(
    "reengage-ddpg",
    "ContinuousSeek-v0:dim=5",
    {"goal_weight": 0.1, "learning_starts": 500},
    steps=2_200,
    every=1_100,
    episodes=300,
)


def test_five_dimensions_are_learned(tmp_path: Path) -> None:
    open_run(tmp_path, ASKED, "ReenGAGE")
    assert train_seed(tmp_path, ASKED, 0)
    success = read_run(tmp_path).values[0]
    assert success[0] < 0.02, "by chance no goal is reached"
    assert success[-1] > 0.3
