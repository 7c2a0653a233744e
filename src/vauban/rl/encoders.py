"""Encoders of goal sets: DeepSets with squared gates, and a picture with a convolutional network."""

from __future__ import annotations

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, NatureCNN, create_mlp
from torch import Tensor, nn
from torch.nn import functional

from vauban.errors import BadInput

GOAL, STATE = "desired_goal", "observation"


def check_goal_sets(space: spaces.Space) -> tuple[int, int, int]:
    """(state features, most goals, coordinates of a goal) of observations whose goals are sets (n_max, coordinates + gate)."""
    if isinstance(space, spaces.Dict) and GOAL in space.spaces and STATE in space.spaces:
        shape = space[GOAL].shape
        if shape is not None and len(shape) == 2 and shape[1] >= 2:
            return int(spaces.flatdim(space[STATE])), shape[0], shape[1] - 1
    raise BadInput(
        "Multi-ReenGAGE needs goals that are sets: desired_goal of shape (most goals, coordinates + 1), whose last column is the "
        f"gate, 1 for a goal and 0 for a dummy. This environment gives {space}"
    )


class GoalSetEncoder(BaseFeaturesExtractor):
    """(s, sum_i b_i^2 E(s, g_i)) of goal sets with gates b [Levine2023, Eq. 8.16 and G.14].

    Dummies (gate 0) are not encoded: the factor b_i^2 makes their term and its gradient zero.
    """

    def __init__(self, observation_space: spaces.Dict, hidden: tuple[int, ...] = (400, 400), embedding: int = 20):
        state, _, coordinates = check_goal_sets(observation_space)
        super().__init__(observation_space, features_dim=state + embedding)
        self.embedding = embedding
        self.net = nn.Sequential(*create_mlp(state + coordinates, embedding, list(hidden)))

    def items(self, seen: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rows (m,) and columns (m,) of the m real goals of a batch, their gates (m,) and embeddings (m, embedding)."""
        goals, state = seen[GOAL], seen[STATE].float()
        rows, columns = goals[..., -1].detach().nonzero(as_tuple=True)
        chosen = goals[rows, columns].float()
        embedded = self.net(torch.cat([state[rows], chosen[:, :-1]], dim=1))
        return rows, columns, chosen[:, -1], embedded

    def pool(self, rows: Tensor, gates: Tensor, embedded: Tensor, count: int) -> Tensor:
        """sum_i b_i^2 E_i for each of `count` sets, (count, embedding)."""
        zeros = embedded.new_zeros(count, self.embedding)
        return zeros.index_add(0, rows, gates.square()[:, None] * embedded)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        rows, _, gates, embedded = self.items(observations)
        state = observations[STATE].float()
        return torch.cat([state, self.pool(rows, gates, embedded, len(state))], dim=1)


class GoalImageEncoder(BaseFeaturesExtractor):
    """A goal set as a picture for the "Nature" network, concatenated with the state [Levine2023, G.6.6].

    Eight pixels a unit over [-10.5, 10.5]^2: red is b_i^2 on a 4 x 4 square about each goal, green the position, blue the
    position after a step straight on; squares of red and green overlap where and only where the goal is reached.

    Reads states as DriveSeek observes them: position, rounded position, sine and cosine of the direction; goals are integer
    points of [-10, 10]^2. Worlds for which that is right have `goal_image = True`.
    """

    PIXELS, HALF, REACH = 8, 2, 10

    def __init__(self, observation_space: spaces.Dict, embedding: int = 512):
        state, _, coordinates = check_goal_sets(observation_space)
        if state != 6 or coordinates != 2:
            raise BadInput("GoalImageEncoder draws DriveSeek: a state of 6 numbers and goals in the plane")
        super().__init__(observation_space, features_dim=state + embedding)
        self.edge = float(observation_space[STATE].high[0])  # type: ignore[attr-defined]
        self.cells = 2 * self.REACH + 1
        self.side = self.PIXELS * self.cells
        picture = spaces.Box(0.0, 1.0, (3, self.side, self.side))
        self.net = NatureCNN(picture, embedding, normalized_image=True)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        state = observations[STATE].float()
        return torch.cat([state, self.net(self.picture(observations))], dim=1)

    def picture(self, observations: dict[str, Tensor]) -> Tensor:
        """(n, 3, side, side); differentiable in the gates."""
        state, goals = observations[STATE].float(), observations[GOAL].float()
        count, cells = len(state), self.cells
        cell = goals[..., :2].detach().long() + self.REACH
        grid = state.new_zeros(count, cells * cells)
        grid = grid.scatter_add(1, cell[..., 1] * cells + cell[..., 0], goals[..., 2].square())
        width = 2 * self.HALF
        red = functional.conv_transpose2d(
            grid.view(count, 1, cells, cells), state.new_ones(1, 1, width, width), stride=self.PIXELS
        )
        margin = (self.PIXELS - width) // 2
        red = functional.pad(red, [margin, self.side - margin - red.shape[-1]] * 2)
        position, ahead = state[:, :2], state[:, :2] + state[:, [5, 4]]
        edge = self.edge
        ahead = torch.where(ahead > edge, ahead - 2 * edge, torch.where(ahead < -edge, ahead + 2 * edge, ahead))
        return torch.cat([red, self._square(position), self._square(ahead)], dim=1)

    def _square(self, centre: Tensor) -> Tensor:
        pixels = (torch.arange(self.side, device=centre.device) + 0.5) / self.PIXELS - self.REACH - 0.5
        near = (pixels[None, None] - centre[..., None]).abs() < self.HALF / self.PIXELS
        return (near[:, 1, :, None] & near[:, 0, None, :]).float()[:, None]
