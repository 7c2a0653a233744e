"""Worlds as environments: for Gymnasium, for Gymnasium's vector API and for Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from stable_baselines3.common.vec_env import VecEnv

from vauban.errors import BadInput
from vauban.rl.envs.world import Array, State, World, put, take


class WorldEnv(gymnasium.Env[Any, Any]):
    """One copy of a world with the goal API of gymnasium-robotics: `compute_reward(achieved, desired, info)`.

    `info["is_success"]` is whether a goal is reached in this state. The episode is truncated after `world.horizon` steps.
    """

    def __init__(self, world: World, render_mode: str | None = None):
        if render_mode not in (None, "rgb_array"):
            raise BadInput(f"render_mode={render_mode!r}: None or 'rgb_array'")
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 5}
        self.world, self.render_mode = world, render_mode
        self.observation_space, self.action_space = world.observation_space, world.action_space
        self._path: list[State] = []

    @property
    def low_reward(self) -> float | None:
        """The reward that means no goal was reached."""
        return self.world.low_reward

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._path = [self.world.begin(1, self.np_random)]
        return self._seen(), {"is_success": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self._path:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        self._path.append(self.world.move(self._path[-1], np.asarray(action)[None], self.np_random))
        seen = self._seen()
        pair = seen["achieved_goal"], seen["desired_goal"]
        info = {"is_success": bool(self.world.reached(*pair))}
        return seen, float(self.compute_reward(*pair, info)), False, len(self._path) > self.world.horizon, info

    def _seen(self) -> dict[str, Array]:
        return {key: value[0] for key, value in self.world.look(self._path[-1]).items()}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Rewards (…,) of achieved and desired goals, whatever their leading shape."""
        return self.world.reward(achieved_goal, desired_goal)

    def item_rewards(self, achieved_goal: Any, desired_goal: Any) -> Any:
        """R_item (…, n_max) of goal sets, for worlds that have them."""
        return self.world.item_rewards(achieved_goal, desired_goal)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> bool:
        """Reaching a goal ends no episode."""
        return False

    def compute_truncated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> bool:
        """Whether the episode has reached its horizon."""
        return len(self._path) > self.world.horizon

    def render(self) -> Any:
        return self.world.draw(self._path) if self.render_mode and self._path else None


class _Copies:
    """n copies of a world, each of which begins a new episode after `horizon` steps."""

    def __init__(self, world: World, copies: int, rng: np.random.Generator, state: State | None = None):
        self.world, self.copies, self.rng = world, copies, rng
        self.state = world.begin(copies, rng) if state is None else state
        self.clock = np.zeros(copies, np.int64)

    def step(self, actions: Array) -> tuple[dict[str, Array], Array, Array, Array]:
        """Observations, rewards, successes and the copies whose episode is over."""
        self.state = self.world.move(self.state, actions, self.rng)
        self.clock += 1
        seen = self.world.look(self.state)
        pair = seen["achieved_goal"], seen["desired_goal"]
        over = self.clock >= self.world.horizon
        return seen, np.asarray(self.world.reward(*pair), np.float32), self.world.reached(*pair), over

    def renew(self, which: Array) -> dict[str, Array]:
        """Begin a new episode of the selected copies; returns the observations of all."""
        if which.any():
            self.state = put(self.state, which, self.world.begin(int(which.sum()), self.rng))
            self.clock[which] = 0
        return self.world.look(self.state)


class WorldVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """For `gymnasium.make_vec(name, num_envs=n, vectorization_mode="vector_entry_point")`: arrays, reset in the same step."""

    def __init__(self, world: World, num_envs: int = 1, render_mode: str | None = None):
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}
        self.world, self.num_envs, self.render_mode = world, num_envs, render_mode
        self.single_observation_space, self.single_action_space = world.observation_space, world.action_space
        self.observation_space = batch_space(world.observation_space, num_envs)
        self.action_space = batch_space(world.action_space, num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._copies = _Copies(self.world, self.num_envs, self.np_random)
        return self.world.look(self._copies.state), {}

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        seen, rewards, success, over = self._copies.step(np.asarray(actions))
        info: dict[str, Any] = {"is_success": success}
        if over.any():
            info.update(final_obs=seen, _final_obs=over)
            seen = self._copies.renew(over)
        return seen, rewards, np.zeros(self.num_envs, bool), over, info


class WorldVecEnv(VecEnv):
    """n copies of a world for Stable-Baselines3, moved as arrays: no process and no loop over copies."""

    def __init__(self, world: World, num_envs: int = 1):
        self.world = world
        self.render_mode = None
        super().__init__(num_envs, world.observation_space, world.action_space)
        self._copies: _Copies | None = None
        self._actions = np.empty(0)
        self._totals = np.zeros(num_envs)

    @property
    def low_reward(self) -> float | None:
        """The reward that means no goal was reached."""
        return self.world.low_reward

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Rewards (…,) of achieved and desired goals."""
        return self.world.reward(achieved_goal, desired_goal)

    def item_rewards(self, achieved_goal: Any, desired_goal: Any) -> Any:
        """R_item (…, n_max) of goal sets, for worlds that have them."""
        return self.world.item_rewards(achieved_goal, desired_goal)

    def reset(self) -> Any:
        seed = next((seed for seed in self._seeds if seed is not None), None)
        rng = self._copies.rng if self._copies is not None and seed is None else np.random.default_rng(seed)
        self._copies = _Copies(self.world, self.num_envs, rng)
        self._reset_seeds()
        self._totals[:] = 0
        return self.world.look(self._copies.state)

    def step_async(self, actions: Array) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        assert self._copies is not None, "call reset() before step()"
        seen, rewards, success, over = self._copies.step(self._actions)
        self._totals += rewards
        infos: list[dict[str, Any]] = [
            {"is_success": bool(reached), "TimeLimit.truncated": False} for reached in success
        ]
        if over.any():
            for i in np.flatnonzero(over):
                infos[i]["terminal_observation"] = take(seen, i)
                infos[i]["TimeLimit.truncated"] = True
                infos[i]["episode"] = {"r": float(self._totals[i]), "l": self.world.horizon, "t": 0.0}
            self._totals[over] = 0
            seen = self._copies.renew(over)
        return seen, rewards, over, infos

    def state_dict(self) -> dict[str, Any]:
        """Where every copy is in its episode, as arrays and plain values; `load_state_dict` of an equal world takes it."""
        assert self._copies is not None, "call reset() before state_dict()"
        return {
            "state": self._copies.state,
            "clock": self._copies.clock,
            "totals": self._totals,
            "rng": self._copies.rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state that `state_dict` returned."""
        rng = np.random.default_rng()
        rng.bit_generator.state = state["rng"]
        self._copies = _Copies(self.world, self.num_envs, rng, state["state"])
        self._copies.clock, self._totals = state["clock"], state["totals"]
        self._reset_seeds()

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise BadInput("the copies of a world share their attributes: make another world instead")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        return [getattr(self, method_name)(*args, **kwargs)] * len(list(self._get_indices(indices)))

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * len(list(self._get_indices(indices)))

    def get_images(self) -> Sequence[Array | None]:
        return [None] * self.num_envs
