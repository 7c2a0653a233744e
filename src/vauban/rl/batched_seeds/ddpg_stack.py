"""Batched DDPG and ReenGAGE with hindsight experience replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vauban.rl.batched_seeds.networks.mlp import StackedMLP, adam, optimise, update_target
from vauban.rl.batched_seeds.stack import ContinuousActionStack
from vauban.rl.losses import goal_slopes
from vauban.rl.recipes import Plan


class DDPGStack(ContinuousActionStack):
    """The update of [Levine2023, Eq. 8.9] and of DDPG for all seeds at once; equal to the single agents' updates."""

    supported_settings = ("noise",)

    def __init__(self, plan: Plan, seeds: list[int], device: str, goal_weights: Sequence[float] | None = None):
        super().__init__(plan, seeds, device, goal_weights)
        networks = [[of(agent) for agent in self.agents] for _, of in DDPG_NETWORKS]
        self.actor, self.actor_target = (StackedMLP(some, device, squash=True) for some in networks[:2])
        self.critic, self.critic_target = (StackedMLP(some, device) for some in networks[2:])
        self.actor_optimiser = adam(self.actor.parameters, self.first.learning_rate, device)
        self.critic_optimiser = adam(self.critic.parameters, self.first.learning_rate, device)

    def act(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        return self.actor(self.by_agent(seen, goal)).flatten(0, 1)

    def update(self, data: dict[str, Tensor], rewards: Tensor) -> None:
        gamma, low = self.first.gamma, self.world.low_reward
        leaf = data["goal"].detach().clone().requires_grad_(self.learns_slopes)
        with torch.set_grad_enabled(self.learns_slopes):
            ahead = self.features(data["after"], data["achieved"], leaf)
            following = self.critic_target(torch.cat([ahead, self.actor_target(ahead)], dim=-1))
            target_slopes = gamma * goal_slopes(following, leaf, train=False) if self.learns_slopes else None
        target = rewards + gamma * following.detach()
        goal = data["goal"].detach().clone().requires_grad_(self.learns_slopes)
        seen = self.features(data["before"], data["achieved_before"], goal)
        value = self.critic(torch.cat([seen, data["action"]], dim=-1))
        loss = (value - target).square().mean(dim=(1, 2)).sum()
        if target_slopes is not None:
            squares = (goal_slopes(value, goal, train=True) - target_slopes).square().sum(-1, keepdim=True)
            loss = loss + self.weighted((squares * (rewards == low)).mean(dim=(1, 2)))
        optimise(loss, self.critic.parameters, self.critic_optimiser)
        features = seen.detach()
        actor_loss = -self.critic(torch.cat([features, self.actor(features)], dim=-1)).mean(dim=(1, 2)).sum()
        optimise(actor_loss, self.actor.parameters, self.actor_optimiser)
        update_target(self.critic_target, self.critic, self.first.tau)
        update_target(self.actor_target, self.actor, self.first.tau)

    def networks(self) -> list[tuple[Any, Any]]:
        return [(getattr(self, name), of) for name, of in DDPG_NETWORKS]


DDPG_NETWORKS: list[
    tuple[str, Any]
] = [  # attribute of the stack, each followed by its target's, and the network in an agent
    ("actor", lambda agent: agent.actor.mu),
    ("actor_target", lambda agent: agent.actor_target.mu),
    ("critic", lambda agent: agent.critic.q_networks[0]),
    ("critic_target", lambda agent: agent.critic_target.q_networks[0]),
]
