"""Environments of [Levine2023] chapter 8 and appendix G; importing this package registers them with Gymnasium."""

from __future__ import annotations

from vauban.rl.envs.adapters import WorldEnv, WorldVecEnv, WorldVectorEnv
from vauban.rl.envs.goal_sets import DriveSeek, GoalSetWorld, NoisySeek, greedy
from vauban.rl.envs.linear import LinearDense, LinearSparse
from vauban.rl.envs.registry import ENVIRONMENTS, register_with_gymnasium
from vauban.rl.envs.seek import BitFlipping, ContinuousSeek
from vauban.rl.envs.world import World

WORLDS = ENVIRONMENTS  # its former name

__all__ = [
    "ENVIRONMENTS",
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
    "register",
]


def register() -> None:
    """Register every environment with Gymnasium, those of other packages too; calling it twice changes nothing."""
    for name in ENVIRONMENTS.names():
        register_with_gymnasium(name)
