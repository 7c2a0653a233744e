"""The two linear worlds of [Levine2023, 8.6], in which the gradient loss learns a rotation from d transitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from vauban.rl.envs.registry import ENVIRONMENTS
from vauban.rl.envs.world import Array, State, World, box, whole


@ENVIRONMENTS.register("LinearDense-v0")
class LinearDense(World):
    """s' = s + U a with an unknown rotation U, |a|_2 <= 1 (longer actions are shortened), R = g . s' [Levine2023, 8.6.2.1]."""

    low_reward: float | None = None

    def __init__(self, dim: int = 5, rotation_seed: int = 0, horizon: int = 10):
        from scipy.stats import ortho_group

        self.dim, self.horizon = whole("dim", dim, 2), whole("horizon", horizon, 1)
        self.rotation = np.asarray(ortho_group.rvs(self.dim, random_state=rotation_seed))
        point = box(-np.inf, np.inf, self.dim)
        self.observation_space = spaces.Dict(observation=point, achieved_goal=point, desired_goal=point)
        self.action_space = box(-1, 1, self.dim)

    def begin(self, copies: int, rng: np.random.Generator) -> State:
        return {"position": rng.normal(size=(copies, self.dim)), "goal": rng.normal(size=(copies, self.dim))}

    def move(self, state: State, actions: Array, rng: np.random.Generator) -> State:
        return {"position": state["position"] + self.turned(actions), "goal": state["goal"]}

    def turned(self, actions: Array) -> Array:
        """U a of every action, shortened to length 1."""
        actions = np.asarray(actions, float)
        return actions / np.maximum(1, np.linalg.norm(actions, axis=-1, keepdims=True)) @ self.rotation.T

    def observe(self, state: State) -> Array:
        return state["position"]

    def achieved(self, state: State) -> Array:
        return state["position"]

    def reward(self, achieved: Any, desired: Any) -> Any:
        return (achieved * desired).sum(-1)

    def reached(self, achieved: Array, desired: Array) -> Array:
        return np.asarray(self.reward(achieved, desired) > 0)

    @staticmethod
    def value(
        rotation: torch.Tensor, state: torch.Tensor, action: torch.Tensor, goal: torch.Tensor, gamma: float
    ) -> Any:
        """Q* (n,) of an environment with this rotation: the hypothesis class of Proposition 8.1 (Eq. G.1)."""
        along = (goal * (state + action @ rotation.T)).sum(-1)
        return along / (1 - gamma) + gamma * goal.norm(dim=-1) / (1 - gamma) ** 2

    @staticmethod
    def policy(rotation: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
        """The best action (n, d) if this is the rotation (Eq. G.2)."""
        return goal @ rotation / goal.norm(dim=-1, keepdim=True)


@ENVIRONMENTS.register("LinearSparse-v0")
class LinearSparse(LinearDense):
    """Two halves: (0; s1 + U a) follows if s1 != 0, (s2; 0) if s1 = 0; R = g . s1', c_low = 0 [Levine2023, 8.6.2.2]."""

    low_reward = 0.0

    def __init__(self, dim: int = 5, rotation_seed: int = 0, horizon: int = 10):
        super().__init__(dim, rotation_seed, horizon)
        both, half = box(-np.inf, np.inf, 2 * self.dim), box(-np.inf, np.inf, self.dim)
        self.observation_space = spaces.Dict(observation=both, achieved_goal=half, desired_goal=half)

    def begin(self, copies: int, rng: np.random.Generator) -> State:
        first = super().begin(copies, rng)
        return {**first, "stored": np.zeros((copies, self.dim))}

    def move(self, state: State, actions: Array, rng: np.random.Generator) -> State:
        shown, stored = state["position"], state["stored"]
        hidden = (shown == 0).all(-1, keepdims=True)
        return {
            "position": np.where(hidden, stored, 0.0),
            "stored": np.where(hidden, 0.0, shown + self.turned(actions)),
            "goal": state["goal"],
        }

    def observe(self, state: State) -> Array:
        return np.concatenate([state["position"], state["stored"]], -1)

    def reached(self, achieved: Array, desired: Array) -> Array:
        return np.asarray(self.reward(achieved, desired) > 0)

    @staticmethod
    def value(
        rotation: torch.Tensor, state: torch.Tensor, action: torch.Tensor, goal: torch.Tensor, gamma: float
    ) -> Any:
        """Q* (n,) of an environment with this rotation: the hypothesis class of Proposition 8.2 (Eq. G.3)."""
        shown, stored = state.chunk(2, -1)
        rest, length = 1 - gamma**2, goal.norm(dim=-1)
        after_action = gamma * (goal * (shown + action @ rotation.T)).sum(-1) / rest + gamma**3 * length / rest**2
        after_showing = (goal * stored).sum(-1) / rest + gamma**2 * length / rest**2
        return torch.where((shown != 0).any(-1), after_action, after_showing)
