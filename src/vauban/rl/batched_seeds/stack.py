"""A stack of agents: what every algorithm shares, which is how seeds live in their worlds side by side."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from stable_baselines3 import HerReplayBuffer
from torch import Tensor

from vauban.errors import BadInput
from vauban.rl.batched_seeds.replay import Replay
from vauban.rl.envs import World
from vauban.rl.recipes import Plan, make_agent, make_world


class Draws:
    """Numbers for worlds, drawn on a device."""

    def __init__(self, device: str, generator: torch.Generator):
        self.device, self.generator = device, generator

    def normal(self, *, size: Any) -> Tensor:
        """Standard normal numbers, as exact as a world's own."""
        return torch.randn(size, dtype=torch.float64, device=self.device, generator=self.generator)


_KNOWN = (
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


def cannot(why: str) -> BadInput:
    """The error for what a stack does not do."""
    return BadInput(f"together: {why}; or leave --together out")


class Stack:
    """n agents of one plan, updated together; `agents` are ordinary ones, brought up to date by `write_back`.

    A round is what the library does between two looks at its clock: some steps of the world, then some updates. Where many
    steps are taken with one policy (`train_freq`), copies of the world take them side by side, an episode each. All random
    numbers of a stack come from one generator: its seeds are independent, but another number of them gives other curves.
    """

    knows: ClassVar[tuple[str, ...]] = ()

    def __init__(self, plan: Plan, seeds: list[int], device: str):
        self.agents: list[Any] = [make_agent(plan, seed, "cpu") for seed in seeds]
        self.plan, self.first, self.device, self.half = plan, self.agents[0], device, plan.precision == "bf16"
        self.world: World = self.refuse(plan, self.first)
        self.weight = float(getattr(self.first, "goal_weight", 0.0))
        self.updates = self.first.gradient_steps
        self.copies, self.moves = _rounds(self.first.train_freq.frequency, self.world.horizon)
        self.generator = torch.Generator(device).manual_seed(seeds[0])
        self.draws = Draws(device, self.generator)
        self._begin(len(seeds), np.random.default_rng(seeds[0]))

    @classmethod
    def refuse(cls, plan: Plan, agent: Any) -> World:
        """The world of a plan; whatever a stack would do otherwise than the agent itself is refused."""
        world = make_world(plan.env)
        if world is None or not world.moves_tensors:
            raise cannot(f"{plan.env} does not move tensors: a world whose moves_tensors is True is needed")
        if plan.num_envs != 1:
            raise cannot(f"num_envs={plan.num_envs}: a stack chooses its copies of the world itself, 1 is needed")
        unknown = sorted(set(plan.settings) - {*_KNOWN, *cls.knows})
        if unknown:
            raise cannot(f"{', '.join(unknown)}: only {', '.join(sorted({*_KNOWN, *cls.knows}))} are known to a stack")
        if callable(agent.learning_rate) or agent.gradient_steps < 1 or agent.train_freq.unit.value != "step":
            raise cannot("a constant learning_rate, gradient_steps above zero and train_freq in steps are needed")
        if plan.precision != "fp32" and not world.goal_set:
            raise BadInput(
                f"precision {plan.precision} is for encoders of goal sets; {plan.env} has none: leave it out"
            )
        copies, _ = _rounds(agent.train_freq.frequency, world.horizon)
        hindsight = isinstance(agent.replay_buffer, HerReplayBuffer)
        least = copies * world.horizon if hindsight else 1
        if agent.learning_starts < least:
            raise cannot(
                f"learning_starts={agent.learning_starts} is before anything can be learned: {least} or more is needed"
            )
        return world

    def _begin(self, seeds: int, rng: np.random.Generator) -> None:
        """Draw all episodes' first states and goals, and lay out worlds and replay."""
        horizon, rows = self.world.horizon, seeds * self.copies
        steps = -(-self.plan.steps // self.copies)
        episodes = -(-steps // horizon) + 1
        begun = {
            key: torch.as_tensor(value).to(self.device).reshape(rows, episodes, *value.shape[1:])
            for key, value in self.world.begin(rows * episodes, rng).items()
        }
        self.goals = begun.pop("goal")
        self.starts, self.state = begun, {key: value[:, 0].clone() for key, value in begun.items()}
        length = episodes * horizon
        if self.first.buffer_size < self.plan.steps:
            length = min(max(1, self.first.buffer_size // self.copies // horizon), episodes) * horizon
            if self.moves % horizon:
                raise cannot(
                    f"buffer_size={self.first.buffer_size} is shorter than the training of {self.plan.steps} steps"
                )
        buffer = self.first.replay_buffer
        relabelled = buffer.her_ratio if isinstance(buffer, HerReplayBuffer) else None
        goals = self.goals.unflatten(0, (seeds, self.copies))
        self.replay = Replay(self.world, goals, length, relabelled, self.generator)

    @property
    def steps_a_round(self) -> int:
        """Steps of one seed in a round."""
        return self.copies * self.moves

    def round(self) -> None:
        """Some steps of every seed and the updates that follow."""
        for _ in range(self.moves):
            self.move()
        self.before_updates()
        for _ in range(self.updates):
            self.step(*self.replay.sample(self.first.batch_size))

    @torch.no_grad()
    def move(self, blindly: bool = False) -> None:
        """One step of every copy, `blindly` at random; kept in the replay."""
        clock, horizon = self.replay.clock, self.world.horizon
        episode, fresh = clock // horizon, clock % horizon == 0
        for key, begun in self.starts.items():
            self.state[key].copy_(torch.where(fresh, begun.index_select(1, episode)[:, 0], self.state[key]))
        goal = self.goals.index_select(1, episode)[:, 0]
        seen = {
            "observation": self.world.observe(self.state).float(),
            "achieved_goal": self.world.achieved(self.state).float(),
        }
        action = self.blind() if blindly else self.explore(seen, goal)
        state = self.world.move({**self.state, "goal": None}, self.scaled(action), self.draws)
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
        """Success and summed reward (agents,) of best actions, a mean over episodes drawn from one seed for each agent."""
        begun = [self.world.begin(episodes, np.random.default_rng(seed)) for seed in seeds]
        state: Any = {key: torch.as_tensor(np.concatenate([b[key] for b in begun])).to(self.device) for key in begun[0]}
        rows = len(seeds) * episodes
        success = torch.zeros(rows, dtype=torch.bool, device=self.device)
        total = torch.zeros(rows, device=self.device)
        for _ in range(self.world.horizon):
            seen = {
                "observation": self.world.observe(state).float(),
                "achieved_goal": self.world.achieved(state).float(),
            }
            state = self.world.move(state, self.scaled(self.act(seen, state["goal"])), self.draws)
            reward = self.world.reward(self.world.achieved(state).float(), state["goal"]).float()
            success |= reward != self.world.low_reward
            total += reward
        return success.view(-1, episodes).float().mean(1), total.view(-1, episodes).mean(1)

    def check(self) -> None:
        """Say so if something went wrong on the device."""

    def refit(self, steps: int) -> bool:
        """Whether shapes are others from now on, after so many steps."""
        return False

    def features(self, observation: Tensor, achieved: Tensor, goal: Tensor) -> Tensor:
        """What networks see of one goal, (…, features), in the order in which the library's extractor puts them side by side."""
        parts = {"observation": observation, "achieved_goal": achieved, "desired_goal": goal}
        return torch.cat([parts[key] for key in self.world.observation_space.spaces], dim=-1)

    def by_agent(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        """What each agent sees of its own rows, (agents, rows of one, features)."""
        features = self.features(seen["observation"], seen["achieved_goal"], goal)
        return features.unflatten(0, (len(self.agents), -1))

    def before_updates(self) -> None:
        """What a round does between its steps and its updates."""

    def act(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        """Best actions (rows, …) as the replay keeps them; rows are the agents' own, one agent after the other."""
        raise NotImplementedError

    def explore(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        """Actions of a policy that is learning: with noise, or drawn."""
        raise NotImplementedError

    def blind(self) -> Tensor:
        """Actions at random for every copy."""
        raise NotImplementedError

    def scaled(self, action: Tensor) -> Tensor:
        """Actions as the world takes them."""
        return action

    def step(self, data: dict[str, Tensor], rewards: Tensor) -> None:
        """One update of every agent on given transitions (agents, batch, …)."""
        raise NotImplementedError

    def networks(self) -> list[tuple[Any, Any]]:
        """Pairs of a stacked network and how to find it in an agent."""
        raise NotImplementedError

    def _learned(self) -> tuple[list[torch.optim.Optimizer], list[Tensor]]:
        """The optimisers, and everything that updates change."""
        optimisers = [value for value in vars(self).values() if isinstance(value, torch.optim.Optimizer)]
        tensors = [tensor for mine, _ in self.networks() for tensor in mine.parameters]
        return optimisers, tensors + [p for o in optimisers for group in o.param_groups for p in group["params"]]

    def snapshot(self) -> dict[str, Any]:
        """All that a stack of the same plan needs to go on from here as if nothing had happened."""
        optimisers, tensors = self._learned()
        return {
            "tensors": [tensor.detach().cpu() for tensor in tensors],
            "optimisers": [optimiser.state_dict() for optimiser in optimisers],
            "state": {key: value.cpu() for key, value in self.state.items()},
            "replay": self.replay.snapshot(),
            "generator": self.generator.get_state(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        optimisers, tensors = self._learned()
        with torch.no_grad():
            for tensor, value in zip(tensors, snapshot["tensors"], strict=True):
                tensor.copy_(value)
            for key, value in self.state.items():
                value.copy_(snapshot["state"][key])
        for optimiser, value in zip(optimisers, snapshot["optimisers"], strict=True):
            optimiser.load_state_dict(value)
        self.replay.restore(snapshot["replay"])
        self.generator.set_state(snapshot["generator"])

    def write_back(self, steps: int) -> None:
        """Bring the agents up to date."""
        for mine, of in self.networks():
            mine.copy_into([of(agent) for agent in self.agents])
        for agent in self.agents:
            agent.num_timesteps = steps


class Boxed(Stack):
    """Agents whose actions are numbers: scaled to [-1, 1], with normal noise."""

    def __init__(self, plan: Plan, seeds: list[int], device: str):
        super().__init__(plan, seeds, device)
        space: Any = self.world.action_space
        low, high = (torch.as_tensor(bound, device=device) for bound in (space.low, space.high))
        self.low, self.span, self.actions = low, (high - low) / 2, tuple(space.shape)
        noise = self.first.action_noise
        self.sigma = torch.as_tensor(0.0 if noise is None else noise._sigma, dtype=torch.float32).to(device)

    def explore(self, seen: dict[str, Tensor], goal: Tensor) -> Tensor:
        action = self.act(seen, goal)
        noise = torch.randn(action.shape, device=self.device, generator=self.generator)
        return (action + noise * self.sigma).clamp(-1, 1)

    def blind(self) -> Tensor:
        rows = len(self.agents) * self.copies
        return torch.rand(rows, *self.actions, device=self.device, generator=self.generator) * 2 - 1

    def scaled(self, action: Tensor) -> Tensor:
        return self.low + (action + 1) * self.span


def _rounds(frequency: int, horizon: int) -> tuple[int, int]:
    """Copies of the world and steps of each that make up `frequency` steps with one policy: whole episodes side by side."""
    return (frequency // horizon, horizon) if frequency % horizon == 0 else (1, frequency)
