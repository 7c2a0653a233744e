"""DriveSeek and NoisySeek: reach any of up to 200 goals that are given at test time."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from vauban.errors import BadInput
from vauban.rl.envs.canvas import Canvas
from vauban.rl.envs.registry import ENVIRONMENTS
from vauban.rl.envs.world import Array, State, World, box, library, whole


class GoalSetWorld(World):
    """Worlds whose goals are integer points of the plane; R = 1 if the rounded position is one of them [Levine2023, 8.5].

    A goal set is (n_max, 3) integers: two coordinates and the gate b_i, 1 for a goal and 0 for a dummy, whose coordinates
    are 0 [Levine2023, G.6.1]. Goals stay where they are when reached.
    """

    low_reward = 0.0
    goal_set = True
    exploration_noise = 0.1
    training_steps = 160_000
    evaluation_interval = 4_000
    evaluation_episodes = 100

    def __init__(self, reach: float, features: int, horizon: int = 40, max_goals: int = 200):
        self.horizon, self.max_goals = whole("horizon", horizon, 1), whole("max_goals", max_goals, 1)
        self.observation_space = spaces.Dict(
            observation=box(-reach, reach, features),
            achieved_goal=box(-reach, reach, 2),
            desired_goal=box(-128, 127, self.max_goals, 3, dtype=np.int8),
        )

    def achieved(self, state: Any) -> Any:
        return state["position"].round()

    def item_rewards(self, achieved: Any, desired: Any) -> Any:
        """R_item for every goal of the sets, (…, n_max); works on arrays and on tensors."""
        same = (desired[..., :2] == achieved[..., None, :]).all(-1)
        return same * (desired[..., 2] != 0)

    def reward(self, achieved: Any, desired: Any) -> Any:
        return self.item_rewards(achieved, desired).any(-1) * np.float32(1)

    def pack(self, sets: list[Array]) -> Array:
        """Goal sets (k_i, 2) as one array (n, n_max, 3) with gates and dummies."""
        packed = np.zeros((len(sets), self.max_goals, 3), np.int8)
        for row, points in zip(packed, sets, strict=True):
            row[: len(points), :2], row[: len(points), 2] = points, 1
        return packed

    def draw(self, path: list[State]) -> Array:
        """Goals not reached in cyan, reached in blue, other rounded positions in magenta [Levine2023, Figure 8.4]."""
        goals = path[0]["goal"][0]
        goals = goals[goals[:, 2] != 0, :2].astype(float)
        points = np.concatenate([state["position"] for state in path])
        rounded = np.unique(np.rint(points), axis=0)
        seen = (rounded[:, None] == goals[None]).all(-1)
        reach = max(10.5, float(np.abs(points).max()) + 1, float(np.abs(goals).max(initial=0)) + 1)
        canvas = Canvas(reach)
        canvas.squares(goals[~seen.any(0)], "cyan", 0.8)
        canvas.squares(goals[seen.any(0)], "blue", 0.8)
        canvas.squares(rounded[~seen.any(1)], "magenta", 0.4)
        canvas.path(points)
        return canvas.pixels


@ENVIRONMENTS.register("DriveSeek-v0")
class DriveSeek(GoalSetWorld):
    """Speed 1 on the torus [-10, 10]^2; the action in [-0.5, 0.5] turns the velocity, then the position moves.

    `edge` is where the position wraps around: 10 as in the thesis's text; at 10.5 points on the rim have whole cells too.

    Starts at (0, 0) with angle 0, 40 steps; n uniform in 1..200 goals, without replacement among the 21 x 21 integer points
    [Levine2023, 8.5.1, G.6.4.1]. Observed: position, rounded position, sine and cosine of the velocity.
    """

    moves_tensors = True
    goal_image = True
    exploration_noise = 0.05

    def __init__(self, horizon: int = 40, max_goals: int = 200, edge: float = 10.0):
        if not 10 <= edge <= 10.5:
            raise BadInput(f"edge={edge}: between 10 and 10.5, so that every position rounds to a point of the grid")
        super().__init__(edge, 6, horizon, max_goals)
        if self.max_goals > 21**2:
            raise BadInput(f"max_goals={max_goals}: DriveSeek has {21**2} points for goals")
        self.edge = float(edge)
        self.action_space = box(-0.5, 0.5, 1)
        axis = np.arange(-10, 11)
        self._points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)

    def begin(self, copies: int, rng: np.random.Generator) -> State:
        counts = rng.integers(1, self.max_goals + 1, copies)
        sets = [self._points[rng.choice(len(self._points), n, replace=False)] for n in counts]
        return {"position": np.zeros((copies, 2)), "angle": np.zeros(copies), "goal": self.pack(sets)}

    def move(self, state: Any, actions: Any, rng: Any) -> Any:
        xp = library(state["angle"])
        angle = state["angle"] + xp.asarray(actions, dtype=xp.float64).reshape(-1).clip(-0.5, 0.5)
        position = state["position"] + xp.stack([xp.cos(angle), xp.sin(angle)], -1)
        position = xp.where(position > self.edge, position - 2 * self.edge, position)
        position = xp.where(position < -self.edge, position + 2 * self.edge, position)
        return {"position": position, "angle": angle, "goal": state["goal"]}

    def observe(self, state: Any) -> Any:
        xp, angle = library(state["angle"]), state["angle"][:, None]
        return xp.concatenate([state["position"], self.achieved(state), xp.sin(angle), xp.cos(angle)], -1)


@ENVIRONMENTS.register("NoisySeek-v0")
class NoisySeek(GoalSetWorld):
    """s' ~ N(s + a, I) in the plane, |a|_2 <= 1 (longer actions are shortened), from (0, 0), 40 steps.

    Goals come in clusters: geometric(0.15) clusters with centres N(0, 10^2), weights Dirichlet(1), n' uniform in 1..200 goals at
    N(centre, 2^2), rounded, duplicates dropped [Levine2023, 8.5.1, G.6.4.2]. Observed: position and rounded position.
    """

    moves_tensors = True

    def __init__(self, horizon: int = 40, max_goals: int = 200):
        super().__init__(float("inf"), 4, horizon, max_goals)
        self.action_space = box(-1, 1, 2)

    def begin(self, copies: int, rng: np.random.Generator) -> State:
        return {"position": np.zeros((copies, 2)), "goal": self.pack([self._goals(rng) for _ in range(copies)])}

    def _goals(self, rng: np.random.Generator) -> Array:
        clusters = rng.geometric(0.15)
        number = rng.integers(1, self.max_goals + 1)
        centres = rng.normal(0, 10, (clusters, 2))
        owner = rng.choice(clusters, number, p=rng.dirichlet(np.ones(clusters)))
        goals = np.rint(centres[owner] + rng.normal(0, 2, (number, 2)))
        return np.unique(np.clip(goals, -128, 127), axis=0)

    def move(self, state: Any, actions: Any, rng: Any) -> Any:
        xp = library(state["position"])
        actions = xp.asarray(actions, dtype=xp.float64)
        step = actions / ((actions**2).sum(-1) ** 0.5).clip(1)[:, None]
        position = state["position"] + step + rng.normal(size=step.shape)
        return {"position": position, "goal": state["goal"]}

    def observe(self, state: Any) -> Any:
        xp = library(state["position"])
        return xp.concatenate([state["position"], self.achieved(state)], -1)

    def greedy(self, observation: dict[str, Array]) -> Array:
        return greedy(observation)


def greedy(observation: dict[str, Array]) -> Array:
    """Actions of the perfect greedy agent of Figure 8.4 for n copies: straight to the nearest goal, at most one unit."""
    position, goals = observation["observation"][:, :2], observation["desired_goal"].astype(float)
    offset = goals[..., :2] - position[:, None]
    distance = np.where(goals[..., 2] != 0, np.linalg.norm(offset, axis=-1), np.inf)
    nearest = distance.argmin(-1)
    copies = np.arange(len(position))
    return offset[copies, nearest] / np.maximum(1, distance[copies, nearest])[:, None]
