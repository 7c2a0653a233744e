"""Worlds of somebody else: tests install this file as a package of its own, or run it as a script."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from vauban.rl.envs import World


class Line(World):
    """Walk along a line to a point of it; arrays only."""

    exploration_noise = 0.2
    training_steps = 60
    evaluation_interval = 30
    evaluation_episodes = 7

    def __init__(self, size: float = 2.0, horizon: int = 5):
        self.size, self.horizon = float(size), horizon
        place = spaces.Box(-self.size, self.size, (1,), np.float32)
        self.observation_space = spaces.Dict(observation=place, achieved_goal=place, desired_goal=place)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)

    def begin(self, copies: int, rng: np.random.Generator) -> dict[str, Any]:
        return {"place": np.zeros((copies, 1)), "goal": rng.uniform(-self.size, self.size, (copies, 1))}

    def move(self, state: Any, actions: Any, rng: Any) -> Any:
        return {**state, "place": np.clip(state["place"] + actions, -self.size, self.size)}

    def observe(self, state: Any) -> Any:
        return state["place"]

    def achieved(self, state: Any) -> Any:
        return state["place"]

    def reward(self, achieved: Any, desired: Any) -> Any:
        return np.where(np.abs(achieved - desired)[..., 0] < 0.5, 0.0, -1.0)


class Points(Line):
    """The same line with a set of up to `most` points, any of which will do; arrays only."""

    goal_set = True
    low_reward = 0.0

    def __init__(self, most: int = 3):
        super().__init__()
        self.most = most
        goals = spaces.Box(-self.size, self.size, (most, 2), np.float32)
        self.observation_space = spaces.Dict({**self.observation_space.spaces, "desired_goal": goals})

    def begin(self, copies: int, rng: np.random.Generator) -> dict[str, Any]:
        gates = (np.arange(self.most) < rng.integers(1, self.most + 1, (copies, 1))).astype(float)
        points = rng.uniform(-self.size, self.size, gates.shape) * gates
        return {"place": np.zeros((copies, 1)), "goal": np.stack([points, gates], -1)}

    def item_rewards(self, achieved: Any, desired: Any) -> Any:
        achieved, desired = np.asarray(achieved), np.asarray(desired)
        return (np.abs(achieved - desired[..., 0]) < 0.5) * (desired[..., 1] != 0)

    def reward(self, achieved: Any, desired: Any) -> Any:
        return self.item_rewards(achieved, desired).any(-1).astype(np.float32)
