"""Stack: the agents of all seeds as one batched program; base class of the batched algorithms."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from stable_baselines3 import HerReplayBuffer
from torch import Tensor

from vauban.errors import BadInput
from vauban.rl.batched_seeds.replay import Replay
from vauban.rl.envs import World
from vauban.rl.recipes import Plan, make_agent, make_world


class DeviceNormals:
    """Random generator for worlds that samples on a device."""

    def __init__(self, device: str, generator: torch.Generator):
        self.device, self.generator = device, generator

    def normal(self, *, size: Any) -> Tensor:
        """Standard normal float64 numbers, as numpy's generator gives worlds on the CPU."""
        return torch.randn(size, dtype=torch.float64, device=self.device, generator=self.generator)


_making = threading.Lock()  # an agent seeds the generators of the whole process and draws its first weights from them
_COMMON_SETTINGS = (
    "goal_weight",
    "batch_size",
    "learning_rate",
    "gamma",
    "tau",
    "buffer_size",
    "learning_starts",
    "net_arch",
    "train_freq",
    "gradient_steps",
)


def unsupported(why: str) -> BadInput:
    """The error for a plan that can only be trained seed by seed."""
    return BadInput(f"together: {why}; or leave --together out")


class Stack:
    """n agents of one plan with stacked weights, updated in one batch; `agents` are ordinary agents that receive the weights.

    goal_weights: one for each agent, all zero or all above; None is the plan's.

    A round is `train_freq` steps of the world and the updates that follow. Where these steps are whole episodes, copies of the
    world take them in parallel, an episode each. All random numbers of a stack come from one generator: its seeds are
    independent, but another number of them gives other curves.
    """

    supported_settings: ClassVar[tuple[str, ...]] = ()

    def __init__(self, plan: Plan, seeds: list[int], device: str, goal_weights: Sequence[float] | None = None):
        plans = [plan] * len(seeds) if goal_weights is None else [with_weight(plan, one) for one in goal_weights]
        with _making:
            self.agents: list[Any] = [make_agent(own, seed, "cpu") for own, seed in zip(plans, seeds, strict=True)]
        self.plan, self.first, self.device, self.half = plan, self.agents[0], device, plan.precision == "bf16"
        self.world: World = self.check_plan(plan, self.first)
        weights = [float(getattr(agent, "goal_weight", 0.0)) for agent in self.agents]
        self.learns_slopes = max(weights) > 0
        self.goal_weights = torch.tensor(weights, device=device)
        self.updates_per_round = self.first.gradient_steps
        self.copies, self.moves_per_round = _rounds(self.first.train_freq.frequency, self.world.horizon)
        self.generator = torch.Generator(device).manual_seed(seeds[0])
        self.normals = DeviceNormals(device, self.generator)
        self._start(len(seeds), np.random.default_rng(seeds[0]))

    @classmethod
    def check_plan(cls, plan: Plan, agent: Any) -> World:
        """The world of a plan; raises BadInput for settings with which a stack would not do what the single agents do."""
        world = make_world(plan.env)
        if world is None or not world.moves_tensors:
            raise unsupported(f"{plan.env} does not move tensors: a world whose moves_tensors is True is needed")
        if plan.num_envs != 1:
            raise unsupported(
                f"num_envs={plan.num_envs}: a batched training chooses its copies of the world itself, 1 is needed"
            )
        if world.low_reward is None or type(world).reached is not World.reached:
            raise unsupported(f"{plan.env} is not sparse: its low_reward is None, or its class overrides `reached`")
        supported = {*_COMMON_SETTINGS, *cls.supported_settings}
        if others := sorted(set(plan.settings) - supported):
            raise unsupported(f"{', '.join(others)}: only {', '.join(sorted(supported))} can be set")
        if callable(agent.learning_rate) or agent.gradient_steps < 1 or agent.train_freq.unit.value != "step":
            raise unsupported("a constant learning_rate, gradient_steps above zero and train_freq in steps are needed")
        if plan.precision == "bf16" and not world.goal_set:
            raise BadInput(f"precision bf16 is for encoders of goal sets; {plan.env} has none: use fp32 or tf32")
        copies, _ = _rounds(agent.train_freq.frequency, world.horizon)
        hindsight = isinstance(agent.replay_buffer, HerReplayBuffer)
        least = copies * world.horizon if hindsight else 1
        if agent.learning_starts < least:
            raise unsupported(
                f"learning_starts={agent.learning_starts} is before anything can be learned: {least} or more is needed"
            )
        return world

    def _start(self, seeds: int, rng: np.random.Generator) -> None:
        """Sample the first states and goals of all episodes, and allocate world states and replay buffers."""
        horizon, rows = self.world.horizon, seeds * self.copies
        steps = -(-self.plan.steps // self.copies)
        episodes = -(-steps // horizon) + 1
        starts = {
            key: torch.as_tensor(value).to(self.device).reshape(rows, episodes, *value.shape[1:])
            for key, value in self.world.begin(rows * episodes, rng).items()
        }
        self.goals = starts.pop("goal")
        self.starts, self.state = starts, {key: value[:, 0].clone() for key, value in starts.items()}
        length = episodes * horizon
        if self.first.buffer_size < self.plan.steps:
            length = min(max(1, self.first.buffer_size // self.copies // horizon), episodes) * horizon
            if self.moves_per_round % horizon:
                raise unsupported(
                    f"buffer_size={self.first.buffer_size} is shorter than the training of {self.plan.steps} steps"
                )
        buffer = self.first.replay_buffer
        relabelled = buffer.her_ratio if isinstance(buffer, HerReplayBuffer) else None
        goals = self.goals.unflatten(0, (seeds, self.copies))
        self.replay = Replay(self.world, goals, length, relabelled, self.generator)

    @property
    def steps_per_round(self) -> int:
        """Steps of one seed in a round."""
        return self.copies * self.moves_per_round

    def round(self) -> None:
        """Take the steps and updates of a round, for every seed."""
        for _ in range(self.moves_per_round):
            self.move()
        self.before_updates()
        for _ in range(self.updates_per_round):
            self.update(*self.replay.sample(self.first.batch_size))

    @torch.no_grad()
    def move(self, at_random: bool = False) -> None:
        """Take one step of every copy, with random actions if `at_random`, and store it in the replay buffer."""
        clock, horizon = self.replay.clock, self.world.horizon
        episode, first_step = clock // horizon, clock % horizon == 0
        for key, start in self.starts.items():
            self.state[key].copy_(torch.where(first_step, start.index_select(1, episode)[:, 0], self.state[key]))
        goal = self.goals.index_select(1, episode)[:, 0]
        seen = {
            "observation": self.world.observe(self.state).float(),
            "achieved_goal": self.world.achieved(self.state).float(),
        }
        action = self.random_actions() if at_random else self.explore(seen, goal)
        state = self.world.move({**self.state, "goal": None}, self.world_action(action), self.normals)
        self.replay.add(
            before=seen["observation"],
            achieved_before=seen["achieved_goal"],
            action=action,
            after=self.world.observe(state),
            achieved=self.world.achieved(state),
        )
        for key, value in self.state.items():
            value.copy_(state[key])

    @torch.no_grad()
    def play(self, episodes: int, seeds: list[int]) -> tuple[Tensor, Tensor]:
        """Mean success and summed reward (agents,) of best actions in `episodes` episodes, one random seed for each agent."""
        starts = [self.world.begin(episodes, np.random.default_rng(seed)) for seed in seeds]
        state: Any = {
            key: torch.as_tensor(np.concatenate([start[key] for start in starts])).to(self.device) for key in starts[0]
        }
        rows = len(seeds) * episodes
        success = torch.zeros(rows, dtype=torch.bool, device=self.device)
        total = torch.zeros(rows, device=self.device)
        for _ in range(self.world.horizon):
            seen = {
                "observation": self.world.observe(state).float(),
                "achieved_goal": self.world.achieved(state).float(),
            }
            state = self.world.move(state, self.world_action(self.act(seen, state["goal"])), self.normals)
            reward = self.world.reward(self.world.achieved(state).float(), state["goal"]).float()
            success |= reward != self.world.low_reward
            total += reward
        return success.view(-1, episodes).float().mean(1), total.view(-1, episodes).mean(1)

    def weighted(self, losses: Tensor) -> Tensor:
        """The sum over agents of each one's loss on slopes (agents,), by its own goal weight."""
        return (self.goal_weights * losses).sum()

    def check_errors(self) -> None:
        """Raise an error that an update could only record on the device."""

    def resize(self, steps: int) -> bool:
        """Adapt the shapes of updates to what comes after `steps`; returns whether they changed."""
        return False

    def features(self, observation: Tensor, achieved: Tensor, goal: Tensor) -> Tensor:
        """Inputs of networks for one goal, (…, features), concatenated in the order of Stable-Baselines3's extractor."""
        parts = {"observation": observation, "achieved_goal": achieved, "desired_goal": goal}
        return torch.cat([parts[key] for key in self.world.observation_space.spaces], dim=-1)

    def by_agent(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        """Inputs of networks for the rows of each agent, (agents, rows of one, features)."""
        features = self.features(seen["observation"], seen["achieved_goal"], goal)
        return features.unflatten(0, (len(self.agents), -1))

    def before_updates(self) -> None:
        """Called in a round after its steps and before its updates."""

    def act(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        """Best actions (rows, …) in the range that networks use; the rows of the first agent come first."""
        raise NotImplementedError

    def explore(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        """Actions with exploration, (rows, …)."""
        raise NotImplementedError

    def random_actions(self) -> Tensor:
        """Uniformly random actions for every copy."""
        raise NotImplementedError

    def world_action(self, action: Tensor) -> Tensor:
        """Actions in the range that the world uses."""
        return action

    def update(self, data: dict[str, Tensor], rewards: Tensor) -> None:
        """One update of every agent on given transitions (agents, batch, …)."""
        raise NotImplementedError

    def networks(self) -> list[tuple[Any, Any]]:
        """Pairs of a stacked network and the function that returns it from an agent."""
        raise NotImplementedError

    def _trained(self) -> tuple[list[torch.optim.Optimizer], list[Tensor]]:
        """The optimisers, and all tensors that updates change."""
        optimisers = [value for value in vars(self).values() if isinstance(value, torch.optim.Optimizer)]
        tensors = [tensor for stacked, _ in self.networks() for tensor in stacked.parameters]
        return optimisers, tensors + [p for o in optimisers for group in o.param_groups for p in group["params"]]

    def snapshot(self) -> dict[str, Any]:
        """The state from which a stack of the same plan continues exactly as this one does."""
        optimisers, tensors = self._trained()
        return {
            "tensors": [tensor.detach().cpu() for tensor in tensors],
            "optimisers": [optimiser.state_dict() for optimiser in optimisers],
            "state": {key: value.cpu() for key, value in self.state.items()},
            "replay": self.replay.snapshot(),
            "generator": self.generator.get_state(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        optimisers, tensors = self._trained()
        with torch.no_grad():
            for tensor, value in zip(tensors, snapshot["tensors"], strict=True):
                tensor.copy_(value)
            for key, value in self.state.items():
                value.copy_(snapshot["state"][key])
        for optimiser, value in zip(optimisers, snapshot["optimisers"], strict=True):
            optimiser.load_state_dict(value)
        self.replay.restore(snapshot["replay"])
        self.generator.set_state(snapshot["generator"])

    def copy_to_agents(self, steps: int) -> None:
        """Copy the stacked weights to the agents, and the number of steps."""
        for stacked, network_of in self.networks():
            stacked.copy_into([network_of(agent) for agent in self.agents])
        for agent in self.agents:
            agent.num_timesteps = steps


class ContinuousActionStack(Stack):
    """Stack of agents with continuous actions, scaled to [-1, 1], that explore with normal noise."""

    def __init__(self, plan: Plan, seeds: list[int], device: str, goal_weights: Sequence[float] | None = None):
        super().__init__(plan, seeds, device, goal_weights)
        space: Any = self.world.action_space
        low, high = (torch.as_tensor(bound, device=device) for bound in (space.low, space.high))
        self.low, self.span, self.actions = low, (high - low) / 2, tuple(space.shape)
        noise = self.first.action_noise
        self.sigma = torch.as_tensor(0.0 if noise is None else noise._sigma, dtype=torch.float32).to(device)

    def explore(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        action = self.act(seen, goal)
        noise = torch.randn(action.shape, device=self.device, generator=self.generator)
        return (action + noise * self.sigma).clamp(-1, 1)

    def random_actions(self) -> Tensor:
        rows = len(self.agents) * self.copies
        return torch.rand(rows, *self.actions, device=self.device, generator=self.generator) * 2 - 1

    def world_action(self, action: Tensor) -> Tensor:
        return self.low + (action + 1) * self.span


def with_weight(plan: Plan, goal_weight: float) -> Plan:
    """The same plan with another goal weight."""
    return replace(plan, settings={**plan.settings, "goal_weight": goal_weight})


def _rounds(frequency: int, horizon: int) -> tuple[int, int]:
    """Copies of the world and steps of each that make up `frequency` steps: whole episodes in parallel where that is possible."""
    return (frequency // horizon, horizon) if frequency % horizon == 0 else (1, frequency)
