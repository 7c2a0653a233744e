"""Multi-ReenGAGE: the goal is any of a set, and the critic also learns its gradient in the gate of each goal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.td3.policies import Actor, TD3Policy
from torch import Tensor

from vauban.errors import BadInput
from vauban.rl.ddpg import ReenGAGEDDPG
from vauban.rl.encoders import GOAL, STATE, GoalSetEncoder, check_goal_sets
from vauban.rl.losses import goal_slopes, gradient_loss

ItemRewards = Callable[[Tensor, Tensor], Tensor]


class GoalSetPolicy(TD3Policy):
    """Actor and critic over goal sets; they share the critic's encoder, trained by the critic's loss only.

    `share_encoder=False` gives the actor an encoder of its own (G.6.2). Works with Stable-Baselines3's DDPG and TD3 as well.
    """

    def __init__(self, *args: Any, share_encoder: bool = True, **kwargs: Any):
        self.share_encoder = share_encoder
        kwargs.setdefault("features_extractor_class", GoalSetEncoder)
        kwargs.setdefault("net_arch", [400])
        super().__init__(*args, **kwargs)

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        if self.share_encoder:
            _share_encoder(self.actor, self.critic.features_extractor)
            _share_encoder(self.actor_target, self.critic_target.features_extractor)
            rate: Any = lr_schedule(1)
            self.actor.optimizer = self.optimizer_class(self.actor.parameters(), lr=rate, **self.optimizer_kwargs)  # type: ignore[call-arg]

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "share_encoder": self.share_encoder}


def _share_encoder(actor: Actor, encoder: torch.nn.Module) -> None:
    """Make an actor use an encoder of the critic, without owning its parameters."""
    del actor._modules["features_extractor"]
    actor.__dict__["features_extractor"] = encoder


class MultiReenGAGEDDPG(ReenGAGEDDPG):
    """DDPG with the gradient loss in the gates of a goal set [Levine2023, Eq. 8.19 and G.18].

    item_rewards: (achieved goals (n, k) after the step, goal sets (n, n_max, k + 1)) -> R_item (n, n_max); by default the
        environment's own `item_rewards`.

    goal_weight weighs the sum over the goals of a set, averaged over the batch. Gates are squared, so that slopes are twice and
    squares four times those of Eq. 8.19. The published code averages over 200 gates, missing goals among them as zeros: a
    weight w of that mean is w / 200 here.

    With `GoalSetEncoder` the slope in gate b_i has the closed form 2 b_i E_i . dQ/d(sum): only the heads are differentiated
    twice, the encoder once. Other encoders are differentiated in the gates by autograd.
    """

    policy_aliases: ClassVar[dict[str, Any]] = {"MultiInputPolicy": GoalSetPolicy, "GoalSetPolicy": GoalSetPolicy}

    def __init__(self, *args: Any, item_rewards: ItemRewards | None = None, **kwargs: Any):
        self.item_rewards = item_rewards
        if kwargs.get("normalise_goals"):
            raise BadInput("normalise_goals weighs coordinates of one goal; gates have none: leave it out")
        super().__init__(*args, **kwargs)

    def _setup_model(self) -> None:
        check_goal_sets(self.observation_space)
        super()._setup_model()
        self._closed_form = isinstance(self.critic.features_extractor, GoalSetEncoder)

    def _check_rewards(self) -> None:
        if self.item_rewards is None:
            assert self.env is not None
            try:
                self.env.get_attr("item_rewards", 0)
            except AttributeError:
                raise BadInput(
                    "Multi-ReenGAGE needs the reward of every single goal: give item_rewards=function(achieved, goals)"
                ) from None

    def _rewards_of_items(self, batch: Any) -> Tensor:
        achieved, goals = batch.next_observations["achieved_goal"], batch.observations[GOAL]
        if self.item_rewards is not None:
            return self.item_rewards(achieved, goals).float()
        assert self.env is not None
        rewards: Any = self.env.env_method("item_rewards", achieved, goals, indices=[0])[0]
        return torch.as_tensor(rewards, dtype=torch.float32, device=goals.device)

    def _target(self, batch: Any, discounts: Tensor) -> tuple[Tensor, Tensor | None]:
        """The target (n, 1), and its gradient in the gates: (m,) of the real goals in closed form, or (n, n_max) by autograd."""
        if not self.goal_weight:
            return super()._target(batch, discounts)
        seen, items = batch.next_observations, self._rewards_of_items(batch)
        if self._closed_form:
            value, slopes, rows, columns, gates = self._closed_form_target(seen)
            slopes = 2 * gates * items[rows, columns] + discounts.flatten()[rows] * slopes
        else:
            gates = self._gates(seen)
            value = self._next_value(_with_gates(seen, gates))
            slopes = 2 * gates.detach() * items + discounts * goal_slopes(value, gates, train=False)
        return batch.rewards + discounts * value.detach(), slopes

    def _closed_form_target(self, seen: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        state = seen[STATE].float()
        with torch.no_grad():
            encoder: Any = self.critic_target.features_extractor
            rows, columns, gates, embedded = encoder.items(seen)
            pools, embeddings = [encoder.pool(rows, gates, embedded, len(state)).requires_grad_()], [embedded]
            own: Any = self.actor_target.features_extractor
            if own is not encoder:
                other = own.items(seen)[3]
                embeddings.append(other)
                pools.append(own.pool(rows, gates, other, len(state)).requires_grad_())
        action = self.actor_target.mu(torch.cat([state, pools[-1]], dim=1))
        value = self._least([net(torch.cat([state, pools[0], action], dim=1)) for net in self.critic_target.q_networks])
        by_pool = torch.autograd.grad(value.sum(), pools)
        slopes = sum((e * d[rows]).sum(1) for e, d in zip(embeddings, by_pool, strict=True))
        return value, 2 * gates * slopes, rows, columns, gates

    @staticmethod
    def _least(values: list[Tensor]) -> Tensor:
        return values[0] if len(values) == 1 else torch.cat(values, dim=1).min(dim=1, keepdim=True).values

    def _values(self, batch: Any) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        seen = batch.observations
        if not self.goal_weight:
            return super()._values(batch)
        if not self._closed_form:
            gates = self._gates(seen)
            values = self.critic(_with_gates(seen, gates), batch.actions)
            return values, [goal_slopes(value, gates, train=True) for value in values]
        state, encoder = seen[STATE].float(), self.critic.features_extractor
        assert isinstance(encoder, GoalSetEncoder)
        rows, _, gates, embedded = encoder.items(seen)
        pooled = encoder.pool(rows, gates, embedded, len(state))
        values = tuple(net(torch.cat([state, pooled, batch.actions], dim=1)) for net in self.critic.q_networks)
        by_pool = [goal_slopes(value, pooled, train=True) for value in values]
        return values, [2 * gates * (embedded * slope[rows]).sum(1) for slope in by_pool]

    def _actor_loss(self, seen: Any) -> Tensor:
        if self.actor.features_extractor is not self.critic.features_extractor:
            return super()._actor_loss(seen)
        with torch.no_grad():
            features = self.critic.extract_features(seen, self.critic.features_extractor)
        return -self.critic.q_networks[0](torch.cat([features, self.actor.mu(features)], dim=1)).mean()

    def _slope_loss(self, slopes: Tensor, targets: Tensor, batch: Any) -> Tensor:
        """Squared differences, summed over the goals of a set, averaged over the batch (Eq. G.18)."""
        if self._closed_form:
            return (slopes - targets.detach()).square().sum() / len(batch.rewards)
        return gradient_loss(slopes, targets)

    def _gates(self, seen: Any) -> Tensor:
        gates: Tensor = seen[GOAL][..., -1].float()
        return gates.clone().requires_grad_()


def _with_gates(seen: Any, gates: Tensor) -> dict[str, Tensor]:
    return {**seen, GOAL: torch.cat([seen[GOAL][..., :-1].float(), gates[..., None]], dim=-1)}
