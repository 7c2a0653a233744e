"""DriveSeek seen as a picture, by stacked convolutional networks: Multi-ReenGAGE and DDPG for all seeds at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vauban.rl.encoders import GoalImageEncoder
from vauban.rl.recipes import Plan
from vauban.rl.together.goal_sets import OverSets
from vauban.rl.together.nets import adam, descend

_BLOCK = 4  # pixels; the stride of the first convolution, and half of what it sees in each direction


class StackedCNN:
    """n of the library's "Nature" networks: three convolutions and a layer, ReLU after each.

    Pictures come by blocks of 4 x 4 pixels, whose 48 numbers are channels: the first convolution (8 x 8, stride 4) is then one of
    2 x 2 with stride 1, the same products in an order that suits a GPU. `half`: products of bfloat16 numbers.
    """

    def __init__(self, networks: Sequence[Any], device: str, *, half: bool):
        self.half = half
        columns = list(zip(*[_layers(network) for network in networks], strict=True))
        self.strides = [1, *(column[0].stride[0] for column in columns[1:-1])]
        self.parameters: list[Tensor] = []
        for column in columns:
            self.parameters.append(torch.stack([m.weight.detach() for m in column]).to(device).contiguous())
            self.parameters.append(torch.stack([m.bias.detach() for m in column]).to(device))

    def __call__(self, pictures: Tensor, along: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """(n, batch, 48, blocks, blocks) to (n, batch, features), and the derivative of that along changes of the first channels.

        A ReLU network is linear where it does not bend, so the derivative is one more pass, through the same gates.
        """
        kind = torch.bfloat16 if self.half else torch.float32
        weights, biases = ([p.to(kind) for p in self.parameters[i::2]] for i in (0, 1))
        n, out, _, side, _ = weights[0].shape
        parts = side // _BLOCK
        by_pixel = weights[0].view(n, out, 3, parts, _BLOCK, parts, _BLOCK)
        weights[0] = by_pixel.permute(0, 1, 2, 4, 6, 3, 5).reshape(n, out, 3 * _BLOCK**2, parts, parts)
        said, changes = [], []
        for k, x in enumerate(pictures.to(kind)):
            dx = None if along is None else along[k].to(kind)
            for weight, bias, stride in zip(weights[:-1], biases[:-1], self.strides, strict=True):
                kernel = weight[k].contiguous(memory_format=torch.channels_last)
                x = functional.conv2d(x, kernel, bias[k], stride).relu()
                if dx is not None:
                    dx = torch.where(x > 0, functional.conv2d(dx, kernel[:, : dx.shape[1]], None, stride), 0)
            x = functional.linear(x.flatten(1), weights[-1][k], biases[-1][k]).relu()
            said.append(x)
            if dx is not None:
                changes.append(torch.where(x > 0, functional.linear(dx.flatten(1), weights[-1][k]), 0))
        return torch.stack(said).float(), torch.stack(changes).float() if changes else None

    def copy_into(self, networks: Sequence[Any]) -> None:
        """Write each slice back into its network."""
        with torch.no_grad():
            for k, network in enumerate(networks):
                for module, weight, bias in zip(
                    _layers(network), self.parameters[::2], self.parameters[1::2], strict=True
                ):
                    module.weight.copy_(weight[k])
                    module.bias.copy_(bias[k])


def _layers(network: nn.Module) -> list[Any]:
    return [module for module in network.modules() if isinstance(module, nn.Conv2d | nn.Linear)]


class PictureStack(OverSets):
    """The update of [Levine2023, Eq. G.18] on pictures (G.6.6); goals of a set differ, so a gate is a cell of the picture."""

    knows = ("noise", "encoder")
    encoder: StackedCNN
    encoder_target: StackedCNN

    def __init__(self, plan: Plan, seeds: list[int], device: str):
        super().__init__(plan, seeds, device)
        self.stacked(StackedCNN)
        self.draws_like: GoalImageEncoder = self.first.critic.features_extractor
        self.critic_parameters = [*self.encoder.parameters, *self.critic.parameters]
        self.actor_optimiser = adam(self.actor.parameters, self.first.learning_rate, device)
        self.critic_optimiser = adam(self.critic_parameters, self.first.learning_rate, device)

    def act(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        agents = len(self.agents)
        state, goals = seen["observation"].unflatten(0, (agents, -1)), goal.unflatten(0, (agents, -1))
        features = self._features(self.encoder, state, self.cells(goals))
        return self.actor(features).flatten(0, 1)

    def step(self, data: dict[str, Tensor], rewards: Tensor) -> None:
        cells, state = self.cells(data["goal"]), data["before"]
        target, target_slopes = self._target(data, rewards, cells)
        errors = None
        if target_slopes is not None:
            # What the squared errors add to the gradient is that of the value's derivative along the errors.
            leaf = cells.clone().requires_grad_()
            value = self.critic(torch.cat([self._features(self.encoder, state, leaf), data["action"]], dim=-1))
            (by_cell,) = torch.autograd.grad(value.sum(), leaf)
            errors = 4 * self.weight / cells.shape[1] * (2 * by_cell - target_slopes) * cells.square()
        seen, changes = self.encoder(self.picture(state, cells), None if errors is None else self._goals(errors))
        pair = torch.cat([state, seen, data["action"]], dim=-1)
        loss = (self.critic(pair) - target).square().mean(dim=(1, 2)).sum()
        if changes is not None:
            still = torch.zeros_like
            loss = (
                loss + self.critic.along(pair, torch.cat([still(state), changes, still(data["action"])], dim=-1)).sum()
            )
        descend(loss, self.critic_parameters, self.critic_optimiser)
        with torch.no_grad():
            features = self._features(self.encoder, state, cells)
        worse = -self.critic(torch.cat([features, self.actor(features)], dim=-1)).mean(dim=(1, 2)).sum()
        descend(worse, self.actor.parameters, self.actor_optimiser)
        self.follow_all()

    def _target(self, data: dict[str, Tensor], rewards: Tensor, cells: Tensor) -> tuple[Tensor, Tensor | None]:
        """The target (agents, batch, 1) and its slopes in the gates, cell by cell."""
        gamma, learn = self.first.gamma, self.weight > 0
        leaf = cells.clone().requires_grad_(learn)
        with torch.set_grad_enabled(learn):
            features = self._features(self.encoder_target, data["after"], leaf)
            value = self.critic_target(torch.cat([features, self.actor_target(features)], dim=-1))
        target = rewards + gamma * value.detach()
        if not learn:
            return target, None
        (by_cell,) = torch.autograd.grad(value.sum(), leaf)
        achieved = data["achieved"]
        here = self.cells(torch.cat([achieved, torch.ones_like(achieved[..., :1])], dim=-1)[:, :, None])
        return target, 2 * (here + gamma * by_cell)

    def cells(self, goals: Tensor) -> Tensor:
        """Goal sets (agents, sets, n_max, 3) as gates of cells (agents, sets, side, side), rows from below."""
        drawn = self.draws_like
        side = drawn.cells
        place = (goals[..., :2].long() + drawn.REACH).clamp(0, side - 1)
        nothing = torch.zeros(*goals.shape[:2], side * side, device=goals.device)
        gates = goals[..., 2].float()
        return nothing.scatter_add(2, place[..., 1] * side + place[..., 0], gates).unflatten(2, (side, side))

    def _features(self, encoder: StackedCNN, state: Tensor, cells: Tensor) -> Tensor:
        return torch.cat([state, encoder(self.picture(state, cells))[0]], dim=-1)

    def picture(self, state: Tensor, cells: Tensor) -> Tensor:
        """`GoalImageEncoder.picture` by blocks: (agents, batch, 48, blocks, blocks), channels last in memory."""
        drawn = self.draws_like
        layers = [self._goals(cells)]
        edge, position = drawn.edge, state[..., :2]
        ahead = position + state[..., 4:6].flip(-1)
        ahead = torch.where(ahead > edge, ahead - 2 * edge, torch.where(ahead < -edge, ahead + 2 * edge, ahead))
        centres = (torch.arange(drawn.side, device=state.device) + 0.5) / drawn.PIXELS - drawn.REACH - 0.5
        for place in (position, ahead):
            near = ((centres - place[..., None]).abs() < drawn.HALF / drawn.PIXELS).to(layers[0].dtype)
            layers.append(_by_blocks(_outer(near[..., 1, :], near[..., 0, :])))
        return torch.cat([layer.movedim(2, -1) for layer in layers], dim=-1).movedim(-1, 2)

    def _goals(self, cells: Tensor) -> Tensor:
        """The first 16 channels of a picture, linear in the cells."""
        drawn, kind = self.draws_like, torch.bfloat16 if self.half else torch.float32
        low, high = drawn.PIXELS // 2 - drawn.HALF, drawn.PIXELS // 2 + drawn.HALF
        pixel = torch.arange(drawn.side, device=cells.device) % drawn.PIXELS
        filled = ((pixel >= low) & (pixel < high)).to(kind)
        times = drawn.PIXELS // _BLOCK
        wide = cells.to(kind)[..., :, None, :, None].expand(*cells.shape[:3], times, -1, times).flatten(4).flatten(2, 3)
        return _by_blocks(wide[..., None, None] * _outer(filled, filled))


def _outer(rows: Tensor, columns: Tensor) -> Tensor:
    """Pixels (…, blocks, blocks, 4, 4) that are rows (…, pixels) times columns (…, pixels)."""
    rows, columns = (line.unflatten(-1, (-1, _BLOCK)) for line in (rows, columns))
    return rows[..., :, None, :, None] * columns[..., None, :, None, :]


def _by_blocks(pixels: Tensor) -> Tensor:
    """Pixels (…, blocks, blocks, 4, 4) as channels (…, 16, blocks, blocks), which stay last in memory."""
    return pixels.flatten(-2).movedim(-1, -3)
