"""Small agents and batches that the tests of vauban.rl share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples

from vauban.rl.envs import BitFlipping, ContinuousSeek, DriveSeek, World, WorldVecEnv


def seek_agent(kind: Any, world: World | None = None, num_envs: int = 1, **settings: Any) -> Any:
    """An agent with hindsight on a small ContinuousSeek, or on BitFlipping for DQN."""
    discrete = "DQN" in kind.__name__
    env = WorldVecEnv(world or (BitFlipping(4) if discrete else ContinuousSeek(3)), num_envs)
    policy = {"net_arch": [32, 32], **settings.pop("policy_kwargs", {})}
    usual = {"buffer_size": 2000, "learning_starts": 40, "batch_size": 32, "train_freq": 1, "seed": 3, "device": "cpu"}
    return kind(
        "MultiInputPolicy", env, replay_buffer_class=HerReplayBuffer, policy_kwargs=policy, **{**usual, **settings}
    )


def drive_agent(kind: Any, policy: Any, *, max_goals: int = 6, **settings: Any) -> Any:
    """An agent with small networks on DriveSeek."""
    usual = {"buffer_size": 500, "learning_starts": 40, "batch_size": 16, "seed": 3, "device": "cpu"}
    small = {"features_extractor_kwargs": {"hidden": (16, 16), "embedding": 5}, "net_arch": [16]}
    small = {**small, **settings.pop("policy_kwargs", {})}
    return kind(policy, WorldVecEnv(DriveSeek(max_goals=max_goals)), policy_kwargs=small, **{**usual, **settings})


def same_weights(one: Any, two: Any) -> bool:
    """Whether two agents' networks are equal to the last bit."""
    pairs = zip(one.policy.state_dict().items(), two.policy.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


def batch_of(agent: Any, size: int = 6, seed: int = 0, dtype: torch.dtype = torch.float64) -> DictReplayBufferSamples:
    """A batch of random transitions, some at their goal (reward 0) and some at their end."""
    rng = np.random.default_rng(seed)
    shape = {key: space.shape for key, space in agent.observation_space.spaces.items()}

    def seen() -> dict[str, torch.Tensor]:
        return {key: torch.as_tensor(rng.uniform(0, 1, (size, *s)), dtype=dtype) for key, s in shape.items()}

    before, after = seen(), seen()
    after["desired_goal"] = before["desired_goal"].clone()
    if hasattr(agent.action_space, "n"):
        actions = torch.as_tensor(rng.integers(0, agent.action_space.n, (size, 1)))
    else:
        actions = torch.as_tensor(rng.uniform(-1, 1, (size, *agent.action_space.shape)), dtype=dtype)
    rewards = torch.full((size, 1), -1.0, dtype=dtype)
    rewards[0] = 0
    dones = torch.zeros(size, 1, dtype=dtype)
    dones[1] = 1
    return DictReplayBufferSamples(before, actions, after, dones, rewards)
