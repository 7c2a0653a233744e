"""Evaluation of agents: episodes played with the best actions, success and summed reward."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from vauban.errors import BadInput
from vauban.rl.envs import ENVIRONMENTS, World, WorldVecEnv
from vauban.rl.recipes import make_env, make_world
from vauban.rl.robots import is_robot

_ROBOT_COPIES = 38
Act = Callable[[dict[str, np.ndarray]], np.ndarray]


def play(world: World, act: Act, episodes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Success (a goal was ever reached) and summed reward of each of `episodes`, played as copies of one world."""
    env = WorldVecEnv(world, episodes)
    env.seed(seed)
    seen = env.reset()
    success, total = np.zeros(episodes, bool), np.zeros(episodes)
    for _ in range(world.horizon):
        seen, rewards, _, infos = env.step(act(seen))
        success |= np.array([info["is_success"] for info in infos])
        total += rewards
    return success, total


def evaluate(agent: Any, env: str, episodes: int, seed: int) -> tuple[float, float]:
    """Mean success and mean summed reward of an agent's best actions.

    Worlds count a goal that was ever reached, as in Figure 8.2; robots the last state, as in Figure 8.3.
    """
    world = make_world(env)
    if world is not None:
        success, total = play(world, lambda seen: agent.predict(seen, deterministic=True)[0], episodes, seed)
        return float(success.mean()), float(total.mean())
    copies = min(episodes, _ROBOT_COPIES) if is_robot(env) else 1
    return _play_others(agent, _other_env(env, copies, getattr(agent.env, "workers", 1)), episodes, seed)


@lru_cache(maxsize=1)
def _other_env(env: str, copies: int, workers: int) -> VecEnv:
    """Copies of an environment that is no world, kept from one evaluation to the next."""
    return make_env(env, copies, workers)


def _play_others(agent: Any, env: VecEnv, episodes: int, seed: int) -> tuple[float, float]:
    """Mean success in the last state and mean summed reward; each copy plays its share of the episodes."""
    env.seed(seed)
    seen: Any = env.reset()
    left = np.array([(episodes + copy) // env.num_envs for copy in range(env.num_envs)])
    wins: list[float] = []
    sums: list[float] = []
    running = np.zeros(env.num_envs)
    while left.any():
        seen, rewards, over, infos = env.step(agent.predict(seen, deterministic=True)[0])
        running += rewards
        for copy in np.flatnonzero(over & (left > 0)):
            wins.append(float(infos[copy].get("is_success", 0.0)))
            sums.append(float(running[copy]))
        left[over] -= left[over] > 0
        running[over] = 0.0
    return float(np.mean(wins)), float(np.mean(sums))


def greedy_levels(envs: Iterable[str], episodes: int = 2_000) -> dict[str, float]:
    """The perfect greedy agent's mean score on each environment, by its label: goals reached for goal sets, else success."""
    levels = {}
    for env in dict.fromkeys(envs):
        world = make_world(env)
        if world is None or type(world).greedy is World.greedy:
            those = ", ".join(name for name in ENVIRONMENTS.names() if ENVIRONMENTS[name].greedy is not World.greedy)
            raise BadInput(f"{env} has no greedy agent; environments that have one: {those}")
        success, reward = play(world, world.greedy, episodes, seed=0)
        levels[env] = float((reward if world.goal_set else success).mean())
    several = len(levels) > 1
    return {f"perfect greedy agent{f', {env}' if several else ''}": level for env, level in levels.items()}
