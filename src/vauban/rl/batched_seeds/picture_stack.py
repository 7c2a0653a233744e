"""Batched Multi-ReenGAGE and DDPG over goal sets that are encoded as pictures."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vauban.rl.batched_seeds.goal_set_stack import GoalSetStackBase
from vauban.rl.batched_seeds.networks.mlp import adam, optimise
from vauban.rl.batched_seeds.networks.picture_encoder import Scene, StackedCNN, scene
from vauban.rl.encoders import GoalImageEncoder
from vauban.rl.recipes import Plan


class PictureStack(GoalSetStackBase):
    """The update of [Levine2023, Eq. G.18] on pictures (G.6.6) for all seeds at once.

    Gradients are computed for the cells of the grid instead of the gates: gates are 0 or 1, and the goals in a cell share one.
    """

    supported_settings = ("noise", "encoder")
    encoder: StackedCNN
    encoder_target: StackedCNN

    def __init__(self, plan: Plan, seeds: list[int], device: str, goal_weights: Sequence[float] | None = None):
        super().__init__(plan, seeds, device, goal_weights)
        self._stack_networks(StackedCNN)
        self.picture_encoder: GoalImageEncoder = self.first.critic.features_extractor
        self.critic_parameters = [*self.encoder.parameters, *self.critic.parameters]
        self.actor_optimiser = adam(self.actor.parameters, self.first.learning_rate, device)
        self.critic_optimiser = adam(self.critic_parameters, self.first.learning_rate, device)

    def act(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        agents = len(self.agents)
        state, goals = seen["observation"].unflatten(0, (agents, -1)), goal.unflatten(0, (agents, -1))
        features = self._features(self.encoder, state, self.cells(goals))
        return self.actor(features).flatten(0, 1)

    def update(self, data: dict[str, Tensor], rewards: Tensor) -> None:
        cells, state = self.cells(data["goal"]), data["before"]
        target, target_slopes = self._target(data, rewards, cells)
        leaf = cells.clone().requires_grad_(target_slopes is not None)
        seen, jvp = self.encoder(self._scene(state, leaf))
        pair = torch.cat([state, seen, data["action"]], dim=-1)
        value = self.critic(pair)
        loss = (value - target).square().mean(dim=(1, 2)).sum()
        if target_slopes is not None:
            # The squared errors' part of the loss has the gradient of the value's directional derivative along `errors`.
            (cell_gradient,) = torch.autograd.grad(value.sum(), leaf, retain_graph=True)
            errors = (
                4 / cells.shape[1] * self.goal_weights.view(-1, 1, 1, 1) * (2 * cell_gradient - target_slopes) * cells
            )
            constant = torch.zeros_like
            changes = torch.cat([constant(state), jvp(errors), constant(data["action"])], dim=-1)
            loss = loss + self.critic.jvp(pair, changes).sum()
        optimise(loss, self.critic_parameters, self.critic_optimiser)
        with torch.no_grad():
            features = self._features(self.encoder, state, cells)
        actor_loss = -self.critic(torch.cat([features, self.actor(features)], dim=-1)).mean(dim=(1, 2)).sum()
        optimise(actor_loss, self.actor.parameters, self.actor_optimiser)
        self.update_targets()

    def _target(self, data: dict[str, Tensor], rewards: Tensor, cells: Tensor) -> tuple[Tensor, Tensor | None]:
        """The target (agents, batch, 1) and its gradient in the gates, for each cell (agents, batch, side, side)."""
        gamma, learn = self.first.gamma, self.learns_slopes
        leaf = cells.clone().requires_grad_(learn)
        with torch.set_grad_enabled(learn):
            features = self._features(self.encoder_target, data["after"], leaf)
            value = self.critic_target(torch.cat([features, self.actor_target(features)], dim=-1))
        target = rewards + gamma * value.detach()
        if not learn:
            return target, None
        (cell_gradient,) = torch.autograd.grad(value.sum(), leaf)
        achieved = data["achieved"]
        here = self.cells(torch.cat([achieved, torch.ones_like(achieved[..., :1])], dim=-1)[:, :, None])
        return target, 2 * (here + gamma * cell_gradient)

    def cells(self, goals: Tensor) -> Tensor:
        """The number of goals of sets (agents, sets, n_max, 3) in each cell (agents, sets, side, side), lowest row first."""
        encoder = self.picture_encoder
        side = encoder.cells
        cell = goals[..., :2].long() + encoder.REACH
        nothing = torch.zeros(*goals.shape[:2], side * side, device=goals.device)
        gates = goals[..., 2].float()
        return nothing.scatter_add(2, cell[..., 1] * side + cell[..., 0], gates).unflatten(2, (side, side))

    def _features(self, encoder: StackedCNN, state: Tensor, cells: Tensor) -> Tensor:
        return torch.cat([state, encoder(self._scene(state, cells))[0]], dim=-1)

    def _scene(self, state: Tensor, cells: Tensor) -> Scene:
        return scene(self.picture_encoder, state, cells)
