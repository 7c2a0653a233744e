"""Batched Multi-ReenGAGE and DDPG over goal sets; dummy goals are not computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vauban.rl.batched_seeds.ddpg_stack import DDPG_NETWORKS
from vauban.rl.batched_seeds.networks.items import Items
from vauban.rl.batched_seeds.networks.mlp import StackedMLP, adam, apply_gradients, optimise, update_target
from vauban.rl.batched_seeds.networks.set_encoder import SetEncoder
from vauban.rl.batched_seeds.stack import ContinuousActionStack, unsupported
from vauban.rl.envs import GoalSetWorld, World
from vauban.rl.multi import MultiReenGAGEDDPG
from vauban.rl.recipes import Plan

_CAPACITY_DEVIATIONS = 6.0  # capacity: mean number of goals in a batch plus this many standard deviations


class GoalSetStackBase(ContinuousActionStack):
    """Base class of stacks over goal sets, for any encoder of the sets."""

    actor: StackedMLP
    actor_target: StackedMLP
    critic: StackedMLP
    critic_target: StackedMLP

    def __init__(self, plan: Plan, seeds: list[int], device: str, goal_weights: Sequence[float] | None = None):
        super().__init__(plan, seeds, device, goal_weights)
        gates = self.goals[..., 2]
        if ((gates != 0) & (gates != 1)).any() or (gates[..., 1:] > gates[..., :-1]).any():
            raise unsupported(
                f"{plan.env} packs its goals otherwise: gates of 1 come first, then dummies with gates of 0"
            )

    @classmethod
    def check_plan(cls, plan: Plan, agent: Any) -> World:
        world = super().check_plan(plan, agent)
        if getattr(agent, "goal_weight", 0) and not isinstance(agent, MultiReenGAGEDDPG):
            raise unsupported(
                f"{plan.algo} learns gradients in coordinates; multi-reengage-ddpg is the one for sets of goals"
            )
        if type(world).item_rewards is not GoalSetWorld.item_rewards:
            raise unsupported(f"{plan.env} has item_rewards of its own; only those of GoalSetWorld can be batched")
        return world

    def network_getters(self) -> list[tuple[str, Any]]:
        """Attributes of the stack, each followed by its target's, and the functions that return the networks from an agent."""
        return [
            *DDPG_NETWORKS,
            ("encoder", lambda agent: agent.critic.features_extractor.net),
            ("encoder_target", lambda agent: agent.critic_target.features_extractor.net),
        ]

    def networks(self) -> list[tuple[Any, Any]]:
        return [(getattr(self, name), of) for name, of in self.network_getters()]

    def _stack_networks(self, encoder: type[Any]) -> None:
        """Stack the networks of all agents and set the attributes."""
        for name, of in self.network_getters():
            networks = [of(agent) for agent in self.agents]
            if "encoder" in name:
                setattr(self, name, encoder(networks, self.device, half=self.half))
            else:
                setattr(self, name, StackedMLP(networks, self.device, squash="actor" in name))

    def update_targets(self) -> None:
        """Move all target networks towards their networks."""
        for name, _ in self.network_getters()[::2]:
            update_target(getattr(self, f"{name}_target"), getattr(self, name), self.first.tau)


class GoalSetStack(GoalSetStackBase):
    """The update of [Levine2023, Eq. 8.19 and G.18] for all seeds at once, with a shared encoder or with two."""

    supported_settings = ("noise", "share_encoder", "encoder")
    encoder: SetEncoder
    encoder_target: SetEncoder
    own_encoder: SetEncoder
    own_encoder_target: SetEncoder

    @classmethod
    def check_plan(cls, plan: Plan, agent: Any) -> World:
        world = super().check_plan(plan, agent)
        if agent.buffer_size < plan.steps:  # `_capacity_after` assumes batches from all episodes so far
            raise unsupported(f"buffer_size={agent.buffer_size} is shorter than the training of {plan.steps} steps")
        return world

    def __init__(self, plan: Plan, seeds: list[int], device: str, goal_weights: Sequence[float] | None = None):
        super().__init__(plan, seeds, device, goal_weights)
        self.share = self.first.policy.share_encoder
        self._stack_networks(SetEncoder)
        rate = self.first.learning_rate
        self.actor_parameters = [*([] if self.share else self.own_encoder.parameters), *self.actor.parameters]
        self.critic_parameters = [*self.encoder.parameters, *self.critic.parameters]
        self.actor_optimiser = adam(self.actor_parameters, rate, device)
        self.critic_optimiser = adam(self.critic_parameters, rate, device)
        self.capacity = self._capacity_after(self.first.learning_starts)
        self.overflow = torch.zeros((), dtype=torch.bool, device=device)

    def _capacity_after(self, steps: int) -> int:
        """A capacity for the goals of every batch after `steps`, sampled from the first k episodes, for the worst k."""
        counts = (self.goals[..., 2] != 0).sum(-1).double()
        number = torch.arange(1, counts.shape[1] + 1, device=counts.device)
        mean, square = counts.cumsum(1) / number, counts.square().cumsum(1) / number
        spread = (square - mean.square()).clamp(min=0).sqrt()
        batch, most = self.first.batch_size, self.goals.shape[-2]
        first = min(max(0, steps // self.world.horizon - 1), counts.shape[1] - 1)
        worst = (batch * mean + _CAPACITY_DEVIATIONS * batch**0.5 * spread)[:, first:].max()
        return min(batch * most, max(1, -(-math.ceil(worst) // 256)) * 256)

    def check_errors(self) -> None:
        if self.overflow:
            raise unsupported(f"a batch had more goals than the {self.capacity} that fit")

    def snapshot(self) -> dict[str, Any]:
        return {**super().snapshot(), "room": self.capacity}

    def restore(self, snapshot: dict[str, Any]) -> None:
        super().restore(snapshot)
        self.capacity = snapshot["room"]

    def resize(self, steps: int) -> bool:
        capacity = self._capacity_after(max(steps, self.first.learning_starts))
        smaller = capacity < 0.95 * self.capacity
        self.capacity = capacity if smaller else self.capacity
        return smaller

    def act(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        agents = len(self.agents)
        state, goals = seen["observation"].unflatten(0, (agents, -1)), goal.unflatten(0, (agents, -1))
        items = Items.of(goals, goals.shape[1] * goals.shape[2])
        encoder = self.encoder if self.share else self.own_encoder
        pooled = self._pool(encoder, items.encoder_inputs(state, self.half), items)
        return self.actor(torch.cat([state, pooled], dim=-1)).flatten(0, 1)

    def update(self, data: dict[str, Tensor], rewards: Tensor) -> None:
        items = Items.of(data["goal"], self.capacity)
        self.overflow |= items.overflow
        state, inputs = data["before"], items.encoder_inputs(data["before"], self.half)
        target, target_slopes = self._target(data, rewards, items)

        outputs = self.encoder.hidden(inputs)
        sums, counts = items.sums(outputs[-1]).requires_grad_(), items.counts.clone().requires_grad_(self.learns_slopes)
        pooled = self.encoder.pooled(sums, counts)
        value = self.critic(torch.cat([state, pooled, data["action"]], dim=-1))
        loss = (value - target).square().mean(dim=(1, 2)).sum()
        errors, sums_gradient = None, None
        if target_slopes is not None:
            # The slope in gate b_i is 2 (h_i . y + c), with y and c the value's gradients in the sum of all h and in their
            # number. The gradients of the squared errors in y, c and h_i are linear in the errors.
            sums_gradient, counts_gradient = torch.autograd.grad(value.sum(), [sums, counts], create_graph=True)
            with torch.no_grad():
                slopes = (
                    2 * items.gates * (items.dots(outputs[-1], sums_gradient) + items.per_item(counts_gradient)[..., 0])
                )
                errors = 4 / state.shape[1] * self.goal_weights[:, None] * (slopes - target_slopes)
                error_sums, error_totals = items.sums(outputs[-1], errors), items.total(errors)
            loss = loss + (sums_gradient * error_sums).sum() + (counts_gradient * error_totals).sum()
        head_gradients = torch.autograd.grad(loss, [sums, *self.encoder.last, *self.critic.parameters])
        layer_gradients = self.encoder.inner_gradients(
            outputs, *items.backward(outputs[-1], head_gradients[0], errors, sums_gradient)
        )
        apply_gradients([*layer_gradients, *head_gradients[1:]], self.critic_parameters, self.critic_optimiser)

        with torch.no_grad():
            features = torch.cat([state, self._pool(self.encoder, inputs, items)], dim=-1)
        self._update_actor(state, features, inputs, items)
        self.update_targets()

    def _update_actor(self, state: Tensor, features: Tensor, inputs: Tensor, items: Items) -> None:
        """One step of the actor, and of its encoder if it has one of its own."""

        def actor_loss(action: Tensor) -> Tensor:
            return -self.critic(torch.cat([features, action], dim=-1)).mean(dim=(1, 2)).sum()

        if self.share:
            return optimise(actor_loss(self.actor(features)), self.actor_parameters, self.actor_optimiser)
        own = self.own_encoder
        outputs = own.hidden(inputs)
        sums = items.sums(outputs[-1]).requires_grad_()
        loss = actor_loss(self.actor(torch.cat([state, own.pooled(sums, items.counts)], dim=-1)))
        head_gradients = torch.autograd.grad(loss, [sums, *own.last, *self.actor.parameters])
        layer_gradients = own.inner_gradients(outputs, *items.backward(outputs[-1], head_gradients[0], None, None))
        return apply_gradients([*layer_gradients, *head_gradients[1:]], self.actor_parameters, self.actor_optimiser)

    def _target(self, data: dict[str, Tensor], rewards: Tensor, items: Items) -> tuple[Tensor, Tensor | None]:
        """The target (agents, batch, 1) and its gradient in the gates (agents, capacity)."""
        state, gamma, learn = data["after"], self.first.gamma, self.learns_slopes
        encoders = [self.encoder_target] if self.share else [self.encoder_target, self.own_encoder_target]
        inputs = items.encoder_inputs(state, self.half)
        hidden = [encoder.hidden(inputs)[-1] for encoder in encoders]
        with torch.no_grad():
            pools = [(items.sums(h), items.counts.clone()) for h in hidden]
        with torch.set_grad_enabled(learn):
            for pair in pools:
                for tensor in pair:
                    tensor.requires_grad_(learn)
            pooled = [encoder.pooled(*pair) for encoder, pair in zip(encoders, pools, strict=True)]
            action = self.actor_target(torch.cat([state, pooled[-1]], dim=-1))
            value = self.critic_target(torch.cat([state, pooled[0], action], dim=-1))
        target = rewards + gamma * value.detach()
        if not learn:
            return target, None
        gradients = torch.autograd.grad(value.sum(), [tensor for pair in pools for tensor in pair])
        slopes: Any = sum(
            items.dots(h, sums_gradient) + items.per_item(counts_gradient)[..., 0]
            for h, sums_gradient, counts_gradient in zip(hidden, gradients[::2], gradients[1::2], strict=True)
        )
        reached = (items.points == items.per_item(data["achieved"])).all(-1)
        return target, 2 * items.gates * (reached + gamma * slopes)

    @staticmethod
    def _pool(encoder: SetEncoder, inputs: Tensor, items: Items) -> Tensor:
        return encoder.pooled(items.sums(encoder.hidden(inputs)[-1]), items.counts)

    def network_getters(self) -> list[tuple[str, Any]]:
        own: list[tuple[str, Any]] = [
            ("own_encoder", lambda agent: agent.actor.features_extractor.net),
            ("own_encoder_target", lambda agent: agent.actor_target.features_extractor.net),
        ]
        return [*super().network_getters(), *([] if self.share else own)]
