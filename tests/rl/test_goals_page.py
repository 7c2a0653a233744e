"""The example of docs/goals.md runs as it stands there, with fewer steps."""

import re
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from vauban.rl.recipes import make_world

PAGE = Path(__file__).parents[2] / "docs" / "goals.md"


@pytest.mark.slow
def test_the_example_for_an_environment_of_ones_own_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    assert "learn(20_000)" in code
    exec(compile(code.replace("learn(20_000)", "learn(140)"), str(PAGE), "exec"), names)
    assert names["agent"].num_timesteps == 140
    assert names["agent"].low_reward == -1
    assert make_world("Crane-v0") is not None
    assert gymnasium.make("Crane-v0").reset(seed=0)[0]["desired_goal"].shape == (2,)
