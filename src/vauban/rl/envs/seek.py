"""ContinuousSeek and BitFlipping: reach one point of a space of many dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from vauban.errors import BadInput
from vauban.rl.envs.canvas import Canvas
from vauban.rl.envs.registry import ENVIRONMENTS
from vauban.rl.envs.world import Array, State, World, box, whole


@ENVIRONMENTS.register("ContinuousSeek-v0")
class ContinuousSeek(World):
    """s, g in [-D, D]^d, a in [-1, 1]^d, s' = clip(s + a), R = -1 + 1[|s' - g|_inf <= epsilon], s_0 = 0 [Levine2023, 8.3].

    Ten steps an episode, D = 5 and epsilon = 0.1; goals are uniform, and reaching one does not end the episode.
    """

    moves_tensors = True

    def __init__(self, dim: int = 20, size: float = 5.0, epsilon: float = 0.1, horizon: int = 10):
        self.dim, self.size, self.epsilon = whole("dim", dim, 1), float(size), float(epsilon)
        if not (self.size > 0 and self.epsilon > 0):
            raise BadInput(f"size={size}, epsilon={epsilon}: both must be above zero")
        self.horizon = whole("horizon", horizon, 1)
        point = box(-size, size, self.dim)
        self.observation_space = spaces.Dict(observation=point, achieved_goal=point, desired_goal=point)
        self.action_space = box(-1, 1, self.dim)

    def begin(self, copies: int, rng: np.random.Generator) -> State:
        goal = rng.uniform(-self.size, self.size, (copies, self.dim)).astype(np.float32)
        return {"position": np.zeros((copies, self.dim), np.float32), "goal": goal}

    def move(self, state: Any, actions: Any, rng: Any) -> Any:
        position = state["position"]
        step = actions if isinstance(actions, torch.Tensor) else np.asarray(actions, np.float32)
        return {"position": (position + step.clip(-1, 1)).clip(-self.size, self.size), "goal": state["goal"]}

    def observe(self, state: Any) -> Any:
        return state["position"]

    def achieved(self, state: Any) -> Any:
        return state["position"]

    def reward(self, achieved: Any, desired: Any) -> Any:
        return (abs(achieved - desired) <= self.epsilon).all(-1) * 1.0 - 1.0

    def draw(self, path: list[State]) -> Array:
        if self.dim != 2:
            raise BadInput(f"ContinuousSeek of dim={self.dim} has no picture: it needs dim=2")
        canvas = Canvas(self.size)
        points = np.concatenate([state["position"] for state in path])
        goal = path[0]["goal"]
        hit = bool(self.reached(points, goal).any())
        canvas.path(points)
        canvas.squares(goal, "blue" if hit else "cyan", 2 * self.epsilon)
        return canvas.pixels


@ENVIRONMENTS.register("BitFlipping-v0")
class BitFlipping(World):
    """s, g in {0, 1}^d, action i flips bit i, R = -1 until s' = g, then 0; d steps an episode [Levine2023, G.2].

    First states and goals are uniform; an episode that reaches its goal runs on, as in ContinuousSeek.
    """

    moves_tensors = True

    def __init__(self, dim: int = 40, horizon: int | None = None):
        self.dim = whole("dim", dim, 1)
        self.horizon = whole("horizon", horizon or self.dim, 1)
        bits = box(0, 1, self.dim)
        self.observation_space = spaces.Dict(observation=bits, achieved_goal=bits, desired_goal=bits)
        self.action_space = spaces.Discrete(self.dim)

    def begin(self, copies: int, rng: np.random.Generator) -> State:
        bits, goal = rng.integers(0, 2, (2, copies, self.dim)).astype(np.float32)
        return {"bits": bits, "goal": goal}

    def move(self, state: Any, actions: Any, rng: Any) -> Any:
        bits = state["bits"]
        flipped: Any
        if isinstance(bits, torch.Tensor):
            flipped = torch.nn.functional.one_hot(actions.reshape(-1), self.dim)
        else:
            flipped = np.eye(self.dim, dtype=np.float32)[np.asarray(actions, np.int64).reshape(-1)]
        return {"bits": abs(bits - flipped), "goal": state["goal"]}

    def observe(self, state: Any) -> Any:
        return state["bits"]

    def achieved(self, state: Any) -> Any:
        return state["bits"]

    def reward(self, achieved: Any, desired: Any) -> Any:
        return (achieved == desired).all(-1) * 1.0 - 1.0
