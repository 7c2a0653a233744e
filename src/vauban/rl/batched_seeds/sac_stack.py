"""Batched SAC and ReenGAGE with hindsight experience replay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from stable_baselines3.sac.policies import LOG_STD_MAX, LOG_STD_MIN
from torch import Tensor

from vauban.rl.batched_seeds.networks.mlp import StackedMLP, adam, optimise, update_target
from vauban.rl.batched_seeds.stack import ContinuousActionStack, unsupported
from vauban.rl.envs import World
from vauban.rl.losses import goal_slopes
from vauban.rl.recipes import Plan

_EPSILON = 1e-6  # Stable-Baselines3's, in the density of a squashed action


class SACStack(ContinuousActionStack):
    """The update of [Levine2023, G.5] and of SAC for all seeds at once; equal to the single agents' updates."""

    supported_settings = ("target_entropy",)

    @classmethod
    def check_plan(cls, plan: Plan, agent: Any) -> World:
        world = super().check_plan(plan, agent)
        if agent.gradient_steps != 1:
            raise unsupported(f"gradient_steps={agent.gradient_steps}: a batched sac makes one update a step")
        return world

    def __init__(self, plan: Plan, seeds: list[int], device: str, goal_weights: Sequence[float] | None = None):
        super().__init__(plan, seeds, device, goal_weights)
        first = self.first
        self.critics = len(first.critic.q_networks)
        for name, of in self._network_getters():
            setattr(self, name, StackedMLP([of(agent) for agent in self.agents], device))
        self.actor_parameters = [*self.body.parameters, *self.mean.parameters, *self.scale.parameters]
        self.critic_parameters = [p for net in self._critics() for p in net.parameters]
        logs = torch.cat([agent.log_ent_coef.detach() for agent in self.agents]).to(device)
        self.log_temperature = logs.view(-1, 1, 1)
        rate = first.learning_rate
        self.actor_optimiser = adam(self.actor_parameters, rate, device)
        self.critic_optimiser = adam(self.critic_parameters, rate, device)
        self.temperature_optimiser = adam([self.log_temperature], rate, device)

    body: StackedMLP
    mean: StackedMLP
    scale: StackedMLP

    def _critics(self, kind: str = "critic") -> list[StackedMLP]:
        return [getattr(self, f"{kind}{i}") for i in range(self.critics)]

    def act(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        return self.mean(self._latent(self.by_agent(seen, goal))).tanh().flatten(0, 1)

    def explore(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        return self.sample_actions(self.by_agent(seen, goal))[0].flatten(0, 1)

    def normal(self, shape: Any) -> Tensor:
        """Standard normal numbers for the policies' actions."""
        return torch.randn(shape, device=self.device, generator=self.generator)

    def sample_actions(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Actions sampled from the policies and their log density (agents, batch, 1), both differentiable."""
        latent = self._latent(features)
        mean, log_scale = self.mean(latent), self.scale(latent).clamp(LOG_STD_MIN, LOG_STD_MAX)
        noise = self.normal(mean.shape)
        action = (mean + log_scale.exp() * noise).tanh()
        density = -0.5 * noise.square() - log_scale - 0.5 * math.log(2 * math.pi)
        return action, (density - torch.log(1 - action.square() + _EPSILON)).sum(-1, keepdim=True)

    def update(self, data: dict[str, Tensor], rewards: Tensor) -> None:
        low, learn = self.world.low_reward, self.learns_slopes
        goal = data["goal"].detach().clone().requires_grad_(learn)
        seen = self.features(data["before"], data["achieved_before"], goal)
        features = seen.detach()
        action, density = self.sample_actions(features)
        temperature = self.log_temperature.detach().exp()
        entropy = (density.detach() + float(self.first.target_entropy)) * self.log_temperature
        optimise(-entropy.mean(dim=(1, 2)).sum(), [self.log_temperature], self.temperature_optimiser)

        target, target_slopes = self._target(data, rewards, temperature)
        pair = torch.cat([seen, data["action"]], dim=-1)
        loss: Any = 0.0
        for critic in self._critics():
            value = critic(pair)
            loss = loss + 0.5 * (value - target).square().mean(dim=(1, 2)).sum()
            if target_slopes is not None:
                squares = (goal_slopes(value, goal, train=True) - target_slopes).square().sum(-1, keepdim=True)
                loss = loss + 0.5 * self.weighted((squares * (rewards == low)).mean(dim=(1, 2)))
        optimise(loss, self.critic_parameters, self.critic_optimiser)

        least = self._least(self._critics(), torch.cat([features, action], dim=-1))
        optimise((temperature * density - least).mean(dim=(1, 2)).sum(), self.actor_parameters, self.actor_optimiser)
        for critic, target_critic in zip(self._critics(), self._critics("target"), strict=True):
            update_target(target_critic, critic, self.first.tau)

    def _target(self, data: dict[str, Tensor], rewards: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor | None]:
        """The target (agents, batch, 1) and its slopes in the goal (agents, batch, goal)."""
        learn, gamma = self.learns_slopes, self.first.gamma
        leaf = data["goal"].detach().clone().requires_grad_(learn)
        with torch.set_grad_enabled(learn):
            ahead = self.features(data["after"], data["achieved"], leaf)
            action, density = self.sample_actions(ahead)
            value = self._least(self._critics("target"), torch.cat([ahead, action], dim=-1)) - temperature * density
            slopes = gamma * goal_slopes(value, leaf, train=False) if learn else None
        return rewards + gamma * value.detach(), slopes

    @staticmethod
    def _least(critics: list[StackedMLP], pair: Tensor) -> Tensor:
        return torch.cat([critic(pair) for critic in critics], dim=-1).min(dim=-1, keepdim=True).values

    def _latent(self, features: Tensor) -> Tensor:
        return self.body(features).relu()

    def networks(self) -> list[tuple[Any, Any]]:
        return [(getattr(self, name), of) for name, of in self._network_getters()]

    def copy_to_agents(self, steps: int) -> None:
        super().copy_to_agents(steps)
        with torch.no_grad():
            for agent, value in zip(self.agents, self.log_temperature.flatten(), strict=True):
                agent.log_ent_coef.copy_(value)

    def _network_getters(self) -> list[tuple[str, Any]]:
        critics: list[tuple[str, Any]] = []
        for i in range(self.critics):
            critics += [
                (f"critic{i}", lambda agent, i=i: agent.critic.q_networks[i]),
                (f"target{i}", lambda agent, i=i: agent.critic_target.q_networks[i]),
            ]
        return [
            ("body", lambda agent: agent.actor.latent_pi),
            ("mean", lambda agent: agent.actor.mu),
            ("scale", lambda agent: agent.actor.log_std),
            *critics,
        ]
