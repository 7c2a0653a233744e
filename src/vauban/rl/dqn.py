"""ReenGAGE over DQN: the network also learns its gradient in the goal, with soft targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3 import DQN
from torch import Tensor
from torch.nn import functional

from vauban.errors import BadInput
from vauban.rl.losses import goal_slopes, soft_value
from vauban.rl.reengage import ReenGAGE, minimise

SOFT = ("gradient", "both", "actions")


class ReenGAGEDQN(ReenGAGE, DQN):
    """[Levine2023, G.2] over Stable-Baselines3's DQN.

    temperature: tau of the soft target SoftMax[Q' / tau] . Q' (Eq. G.9); 0 is the maximum.
    soft: where it is used: "gradient" loss only (Eq. G.10, the one that helps), "both" losses (Eq. G.11), or "actions": both, and
        exploring actions are sampled from SoftMax[Q' / tau].

    The gradient of the target is taken with one discount: Eq. G.10 prints a second one, which Eq. 8.7 does not have.
    """

    def __init__(self, *args: Any, temperature: float = 0.5, soft: str = "gradient", **kwargs: Any):
        if soft not in SOFT:
            raise BadInput(f"soft={soft!r}: one of {', '.join(SOFT)}")
        if not 0 <= temperature < float("inf") or (soft == "actions" and temperature == 0):
            raise BadInput(f"temperature={temperature}: zero or more, and above zero to draw actions from it")
        self.temperature, self.soft = float(temperature), soft
        super().__init__(*args, **kwargs)

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """`gradient_steps` updates of the network."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        parameters = list(self.q_net.parameters())
        losses, goal_losses = [], []
        for _ in range(gradient_steps):
            assert self.replay_buffer is not None
            batch: Any = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            self._update_goal_statistics(batch)
            discounts = (1 - batch.dones) * (self.gamma if batch.discounts is None else batch.discounts)
            target, target_slopes = self._target(batch, discounts)
            value, slopes = self._value(batch)
            loss = functional.smooth_l1_loss(value, target)
            losses.append(loss.item())
            if target_slopes is not None and slopes is not None:
                goal_loss = self._slope_loss(slopes, target_slopes, batch)
                goal_losses.append(goal_loss.item())
                loss = loss + self.goal_weight * goal_loss
            minimise(loss, parameters, self.policy.optimizer, self.max_grad_norm)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))
        if goal_losses:
            self.logger.record("train/goal_loss", np.mean(goal_losses))

    def _target(self, batch: Any, discounts: Tensor) -> tuple[Tensor, Tensor | None]:
        seen, hard = batch.next_observations, self.soft == "gradient" or not self.goal_weight
        if not self.goal_weight:
            with torch.no_grad():
                return batch.rewards + discounts * soft_value(self.q_net_target(seen), 0.0), None
        goals = self._goal_leaf(seen)
        values = self.q_net_target(self._with_goals(seen, goals))
        soft = soft_value(values, self.temperature)
        slopes = self._target_slopes(batch, discounts, goal_slopes(soft, goals, train=False))
        return batch.rewards + discounts * (soft_value(values.detach(), 0.0) if hard else soft.detach()), slopes

    def _value(self, batch: Any) -> tuple[Tensor, Tensor | None]:
        chosen = batch.actions.long()
        if not self.goal_weight:
            return self.q_net(batch.observations).gather(1, chosen), None
        goals = self._goal_leaf(batch.observations)
        value = self.q_net(self._with_goals(batch.observations, goals)).gather(1, chosen)
        return value, goal_slopes(value, goals, train=True)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        """As in Stable-Baselines3; with soft="actions" exploring actions are sampled from SoftMax[Q' / tau] instead."""
        if deterministic or self.soft != "actions" or not self.goal_weight:
            return super().predict(observation, state, episode_start, deterministic)
        seen, many = self.policy.obs_to_tensor(observation)
        with torch.no_grad():
            chances = torch.softmax(self.q_net_target(seen) / self.temperature, dim=1)
        actions = torch.multinomial(chances, 1).flatten().cpu().numpy()
        return (actions if many else actions[0]), state
