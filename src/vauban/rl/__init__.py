"""Robustness to new objectives: goal-conditioned agents whose critic also learns the gradient with respect to the goal."""

from __future__ import annotations

from vauban.errors import MissingExtra

try:
    import gymnasium  # noqa: F401
    import stable_baselines3  # noqa: F401
except ImportError as problem:
    raise MissingExtra(problem.name or "stable-baselines3", "rl", "vauban.rl") from None

from vauban.rl import envs
from vauban.rl.ddpg import ReenGAGEDDPG
from vauban.rl.dqn import ReenGAGEDQN
from vauban.rl.multi import GoalSetPolicy, MultiReenGAGEDDPG
from vauban.rl.robots import RobotDDPG
from vauban.rl.sac import ReenGAGESAC

__all__ = ["GoalSetPolicy", "MultiReenGAGEDDPG", "ReenGAGEDDPG", "ReenGAGEDQN", "ReenGAGESAC", "RobotDDPG", "envs"]
