"""DDPG with hindsight as Plappert et al. train robots, with or without the gradient loss."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor

from vauban.errors import BadInput
from vauban.rl.ddpg import ReenGAGEDDPG
from vauban.rl.envs.processes import register_robots
from vauban.rl.reengage import GOAL
from vauban.specs import Spec

STATE, ACHIEVED = "observation", "achieved_goal"
WORKERS, ROLLOUTS, CYCLES, EPOCHS = 19, 2, 50, 50


class NormalisedGoals(BaseFeaturesExtractor):
    """Observation and goal, each coordinate shifted and scaled by its running mean and deviation, clipped to [-5, 5].

    Slopes of a critic over it are in the goal as the environment gives it: the gradient passes through the scaling. Sums are
    buffers, so that they are saved with the weights; `RobotDDPG` fills them.
    """

    running_sum: Tensor
    running_squares: Tensor
    running_count: Tensor

    def __init__(self, observation_space: spaces.Dict, clip: float = 5.0, least_deviation: float = 0.01):
        size = spaces.flatdim(observation_space[STATE]) + spaces.flatdim(observation_space[GOAL])
        super().__init__(observation_space, features_dim=size)
        self.clip, self.least_deviation = clip, least_deviation
        for name in ("running_sum", "running_squares"):
            self.register_buffer(name, torch.zeros(size, dtype=torch.float64))
        self.register_buffer("running_count", torch.zeros(1, dtype=torch.float64))

    def update(self, rows: Tensor) -> None:
        """Count further rows (n, observation + goal)."""
        rows = rows.double()
        self.running_sum += rows.sum(0)
        self.running_squares += rows.square().sum(0)
        self.running_count += len(rows)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        rows = torch.cat([observations[STATE].float().flatten(1), observations[GOAL].float().flatten(1)], dim=1)
        count = self.running_count.clamp(min=1.0)
        mean = self.running_sum / count
        spread = (self.running_squares / count - mean.square()).clamp(min=self.least_deviation**2).sqrt()
        spread = torch.where(self.running_count > 0, spread, torch.ones_like(spread))
        return ((rows - mean.float()) / spread.float()).clamp(-self.clip, self.clip)


class RobotDDPG(ReenGAGEDDPG):
    """The training of [Plappert2018], with which [Levine2023, 8.4 and G.4] compares the gradient loss.

    It differs from DDPG: inputs are normalised by running statistics, a share of actions is uniform, the actor pays for the
    square of its actions, targets are clipped to the returns that rewards of -1 and 0 allow, and target networks follow once for
    each call of `train` (a cycle), not once for each update. Where a target is clipped its gradient is zero.

    random_actions: share of actions that are uniform in the action space.
    action_penalty: weight of the mean squared action in the actor's loss.
    goal_weight: 0 is the baseline. It weighs a sum over goal coordinates, as everywhere here; the published code for robots
        averages over the d coordinates, so that its weight w is w / d here.
    """

    policy_kwargs_of_robots: ClassVar[dict[str, Any]] = {"features_extractor_class": NormalisedGoals}

    def __init__(self, *args: Any, random_actions: float = 0.3, action_penalty: float = 1.0, **kwargs: Any):
        if not 0 <= random_actions <= 1:
            raise BadInput(f"random_actions={random_actions}: a share from 0 to 1 is needed")
        self.random_actions, self.action_penalty = float(random_actions), float(action_penalty)
        kwargs["policy_kwargs"] = {**self.policy_kwargs_of_robots, **(kwargs.get("policy_kwargs") or {})}
        super().__init__(*args, **kwargs)

    def _check_rewards(self) -> None:
        super()._check_rewards()
        if self.rewards != "sparse" or self.low_reward != -1.0:
            raise BadInput(
                "robot-ddpg clips targets to what rewards of -1 and 0 allow: it needs such rewards (rewards='sparse'); "
                "for others use ddpg or reengage-ddpg"
            )

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """One cycle: statistics of what was collected since the last one, updates, then one step of the target networks."""
        self._update_statistics()
        super().train(gradient_steps, batch_size)
        super()._update_targets()

    def _update_targets(self) -> None:
        """Nothing between the updates of a cycle."""

    def _update_statistics(self) -> None:
        """Count the collected observations, each with a goal as the replay buffer relabels it: four of five are reached later."""
        buffer: Any = self.replay_buffer
        collected = min(int(self.train_freq.frequency), buffer.buffer_size)  # type: ignore[union-attr]
        rows = (buffer.pos - collected + np.arange(collected)) % buffer.buffer_size
        goals, reached = buffer.observations[GOAL][rows], buffer.next_observations[ACHIEVED][rows]
        later = np.random.randint(np.arange(collected)[:, None], collected, goals.shape[:2])
        relabelled = np.random.random(goals.shape[:2]) < self._share_relabelled()
        goals = np.where(relabelled[..., None], reached[later, np.arange(goals.shape[1])], goals)
        seen = np.concatenate([buffer.observations[STATE][rows], goals], axis=-1).reshape(
            collected * goals.shape[1], -1
        )
        first: Any = self.critic.features_extractor
        if not isinstance(first, NormalisedGoals):
            return
        first.update(torch.as_tensor(seen, device=self.device))
        for network in (self.actor, self.actor_target, self.critic_target):
            network.features_extractor.load_state_dict(first.state_dict())

    def _share_relabelled(self) -> float:
        buffer = self.replay_buffer
        return float(buffer.her_ratio) if isinstance(buffer, HerReplayBuffer) else 0.0

    def _sample_action(
        self, learning_starts: int, action_noise: Any = None, n_envs: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        _, stored = super()._sample_action(learning_starts, action_noise, n_envs)
        at_random = np.random.random(n_envs) < self.random_actions
        stored[at_random] = np.random.uniform(-1, 1, stored[at_random].shape)
        return self.policy.unscale_action(stored), stored

    def _target(self, batch: Any, discounts: Tensor) -> tuple[Tensor, Tensor | None]:
        target, slopes = super()._target(batch, discounts)
        lowest = -1 / (1 - self.gamma)
        inside = (target >= lowest) & (target <= 0)
        return target.clamp(lowest, 0), None if slopes is None else slopes * inside

    def _actor_loss(self, seen: Any) -> Tensor:
        actions = self.actor(seen)
        return -self.critic.q1_forward(seen, actions).mean() + self.action_penalty * actions.square().mean()


def is_robot(env: str) -> bool:
    """Whether `env` names an environment of Gymnasium-Robotics that this package makes: hands and the arm Fetch."""
    return Spec.parse(env).name.startswith(("Hand", "Fetch"))


def horizon_of(name: str, settings: dict[str, Any]) -> int:
    """Steps of an episode of a robot."""
    if "max_episode_steps" in settings:
        return int(settings["max_episode_steps"])
    register_robots(name)
    return int(gymnasium.spec(name).max_episode_steps or 50)


def robot_lengths(horizon: int) -> tuple[int, int, int, int]:
    """Steps, steps between evaluations, episodes of one, and copies: 50 epochs of 50 cycles of 38 episodes [Plappert2018]."""
    copies = WORKERS * ROLLOUTS
    epoch = CYCLES * copies * horizon
    return EPOCHS * epoch, epoch, 10 * WORKERS, copies


def robot_defaults(horizon: int) -> dict[str, Any]:
    """Settings of [Plappert2018]: the gradients of 19 workers with 256 transitions each are averaged, a batch of 4,864."""
    return {
        "buffer_size": 1_000_000,
        "learning_starts": 0,
        "gamma": 1 - 1 / horizon,
        "tau": 0.05,
        "train_freq": horizon,
        "gradient_steps": 40,
        "batch_size": WORKERS * 256,
        "learning_rate": 1e-3,
        "noise": 0.2,
        "net_arch": [256, 256, 256],
        "replay_buffer_class": HerReplayBuffer,
    }
