"""How often an agent reaches its goals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vauban.rl.envs import World, WorldVecEnv
from vauban.rl.recipes import make_env, make_world

Act = Callable[[dict[str, np.ndarray]], np.ndarray]


def play(world: World, act: Act, episodes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Success (a goal was ever reached) and summed reward of each of `episodes`, played side by side."""
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
    single = make_env(env)
    single.seed(seed)
    seen: Any = single.reset()
    wins: list[float] = []
    sums: list[float] = []
    running = 0.0
    while len(wins) < episodes:
        seen, rewards, over, infos = single.step(agent.predict(seen, deterministic=True)[0])
        running += float(rewards[0])
        if over[0]:
            wins.append(float(infos[0].get("is_success", 0.0)))
            sums.append(running)
            running = 0.0
    single.close()
    return float(np.mean(wins)), float(np.mean(sums))
