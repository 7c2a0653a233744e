"""Small plans for stacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from vauban.rl.envs import DriveSeek
from vauban.rl.recipes import Plan

SMALL = {"net_arch": [16, 16], "batch_size": 24, "learning_starts": 30}
SETS = {"batch_size": 12, "learning_starts": 40, "net_arch": [16]}
BITS = {"net_arch": [16], "batch_size": 24, "max_grad_norm": 0.05}


def plan(algo: str = "reengage-ddpg", **settings: Any) -> Plan:
    return Plan(algo, "ContinuousSeek-v0:dim=3", {**SMALL, **settings}, steps=100, every=50, episodes=4)


def sets(algo: str = "multi-reengage-ddpg", env: str = "DriveSeek-v0:max_goals=9", **settings: Any) -> Plan:
    return Plan(algo, env, {**SETS, **settings}, steps=80, every=40, episodes=3)


def bits(algo: str = "reengage-dqn", **settings: Any) -> Plan:
    return Plan(algo, "BitFlipping-v0:dim=4", {**BITS, **settings}, steps=640, every=320, episodes=4)


def some_sets(rng: np.random.Generator, agents: int, sets: int, most: int) -> torch.Tensor:
    """Goal sets (agents, sets, most, 3) of different sizes, some of them empty."""
    sizes = rng.integers(0, most + 1, agents * sets)
    packed = DriveSeek(max_goals=most).pack([rng.integers(-9, 9, (int(n), 2)) for n in sizes])
    return torch.as_tensor(packed).view(agents, sets, most, 3)
