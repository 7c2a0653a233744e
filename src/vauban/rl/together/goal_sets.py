"""Multi-ReenGAGE and DDPG over sets of goals, every network a slice of one tensor, dummies left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vauban.rl.envs import World
from vauban.rl.losses import goal_slopes
from vauban.rl.multi import MultiReenGAGEDDPG
from vauban.rl.recipes import Plan
from vauban.rl.together.nets import StackedMLP, adam, descend, follow
from vauban.rl.together.stack import Boxed, cannot

_SPARE = 6.0  # standard deviations of a batch's number of goals above its mean for which there is room


@dataclass(frozen=True)
class Items:
    """The goals of many sets in a fixed room (agents, room): gates are 0 where the room is not filled.

    `rows`: to which set, over all agents, each goal belongs, (agents * room,). First goals of all sets come first, then second
    ones: neighbours belong to different sets, and sums over sets do not wait for each other.
    """

    rows: Tensor
    points: Tensor
    gates: Tensor
    sets: int
    too_many: Tensor

    @classmethod
    def of(cls, goals: Tensor, room: int) -> Items:
        """Goal sets (agents, sets, n_max, 3) whose goals come before their dummies, as worlds pack them."""
        agents, sets, most, _ = goals.shape
        there = goals[..., 2] != 0
        order = there.sum(-1).argsort(-1, descending=True)
        of_place = there.sum(1)  # how many sets have a goal in each place: those with the most goals
        ends = of_place.cumsum(-1)
        number = torch.arange(room, device=goals.device).expand(agents, room).contiguous()
        place = torch.searchsorted(ends, number, right=True)
        gates = (place < most).float()
        place = place.clamp(max=most - 1)
        rank = (number - (ends - of_place).gather(1, place)).clamp(max=sets - 1)
        rows = (order.gather(1, rank) + sets * torch.arange(agents, device=goals.device)[:, None]).flatten()
        points = goals.flatten(0, 1)[rows, place.flatten(), :2].view(agents, room, 2).float()
        return cls(rows, points, gates, sets, ends[:, -1].max() > room)

    def spread(self, x: Tensor) -> Tensor:
        """What each goal's set has, (agents, sets, …) to (agents, room, …)."""
        return x.flatten(0, 1).index_select(0, self.rows).view(*self.gates.shape, *x.shape[2:])

    def pool(self, embedded: Tensor) -> Tensor:
        """sum_i b_i^2 E_i over each set, (agents, room, n) to (agents, sets, n)."""
        agents, _, size = embedded.shape
        gated = embedded * self.gates[..., None]
        nothing = embedded.new_zeros(agents * self.sets, size)
        return nothing.index_add(0, self.rows, gated.flatten(0, 1)).view(agents, self.sets, size)


class GoalSetStack(Boxed):
    """The update of [Levine2023, Eq. 8.19 and G.18] for all seeds at once, with one encoder for critic and actor or with two."""

    knows = ("noise", "share_encoder")

    @classmethod
    def refuse(cls, plan: Plan, agent: Any) -> World:
        world = super().refuse(plan, agent)
        if getattr(agent, "goal_weight", 0) and not isinstance(agent, MultiReenGAGEDDPG):
            raise cannot(f"{plan.algo} learns slopes in coordinates; multi-reengage-ddpg is the one for sets of goals")
        return world

    def __init__(self, plan: Plan, seeds: list[int], device: str):
        super().__init__(plan, seeds, device)
        self.share = self.first.policy.share_encoder
        for name, of in self._places():
            networks = [of(agent) for agent in self.agents]
            setattr(
                self, name, StackedMLP(networks, device, squash="actor" in name, half=self.half and "encoder" in name)
            )
        rate = self.first.learning_rate
        self.actor_parameters = [*self.actor.parameters, *([] if self.share else self.own_encoder.parameters)]
        self.critic_parameters = [*self.encoder.parameters, *self.critic.parameters]
        self.actor_optimiser = adam(self.actor_parameters, rate, device)
        self.critic_optimiser = adam(self.critic_parameters, rate, device)
        self.room = self._room(self.first.learning_starts)
        self.too_many = torch.zeros((), dtype=torch.bool, device=device)

    actor: StackedMLP
    actor_target: StackedMLP
    critic: StackedMLP
    critic_target: StackedMLP
    encoder: StackedMLP
    encoder_target: StackedMLP
    own_encoder: StackedMLP
    own_encoder_target: StackedMLP

    def _room(self, steps: int) -> int:
        """Room for the goals of every batch after `steps`: drawn from the first k episodes, for whichever k is worst."""
        counts = (self.goals[..., 2] != 0).sum(-1).double()
        number = torch.arange(1, counts.shape[1] + 1, device=counts.device)
        mean, square = counts.cumsum(1) / number, counts.square().cumsum(1) / number
        spread = (square - mean.square()).clamp(min=0).sqrt()
        batch, most = self.first.batch_size, self.goals.shape[-2]
        first = min(max(0, steps // self.world.horizon - 1), counts.shape[1] - 1)
        worst = (batch * mean + _SPARE * batch**0.5 * spread)[:, first:].max()
        return min(batch * most, -(-int(worst) // 256) * 256)

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
        pooled = items.pool(self._embed(encoder, state, items))
        return self.actor(torch.cat([state, pooled], dim=-1)).flatten(0, 1)

    def step(self, data: dict[str, Tensor], rewards: Tensor) -> None:
        items = Items.of(data["goal"], self.room)
        self.too_many |= items.too_many
        state, gates = data["before"], items.gates
        target, target_slopes = self._target(data, rewards, items)
        embedded = self._embed(self.encoder, state, items)
        pooled = items.pool(embedded)
        value = self.critic(torch.cat([state, pooled, data["action"]], dim=-1))
        loss = (value - target).square().mean(dim=(1, 2)).sum()
        if target_slopes is not None:
            by_pool = goal_slopes(value, pooled, train=True)
            slopes = 2 * gates * (embedded * items.spread(by_pool)).sum(-1)
            loss = loss + self.weight * (slopes - target_slopes).square().sum() / items.sets
        descend(loss, self.critic_parameters, self.critic_optimiser)

        with torch.no_grad():
            features = torch.cat([state, items.pool(self._embed(self.encoder, state, items))], dim=-1)
        if self.share:
            action = self.actor(features)
        else:
            action = self.actor(torch.cat([state, items.pool(self._embed(self.own_encoder, state, items))], dim=-1))
        actor_loss = -self.critic(torch.cat([features, action], dim=-1)).mean(dim=(1, 2)).sum()
        descend(actor_loss, self.actor_parameters, self.actor_optimiser)
        for name, _ in self._places()[::2]:
            follow(getattr(self, f"{name}_target"), getattr(self, name), self.first.tau)

    def _target(self, data: dict[str, Tensor], rewards: Tensor, items: Items) -> tuple[Tensor, Tensor | None]:
        """The target (agents, batch, 1) and its slopes in the gates (agents, room)."""
        state, gamma, learn = data["after"], self.first.gamma, self.weight > 0
        encoders = [self.encoder_target] if self.share else [self.encoder_target, self.own_encoder_target]
        with torch.no_grad():
            embeddings = [self._embed(encoder, state, items) for encoder in encoders]
            pools = [items.pool(embedded).requires_grad_(learn) for embedded in embeddings]
        with torch.set_grad_enabled(learn):
            action = self.actor_target(torch.cat([state, pools[-1]], dim=-1))
            value = self.critic_target(torch.cat([state, pools[0], action], dim=-1))
        target = rewards + gamma * value.detach()
        if not learn:
            return target, None
        by_pool = torch.autograd.grad(value.sum(), pools)
        slopes: Any = sum((e * items.spread(d)).sum(-1) for e, d in zip(embeddings, by_pool, strict=True))
        reached = (items.points == items.spread(data["achieved"])).all(-1)
        return target, 2 * items.gates * (reached + gamma * slopes)

    def _embed(self, encoder: StackedMLP, state: Tensor, items: Items) -> Tensor:
        return encoder(torch.cat([items.spread(state), items.points], dim=-1))

    def networks(self) -> list[tuple[Any, Any]]:
        return [(getattr(self, name), of) for name, of in self._places()]

    def _places(self) -> list[tuple[str, Any]]:
        """Names of networks, each before its target's, and where an agent has them."""
        own: list[tuple[str, Any]] = [
            ("own_encoder", lambda agent: agent.actor.features_extractor.net),
            ("own_encoder_target", lambda agent: agent.actor_target.features_extractor.net),
        ]
        return [
            ("actor", lambda agent: agent.actor.mu),
            ("actor_target", lambda agent: agent.actor_target.mu),
            ("critic", lambda agent: agent.critic.q_networks[0]),
            ("critic_target", lambda agent: agent.critic_target.q_networks[0]),
            ("encoder", lambda agent: agent.critic.features_extractor.net),
            ("encoder_target", lambda agent: agent.critic_target.features_extractor.net),
            *([] if self.share else own),
        ]
