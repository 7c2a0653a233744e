"""Environments of [Levine2023] chapter 8 and appendix G, registered with Gymnasium when this room is imported."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium

from vauban.rl.envs.goal_sets import DriveSeek, GoalSetWorld, NoisySeek, greedy
from vauban.rl.envs.linear import LinearDense, LinearSparse
from vauban.rl.envs.seek import BitFlipping, ContinuousSeek
from vauban.rl.envs.single import WorldEnv, WorldVecEnv, WorldVectorEnv
from vauban.rl.envs.world import World

WORLDS: dict[str, Callable[..., World]] = {
    "ContinuousSeek-v0": ContinuousSeek,
    "BitFlipping-v0": BitFlipping,
    "DriveSeek-v0": DriveSeek,
    "NoisySeek-v0": NoisySeek,
    "LinearDense-v0": LinearDense,
    "LinearSparse-v0": LinearSparse,
}

__all__ = [
    "WORLDS",
    "BitFlipping",
    "ContinuousSeek",
    "DriveSeek",
    "GoalSetWorld",
    "LinearDense",
    "LinearSparse",
    "NoisySeek",
    "World",
    "WorldEnv",
    "WorldVecEnv",
    "WorldVectorEnv",
    "greedy",
]


def _single(name: str, render_mode: str | None = None, **settings: Any) -> WorldEnv:
    return WorldEnv(WORLDS[name](**settings), render_mode)


def _vector(name: str, num_envs: int = 1, render_mode: str | None = None, **settings: Any) -> WorldVectorEnv:
    return WorldVectorEnv(WORLDS[name](**settings), num_envs, render_mode)


def register() -> None:
    """Tell Gymnasium of every world; telling it twice changes nothing."""
    for name in WORLDS:
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=partial(_single, name), vector_entry_point=partial(_vector, name))


register()
