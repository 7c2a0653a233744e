"""World: base class of environments, computed for many copies at once as arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from vauban.errors import BadInput

Array = np.ndarray
State = dict[str, Array]


class World:
    """The dynamics, goals and rewards of an environment, for n copies at once; environment classes are thin over it.

    A state is a dictionary of arrays whose first axis runs over the copies. A subclass sets `horizon`, `observation_space` and
    `action_space`, defines `begin`, `move`, `observe`, `achieved` and `reward`, and is trained by name once it is registered:
    with `@ENVIRONMENTS.register("Mine-v0")`, or by an entry point of the group `vauban.environments` in another package.

    horizon: steps of an episode.
    low_reward: the reward c_low that means "no goal reached" [Levine2023, Eq. 8.9]; None where rewards are dense.
    goal_set: whether a goal is a set of goals with gates, (n_max, coordinates + 1).
    moves_tensors: whether `move`, `observe`, `achieved` and `reward` take tensors, on any device, as well as arrays, and `move`
        neither reads nor changes the goal; batched training (--together) needs it.
    goal_image: whether `GoalImageEncoder` can draw states and goals: see there for what it reads.

    Recommended for training, used where the user gives nothing else:

    exploration_noise: standard deviation of the noise on actions scaled to [-1, 1] (ddpg).
    training_steps: environment steps.
    evaluation_interval: steps between two evaluations.
    evaluation_episodes: episodes of an evaluation.
    """

    horizon: int
    low_reward: float | None = -1.0
    goal_set: bool = False
    moves_tensors: bool = False
    goal_image: bool = False
    observation_space: spaces.Dict
    action_space: spaces.Box | spaces.Discrete

    exploration_noise: float = 0.03
    training_steps: int = 200_000
    evaluation_interval: int = 2_000
    evaluation_episodes: int = 50

    def begin(self, copies: int, rng: np.random.Generator) -> State:
        """First states of episodes, with their goals under `goal`."""
        raise NotImplementedError

    def move(self, state: Any, actions: Any, rng: Any) -> Any:
        """The states after one step of every copy; with tensors, `rng` has only the method `normal(size=…)`."""
        raise NotImplementedError

    def observe(self, state: Any) -> Any:
        """The observation of each state without goals, (n, features)."""
        raise NotImplementedError

    def achieved(self, state: Any) -> Any:
        """The goal each state achieves, (n, goal)."""
        raise NotImplementedError

    def reward(self, achieved: Any, desired: Any) -> Any:
        """Rewards (…,) of achieved (…, goal) and desired (…, goal); any leading shape."""
        raise NotImplementedError

    def item_rewards(self, achieved: Any, desired: Any) -> Any:
        """R_item (…, n_max) of every goal of a set, for worlds that have sets; takes arrays, and tensors in training."""
        raise BadInput(f"{type(self).__name__} has one goal, not a set of them")

    def reached(self, achieved: Array, desired: Array) -> Array:
        """Whether a goal is reached, (…,)."""
        return np.asarray(self.reward(achieved, desired) != self.low_reward)

    def greedy(self, observation: dict[str, Array]) -> Array:
        """The actions of a perfect greedy agent for the observations of n copies, for worlds that have one."""
        raise BadInput(f"{type(self).__name__} has no greedy agent")

    def draw(self, path: list[State]) -> Array:
        """An image (height, width, 3) of one copy's path so far."""
        raise BadInput(f"{type(self).__name__} has no picture: only two-dimensional worlds can be drawn")

    def look(self, state: State) -> dict[str, Array]:
        """The goal-conditioned observation of every copy."""
        seen = {
            "observation": self.observe(state),
            "achieved_goal": self.achieved(state),
            "desired_goal": state["goal"],
        }
        return {key: np.array(value, self.observation_space[key].dtype) for key, value in seen.items()}


def take(state: State, copies: Any) -> State:
    """The selected copies of a state."""
    return {key: value[copies] for key, value in state.items()}


def put(state: State, copies: Any, other: State) -> State:
    """A state in which the selected copies are replaced by those of `other`."""
    result = {key: value.copy() for key, value in state.items()}
    for key, value in other.items():
        result[key][copies] = value
    return result


def box(low: float, high: float, *shape: int, dtype: Any = np.float32) -> spaces.Box:
    """A box with one bound for all coordinates."""
    return spaces.Box(dtype(low), dtype(high), shape, dtype)


def whole(name: str, value: Any, least: int) -> int:
    """`value` as a whole number, or BadInput if it is none or below `least`."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or int(value) != value or value < least:
        raise BadInput(f"{name}={value}: a whole number, {least} or more, is needed")
    return int(value)


def library(x: Any) -> Any:
    """The module whose functions take this array: torch or numpy."""
    return torch if isinstance(x, torch.Tensor) else np
