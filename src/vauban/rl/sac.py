"""ReenGAGE over SAC: the critics also learn their gradient in the goal, through the sampled action and its entropy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.utils import polyak_update
from torch import Tensor
from torch.nn import functional

from vauban.rl.losses import goal_slopes
from vauban.rl.reengage import ReenGAGE, minimise


class ReenGAGESAC(ReenGAGE, SAC):
    """[Levine2023, G.5] over Stable-Baselines3's SAC: target gradients include the reparameterised action and its entropy."""

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        """`gradient_steps` updates of temperature, critics and actor."""
        self.policy.set_training_mode(True)
        optimisers = [self.actor.optimizer, self.critic.optimizer]
        if self.ent_coef_optimizer is not None:
            optimisers.append(self.ent_coef_optimizer)
        self._update_learning_rate(optimisers)
        critic_parameters, actor_parameters = list(self.critic.parameters()), list(self.actor.parameters())
        logged: dict[str, list[float]] = {}
        for step in range(gradient_steps):
            assert self.replay_buffer is not None
            batch: Any = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            self._update_goal_statistics(batch)
            discounts = (1 - batch.dones) * (self.gamma if batch.discounts is None else batch.discounts)
            if self.use_sde:
                self.actor.reset_noise()
            actions, log_prob = self.actor.action_log_prob(batch.observations)
            log_prob = log_prob.reshape(-1, 1)
            temperature = self._temperature(log_prob, logged)

            target, target_slopes = self._target(batch, discounts, temperature)
            values, slopes = self._values(batch)
            loss: Any = 0.5 * sum(functional.mse_loss(value, target) for value in values)
            record(logged, "train/critic_loss", loss)
            if target_slopes is not None:
                goal_loss: Any = 0.5 * sum(self._slope_loss(slope, target_slopes, batch) for slope in slopes)
                record(logged, "train/goal_loss", goal_loss)
                loss = loss + self.goal_weight * goal_loss
            minimise(loss, critic_parameters, self.critic.optimizer)

            value = torch.cat(self.critic(batch.observations, actions), dim=1).min(dim=1, keepdim=True).values
            actor_loss = (temperature * log_prob - value).mean()
            record(logged, "train/actor_loss", actor_loss)
            minimise(actor_loss, actor_parameters, self.actor.optimizer)
            if step % self.target_update_interval == 0:
                polyak_update(critic_parameters, self.critic_target.parameters(), self.tau)
                polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for key, numbers in logged.items():
            self.logger.record(key, np.mean(numbers))

    def _temperature(self, log_prob: Tensor, logged: dict[str, list[float]]) -> Tensor:
        """The entropy's weight before this update, which also updates it if it is learned."""
        if self.ent_coef_optimizer is None or self.log_ent_coef is None:
            record(logged, "train/ent_coef", self.ent_coef_tensor)
            return self.ent_coef_tensor
        temperature = self.log_ent_coef.detach().exp()
        assert isinstance(self.target_entropy, float)
        loss = -(self.log_ent_coef * (log_prob + self.target_entropy).detach()).mean()
        record(logged, "train/ent_coef", temperature)
        record(logged, "train/ent_coef_loss", loss)
        minimise(loss, [self.log_ent_coef], self.ent_coef_optimizer)
        return temperature

    def _target(self, batch: Any, discounts: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor | None]:
        seen = batch.next_observations
        if not self.goal_weight:
            with torch.no_grad():
                return batch.rewards + discounts * self._next_value(seen, temperature), None
        goals = self._goal_leaf(seen)
        value = self._next_value(self._with_goals(seen, goals), temperature)
        slopes = self._target_slopes(batch, discounts, goal_slopes(value, goals, train=False))
        return batch.rewards + discounts * value.detach(), slopes

    def _next_value(self, seen: Any, temperature: Tensor) -> Tensor:
        actions, log_prob = self.actor.action_log_prob(seen)
        values = torch.cat(self.critic_target(seen, actions), dim=1).min(dim=1, keepdim=True).values
        return values - temperature * log_prob.reshape(-1, 1)

    def _values(self, batch: Any) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        if not self.goal_weight:
            return self.critic(batch.observations, batch.actions), []
        goals = self._goal_leaf(batch.observations)
        values = self.critic(self._with_goals(batch.observations, goals), batch.actions)
        return values, [goal_slopes(value, goals, train=True) for value in values]


def record(logged: dict[str, list[float]], key: str, value: Tensor) -> None:
    """Add a number to those to be logged."""
    logged.setdefault(key, []).append(value.item())
