"""Fixtures of the tests of vauban.rl."""

from __future__ import annotations

import pytest
from gymnasium import spaces

from vauban.rl.encoders import GoalImageEncoder, GoalSetEncoder
from vauban.rl.recipes import ENCODERS


class SmallSets(GoalSetEncoder):
    """Narrow layers and a short embedding."""

    def __init__(self, observation_space: spaces.Dict, hidden: tuple[int, ...] = (16, 16), embedding: int = 5):
        super().__init__(observation_space, hidden, embedding)


class SmallPictures(GoalImageEncoder):
    """A short embedding: most of the full network's weights are in its last layer."""

    def __init__(self, observation_space: spaces.Dict, embedding: int = 32):
        super().__init__(observation_space, embedding)


@pytest.fixture
def small_encoders(monkeypatch: pytest.MonkeyPatch) -> None:
    """`encoder=sets` and `encoder=pictures` choose small networks."""
    monkeypatch.setitem(ENCODERS, "sets", SmallSets)
    monkeypatch.setitem(ENCODERS, "pictures", SmallPictures)


@pytest.fixture(autouse=True)
def logs_of_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Agents that tests make by hand have Stable-Baselines3's own logger, which makes a folder for every training."""
    monkeypatch.setenv("SB3_LOGDIR", str(tmp_path_factory.getbasetemp() / "logs"))
