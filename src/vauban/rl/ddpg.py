"""ReenGAGE over DDPG: the critic also learns its gradient in the goal."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3 import DDPG
from stable_baselines3.common.utils import polyak_update
from torch import Tensor
from torch.nn import functional

from vauban.rl.losses import goal_slopes
from vauban.rl.reengage import ReenGAGE, minimise


class ReenGAGEDDPG(ReenGAGE, DDPG):
    """[Levine2023, Eq. 8.8 and 8.9] over Stable-Baselines3's DDPG, with or without `HerReplayBuffer`."""

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """`gradient_steps` updates; one backward pass for both losses of the critic, none into its weights for the actor's."""
        self.policy.set_training_mode(True)
        self._update_learning_rate([self.actor.optimizer, self.critic.optimizer])
        critic_parameters, actor_parameters = list(self.critic.parameters()), list(self.actor.parameters())
        actor_losses, critic_losses, goal_losses = [], [], []
        for _ in range(gradient_steps):
            self._n_updates += 1
            assert self.replay_buffer is not None
            batch: Any = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            self._update_goal_statistics(batch)
            discounts = (1 - batch.dones) * (self.gamma if batch.discounts is None else batch.discounts)
            target, target_slopes = self._target(batch, discounts)
            values, slopes = self._values(batch)
            loss: Any = sum(functional.mse_loss(value, target) for value in values)
            critic_losses.append(loss.item())
            if target_slopes is not None:
                goal_loss: Any = sum(self._slope_loss(slope, target_slopes, batch) for slope in slopes)
                goal_losses.append(goal_loss.item())
                loss = loss + self.goal_weight * goal_loss
            minimise(loss, critic_parameters, self.critic.optimizer)

            actor_loss = self._actor_loss(batch.observations)
            actor_losses.append(actor_loss.item())
            minimise(actor_loss, actor_parameters, self.actor.optimizer)

            self._update_targets()
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/actor_loss", np.mean(actor_losses))
        self.logger.record("train/critic_loss", np.mean(critic_losses))
        if goal_losses:
            self.logger.record("train/goal_loss", np.mean(goal_losses))

    def _update_targets(self) -> None:
        """Move the target networks by tau towards the trained ones."""
        polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
        polyak_update(self.actor.parameters(), self.actor_target.parameters(), self.tau)
        polyak_update(self.critic_batch_norm_stats, self.critic_batch_norm_stats_target, 1.0)
        polyak_update(self.actor_batch_norm_stats, self.actor_batch_norm_stats_target, 1.0)

    def _actor_loss(self, seen: Any) -> Tensor:
        return -self.critic.q1_forward(seen, self.actor(seen)).mean()

    def _target(self, batch: Any, discounts: Tensor) -> tuple[Tensor, Tensor | None]:
        """R + gamma Q'(s', pi'(s', g), g) as (n, 1), and its gradient in g (n, goal); both detached."""
        seen = batch.next_observations
        if not self.goal_weight:
            with torch.no_grad():
                return batch.rewards + discounts * self._next_value(seen), None
        goals = self._goal_leaf(seen)
        value = self._next_value(self._with_goals(seen, goals))
        slopes = self._target_slopes(batch, discounts, goal_slopes(value, goals, train=False))
        return batch.rewards + discounts * value.detach(), slopes

    def _next_value(self, seen: Any) -> Tensor:
        values = self.critic_target(seen, self.actor_target(seen))
        return values[0] if len(values) == 1 else torch.cat(values, dim=1).min(dim=1, keepdim=True).values

    def _values(self, batch: Any) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        """Q(s, a, g) of each critic, and its gradient in g, which can be differentiated again."""
        if not self.goal_weight:
            return self.critic(batch.observations, batch.actions), []
        goals = self._goal_leaf(batch.observations)
        values = self.critic(self._with_goals(batch.observations, goals), batch.actions)
        return values, [goal_slopes(value, goals, train=True) for value in values]
