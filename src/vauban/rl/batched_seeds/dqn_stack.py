"""Batched DQN and ReenGAGE for discrete actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from vauban.rl.batched_seeds.networks.mlp import StackedMLP, adam, optimise, update_target
from vauban.rl.batched_seeds.stack import Stack, unsupported
from vauban.rl.envs import World
from vauban.rl.losses import goal_slopes, soft_value
from vauban.rl.recipes import Plan


class DQNStack(Stack):
    """The update of [Levine2023, Eq. G.10 and G.11] and of DQN for all seeds at once; equal to the single agents' updates."""

    supported_settings = (
        "temperature",
        "soft",
        "max_grad_norm",
        "target_update_interval",
        "exploration_initial_eps",
        "exploration_final_eps",
    )

    @classmethod
    def check_plan(cls, plan: Plan, agent: Any) -> World:
        world = super().check_plan(plan, agent)
        if agent.exploration_initial_eps != agent.exploration_final_eps:
            raise unsupported("exploration_initial_eps and exploration_final_eps must be the same")
        if agent.target_update_interval != agent.train_freq.frequency:
            raise unsupported(
                f"target_update_interval={agent.target_update_interval} must be train_freq={agent.train_freq.frequency}"
            )
        return world

    def __init__(self, plan: Plan, seeds: list[int], device: str, goal_weights: Sequence[float] | None = None):
        super().__init__(plan, seeds, device, goal_weights)
        first = self.first
        self.net = StackedMLP([agent.q_net.q_net for agent in self.agents], device)
        self.target = StackedMLP([agent.q_net_target.q_net for agent in self.agents], device)
        self.optimiser = adam(self.net.parameters, first.learning_rate, device)
        soft = getattr(first, "soft", "gradient") if self.learns_slopes else "gradient"
        self.hard, self.draws_actions = soft == "gradient", soft == "actions"
        self.temperature = getattr(first, "temperature", 0.0)
        self.number = int(self.world.action_space.n)  # type: ignore[union-attr]

    def act(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        return self.net(self.by_agent(seen, goal)).argmax(-1).flatten()

    def explore(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        if self.draws_actions:
            values = self.target(self.by_agent(seen, goal)) / self.temperature
            chance = torch.rand(values.shape, dtype=torch.float64, device=self.device, generator=self.generator)
            return (values - (-chance.log()).log()).argmax(-1).flatten()  # Gumbel noise: a draw from SoftMax[values]
        action = self.act(seen, goal)
        chance = torch.rand(action.shape, device=self.device, generator=self.generator)
        return torch.where(chance < self.first.exploration_final_eps, self.random_actions(), action)

    def random_actions(self) -> Tensor:
        size = (len(self.agents) * self.copies,)
        return torch.randint(0, self.number, size, device=self.device, generator=self.generator)

    def before_updates(self) -> None:
        update_target(self.target, self.net, self.first.tau)

    def update(self, data: dict[str, Tensor], rewards: Tensor) -> None:
        gamma, low, learn = self.first.gamma, self.world.low_reward, self.learns_slopes
        leaf = data["goal"].detach().clone().requires_grad_(learn)
        target_slopes = None
        with torch.set_grad_enabled(learn):
            values = self.target(self.features(data["after"], data["achieved"], leaf)).flatten(0, 1)
            following = soft_value(values, self.temperature if learn else 0.0)
            if learn:
                target_slopes = gamma * goal_slopes(following, leaf, train=False)
        if self.hard:
            following = soft_value(values.detach(), 0.0)
        target = rewards + gamma * following.detach().view_as(rewards)
        goal = data["goal"].detach().clone().requires_grad_(learn)
        value = self.net(self.features(data["before"], data["achieved_before"], goal))
        value = value.gather(-1, data["action"].long())
        loss = functional.smooth_l1_loss(value, target, reduction="none").mean(dim=(1, 2)).sum()
        if target_slopes is not None:
            squares = (goal_slopes(value, goal, train=True) - target_slopes).square().sum(-1, keepdim=True)
            loss = loss + self.weighted((squares * (rewards == low)).mean(dim=(1, 2)))
        optimise(loss, self.net.parameters, self.optimiser, self.first.max_grad_norm)

    def networks(self) -> list[tuple[Any, Any]]:
        return [(self.net, lambda agent: agent.q_net.q_net), (self.target, lambda agent: agent.q_net_target.q_net)]
