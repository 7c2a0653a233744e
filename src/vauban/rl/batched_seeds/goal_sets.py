"""Multi-ReenGAGE and DDPG over sets of goals, every network a slice of one tensor, dummies left out."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from vauban.rl.batched_seeds.ddpg import HEADS
from vauban.rl.batched_seeds.networks.items import Items
from vauban.rl.batched_seeds.networks.mlp import StackedMLP, adam, descend, descend_along, follow
from vauban.rl.batched_seeds.networks.set_encoder import SetEncoder
from vauban.rl.batched_seeds.stack import Boxed, cannot
from vauban.rl.envs import GoalSetWorld, World
from vauban.rl.multi import MultiReenGAGEDDPG
from vauban.rl.recipes import Plan

_SPARE = 6.0  # standard deviations of a batch's number of goals above its mean for which there is room


class OverSets(Boxed):
    """What stacks over sets of goals share, whatever encodes the sets."""

    actor: StackedMLP
    actor_target: StackedMLP
    critic: StackedMLP
    critic_target: StackedMLP

    @classmethod
    def refuse(cls, plan: Plan, agent: Any) -> World:
        world = super().refuse(plan, agent)
        if getattr(agent, "goal_weight", 0) and not isinstance(agent, MultiReenGAGEDDPG):
            raise cannot(f"{plan.algo} learns slopes in coordinates; multi-reengage-ddpg is the one for sets of goals")
        if type(world).item_rewards is not GoalSetWorld.item_rewards:
            raise cannot(f"{plan.env} has item_rewards of its own; a stack knows those of GoalSetWorld")
        return world

    def places(self) -> list[tuple[str, Any]]:
        """Names of networks, each before its target's, and where an agent has them."""
        return [
            *HEADS,
            ("encoder", lambda agent: agent.critic.features_extractor.net),
            ("encoder_target", lambda agent: agent.critic_target.features_extractor.net),
        ]

    def networks(self) -> list[tuple[Any, Any]]:
        return [(getattr(self, name), of) for name, of in self.places()]

    def stacked(self, encoder: type[Any]) -> None:
        """Stack the networks of all agents."""
        for name, of in self.places():
            networks = [of(agent) for agent in self.agents]
            if "encoder" in name:
                setattr(self, name, encoder(networks, self.device, half=self.half))
            else:
                setattr(self, name, StackedMLP(networks, self.device, squash="actor" in name))

    def follow_all(self) -> None:
        """All target networks come nearer."""
        for name, _ in self.places()[::2]:
            follow(getattr(self, f"{name}_target"), getattr(self, name), self.first.tau)


class GoalSetStack(OverSets):
    """The update of [Levine2023, Eq. 8.19 and G.18] for all seeds at once, with one encoder for critic and actor or with two."""

    knows = ("noise", "share_encoder", "encoder")
    encoder: SetEncoder
    encoder_target: SetEncoder
    own_encoder: SetEncoder
    own_encoder_target: SetEncoder

    @classmethod
    def refuse(cls, plan: Plan, agent: Any) -> World:
        world = super().refuse(plan, agent)
        if agent.buffer_size < plan.steps:  # room is made for batches from all episodes so far
            raise cannot(f"buffer_size={agent.buffer_size} is shorter than the training of {plan.steps} steps")
        return world

    def __init__(self, plan: Plan, seeds: list[int], device: str):
        super().__init__(plan, seeds, device)
        self.share = self.first.policy.share_encoder
        self.stacked(SetEncoder)
        rate = self.first.learning_rate
        self.actor_parameters = [*([] if self.share else self.own_encoder.parameters), *self.actor.parameters]
        self.critic_parameters = [*self.encoder.parameters, *self.critic.parameters]
        self.actor_optimiser = adam(self.actor_parameters, rate, device)
        self.critic_optimiser = adam(self.critic_parameters, rate, device)
        self.room = self._room(self.first.learning_starts)
        self.too_many = torch.zeros((), dtype=torch.bool, device=device)

    def _room(self, steps: int) -> int:
        """Room for the goals of every batch after `steps`: drawn from the first k episodes, for whichever k is worst."""
        counts = (self.goals[..., 2] != 0).sum(-1).double()
        number = torch.arange(1, counts.shape[1] + 1, device=counts.device)
        mean, square = counts.cumsum(1) / number, counts.square().cumsum(1) / number
        spread = (square - mean.square()).clamp(min=0).sqrt()
        batch, most = self.first.batch_size, self.goals.shape[-2]
        first = min(max(0, steps // self.world.horizon - 1), counts.shape[1] - 1)
        worst = (batch * mean + _SPARE * batch**0.5 * spread)[:, first:].max()
        return min(batch * most, max(1, -(-math.ceil(worst) // 256)) * 256)

    def check(self) -> None:
        if self.too_many:
            raise cannot(f"a batch had more goals than the {self.room} that there is room for")

    def snapshot(self) -> dict[str, Any]:
        return {**super().snapshot(), "room": self.room}

    def restore(self, snapshot: dict[str, Any]) -> None:
        super().restore(snapshot)
        self.room = snapshot["room"]

    def refit(self, steps: int) -> bool:
        room = self._room(max(steps, self.first.learning_starts))
        smaller = room < 0.95 * self.room
        self.room = room if smaller else self.room
        return smaller

    def act(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        agents = len(self.agents)
        state, goals = seen["observation"].unflatten(0, (agents, -1)), goal.unflatten(0, (agents, -1))
        items = Items.of(goals, goals.shape[1] * goals.shape[2])
        encoder = self.encoder if self.share else self.own_encoder
        pooled = self._pool(encoder, items.lay(state, self.half), items)
        return self.actor(torch.cat([state, pooled], dim=-1)).flatten(0, 1)

    def step(self, data: dict[str, Tensor], rewards: Tensor) -> None:
        items = Items.of(data["goal"], self.room)
        self.too_many |= items.too_many
        state, laid = data["before"], items.lay(data["before"], self.half)
        target, target_slopes = self._target(data, rewards, items)

        seen = self.encoder.hidden(laid)
        sums, counts = items.sums(seen[-1]).requires_grad_(), items.counts.clone().requires_grad_(self.weight > 0)
        pooled = self.encoder.pooled(sums, counts)
        value = self.critic(torch.cat([state, pooled, data["action"]], dim=-1))
        loss = (value - target).square().mean(dim=(1, 2)).sum()
        errors, by_sums = None, None
        if target_slopes is not None:
            # The slope in gate b_i is 2 (h_i . y + c), with y and c the value's gradients in the sum of all h and in their
            # number. What the squared errors add to the gradients in y, c and h_i is linear in the errors.
            by_sums, by_counts = torch.autograd.grad(value.sum(), [sums, counts], create_graph=True)
            with torch.no_grad():
                slopes = 2 * items.gates * (items.dots(seen[-1], by_sums) + items.spread(by_counts)[..., 0])
                errors = 4 * self.weight / state.shape[1] * (slopes - target_slopes)
                in_sums, in_counts = items.sums(seen[-1], errors), items.total(errors)
            loss = loss + (by_sums * in_sums).sum() + (by_counts * in_counts).sum()
        in_heads = torch.autograd.grad(loss, [sums, *self.encoder.last, *self.critic.parameters])
        in_layers = self.encoder.slopes(seen, *items.back(seen[-1], in_heads[0], errors, by_sums))
        descend_along([*in_layers, *in_heads[1:]], self.critic_parameters, self.critic_optimiser)

        with torch.no_grad():
            features = torch.cat([state, self._pool(self.encoder, laid, items)], dim=-1)
        self._improve(state, features, laid, items)
        self.follow_all()

    def _improve(self, state: Tensor, features: Tensor, laid: Tensor, items: Items) -> None:
        """The actor's step, and its own encoder's where it has one."""

        def worse(action: Tensor) -> Tensor:
            return -self.critic(torch.cat([features, action], dim=-1)).mean(dim=(1, 2)).sum()

        if self.share:
            return descend(worse(self.actor(features)), self.actor_parameters, self.actor_optimiser)
        own = self.own_encoder
        seen = own.hidden(laid)
        sums = items.sums(seen[-1]).requires_grad_()
        loss = worse(self.actor(torch.cat([state, own.pooled(sums, items.counts)], dim=-1)))
        in_heads = torch.autograd.grad(loss, [sums, *own.last, *self.actor.parameters])
        in_layers = own.slopes(seen, *items.back(seen[-1], in_heads[0], None, None))
        return descend_along([*in_layers, *in_heads[1:]], self.actor_parameters, self.actor_optimiser)

    def _target(self, data: dict[str, Tensor], rewards: Tensor, items: Items) -> tuple[Tensor, Tensor | None]:
        """The target (agents, batch, 1) and its slopes in the gates (agents, room)."""
        state, gamma, learn = data["after"], self.first.gamma, self.weight > 0
        encoders = [self.encoder_target] if self.share else [self.encoder_target, self.own_encoder_target]
        laid = items.lay(state, self.half)
        hidden = [encoder.hidden(laid)[-1] for encoder in encoders]
        with torch.no_grad():
            inputs = [(items.sums(h), items.counts.clone()) for h in hidden]
        with torch.set_grad_enabled(learn):
            for pair in inputs:
                for tensor in pair:
                    tensor.requires_grad_(learn)
            pools = [encoder.pooled(*pair) for encoder, pair in zip(encoders, inputs, strict=True)]
            action = self.actor_target(torch.cat([state, pools[-1]], dim=-1))
            value = self.critic_target(torch.cat([state, pools[0], action], dim=-1))
        target = rewards + gamma * value.detach()
        if not learn:
            return target, None
        by_input = torch.autograd.grad(value.sum(), [tensor for pair in inputs for tensor in pair])
        slopes: Any = sum(
            items.dots(h, by_sums) + items.spread(by_counts)[..., 0]
            for h, by_sums, by_counts in zip(hidden, by_input[::2], by_input[1::2], strict=True)
        )
        reached = (items.points == items.spread(data["achieved"])).all(-1)
        return target, 2 * items.gates * (reached + gamma * slopes)

    @staticmethod
    def _pool(encoder: SetEncoder, laid: Tensor, items: Items) -> Tensor:
        return encoder.pooled(items.sums(encoder.hidden(laid)[-1]), items.counts)

    def places(self) -> list[tuple[str, Any]]:
        own: list[tuple[str, Any]] = [
            ("own_encoder", lambda agent: agent.actor.features_extractor.net),
            ("own_encoder_target", lambda agent: agent.actor_target.features_extractor.net),
        ]
        return [*super().places(), *([] if self.share else own)]
