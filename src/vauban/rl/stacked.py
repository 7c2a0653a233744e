"""Many seeds as one batched program: DDPG and ReenGAGE with hindsight, every network a slice of one tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import DDPG, HerReplayBuffer
from torch import Tensor, nn

from vauban.errors import BadInput
from vauban.rl.curves import curve_file
from vauban.rl.ddpg import ReenGAGEDDPG
from vauban.rl.envs import World
from vauban.rl.losses import goal_slopes
from vauban.rl.recipes import Plan, make_agent, make_world
from vauban.rl.training import Looks, Tick, interruptible, write_rows

Layers = list[tuple[Tensor, Tensor]]


class StackedMLP:
    """n networks of the same shape: weights (n, in, out), biases (n, 1, out), ReLU between; tanh at the end if asked."""

    def __init__(self, networks: list[nn.Module], device: str, squash: bool):
        rows = [[m for m in network.modules() if isinstance(m, nn.Linear)] for network in networks]
        self.squash = squash
        self.layers: Layers = [
            (
                torch.stack([m.weight.detach().T for m in column]).to(device).contiguous(),
                torch.stack([m.bias.detach()[None] for m in column]).to(device),
            )
            for column in zip(*rows, strict=True)
        ]

    @property
    def parameters(self) -> list[Tensor]:
        return [tensor for layer in self.layers for tensor in layer]

    def __call__(self, x: Tensor) -> Tensor:
        """(n, batch, in) to (n, batch, out)."""
        for i, (weight, bias) in enumerate(self.layers):
            x = torch.baddbmm(bias, x, weight)
            if i + 1 < len(self.layers):
                x = x.relu()
        return x.tanh() if self.squash else x

    def copy_into(self, networks: list[nn.Module]) -> None:
        """Write each slice back into its network."""
        with torch.no_grad():
            for k, network in enumerate(networks):
                linear = [m for m in network.modules() if isinstance(m, nn.Linear)]
                for (weight, bias), module in zip(self.layers, linear, strict=True):
                    module.weight.copy_(weight[k].T)
                    module.bias.copy_(bias[k, 0])


class Hindsight:
    """The replay buffers of n seeds on the device; the distribution of `HerReplayBuffer` with strategy "future"."""

    def __init__(self, world: World, seeds: int, steps: int, relabelled: float, device: str):
        shape = {key: space.shape for key, space in world.observation_space.spaces.items()}
        room = {
            "before": shape["observation"],
            "achieved_before": shape["achieved_goal"],
            "after": shape["observation"],
            "achieved": shape["achieved_goal"],
            "goal": shape["desired_goal"],
            "action": world.action_space.shape,
        }
        self.kept = {key: torch.zeros(seeds, steps, *(s or ()), device=device) for key, s in room.items()}
        self.world, self.horizon, self.relabelled, self.filled = world, world.horizon, relabelled, 0
        self.count = torch.zeros((), device=device)
        self.rows = torch.arange(seeds, device=device)[:, None]

    def add(self, **transition: np.ndarray) -> None:
        for key, value in transition.items():
            self.kept[key][:, self.filled] = torch.as_tensor(value, dtype=torch.float32).to(self.count.device)
        self.filled += 1
        self.count.fill_(self.filled // self.horizon * self.horizon)

    def sample(self, batch: int) -> tuple[dict[str, Tensor], Tensor]:
        """Transitions (seeds, batch, …) of finished episodes, the first ones with goals of their own future, and rewards."""
        device = self.count.device
        draw = torch.rand(2, len(self.rows), batch, device=device)
        place = (draw[0] * self.count).long()
        since = place % self.horizon
        later = place + (draw[1] * (self.horizon - since)).long()
        chosen = {key: kept[self.rows, place] for key, kept in self.kept.items()}
        virtual = (torch.arange(batch, device=device) < int(self.relabelled * batch))[None, :, None]
        chosen["goal"] = torch.where(virtual, self.kept["achieved"][self.rows, later], chosen["goal"])
        return chosen, self.world.reward(chosen["achieved"], chosen["goal"])[..., None]


class Stack:
    """n agents of one plan, updated together; `agents` are ordinary ones, brought up to date by `write_back`."""

    def __init__(self, plan: Plan, seeds: list[int], device: str):
        world = make_world(plan.env)
        self.agents: list[Any] = [make_agent(plan, seed, "cpu") for seed in seeds]
        first = self.agents[0]
        plain = isinstance(first, DDPG) and first.replay_buffer_class is HerReplayBuffer and world is not None
        if world is None or not plain or first.policy_kwargs.get("n_critics", 1) != 1 or plan.num_envs != 1:
            raise BadInput(
                "together: only ddpg and reengage-ddpg with hindsight, one critic, on Vauban's own environments"
            )
        if getattr(first, "normalise_goals", False) or getattr(first, "rewards", "sparse") != "sparse":
            raise BadInput("together: neither normalised goals nor dense rewards")
        if first.gradient_steps != 1 or first.train_freq.frequency != 1 or callable(first.learning_rate):
            raise BadInput("together: one update a step at a constant learning rate")
        self.world, self.first, self.device = world, first, device
        self.weight = float(getattr(first, "goal_weight", 0.0)) if isinstance(first, ReenGAGEDDPG) else 0.0
        self.actor = StackedMLP([a.actor.mu for a in self.agents], device, squash=True)
        self.critic = StackedMLP([a.critic.q_networks[0] for a in self.agents], device, squash=False)
        self.actor_target = StackedMLP([a.actor_target.mu for a in self.agents], device, squash=True)
        self.critic_target = StackedMLP([a.critic_target.q_networks[0] for a in self.agents], device, squash=False)
        for parameter in (*self.actor.parameters, *self.critic.parameters):
            parameter.requires_grad_()
        graph = device.startswith("cuda")
        rate = first.learning_rate
        self.critic_optimiser = torch.optim.Adam(self.critic.parameters, lr=rate, foreach=True, capturable=graph)
        self.actor_optimiser = torch.optim.Adam(self.actor.parameters, lr=rate, foreach=True, capturable=graph)
        relabelled = first.replay_buffer.her_ratio
        self.buffer = Hindsight(world, len(seeds), plan.steps, relabelled, device)
        self._order = list(world.observation_space.spaces)  # in which the library's extractor puts them side by side
        self._graph: Any = None
        self._warm = 0

    def update(self) -> None:
        """One update of every agent; on a GPU replayed as a graph once it has run a few times."""
        if not self.device.startswith("cuda"):
            self.step(*self.buffer.sample(self.first.batch_size))
            return
        if self._graph is not None:
            self._graph.replay()
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.step(*self.buffer.sample(self.first.batch_size))
        torch.cuda.current_stream().wait_stream(stream)
        self._warm += 1
        if self._warm == 5:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self.step(*self.buffer.sample(self.first.batch_size))

    def step(self, data: dict[str, Tensor], rewards: Tensor) -> None:
        """The update of [Levine2023, Eq. 8.9] and 8.5 on given transitions (seeds, batch, …): the same as the agents' own."""
        gamma, low = self.first.gamma, self.world.low_reward
        leaf = data["goal"].detach().clone().requires_grad_(self.weight > 0)
        with torch.set_grad_enabled(self.weight > 0):
            ahead = self._features(data["after"], data["achieved"], leaf)
            following = self.critic_target(torch.cat([ahead, self.actor_target(ahead)], dim=-1))
            target_slopes = gamma * goal_slopes(following, leaf, train=False) if self.weight else None
        target = rewards + gamma * following.detach()
        goal = data["goal"].detach().clone().requires_grad_(self.weight > 0)
        seen = self._features(data["before"], data["achieved_before"], goal)
        value = self.critic(torch.cat([seen, data["action"]], dim=-1))
        loss = (value - target).square().mean(dim=(1, 2)).sum()
        if target_slopes is not None:
            squares = (goal_slopes(value, goal, train=True) - target_slopes).square().sum(-1, keepdim=True)
            loss = loss + self.weight * (squares * (rewards == low)).mean(dim=(1, 2)).sum()
        self._descend(loss, self.critic.parameters, self.critic_optimiser)
        features = seen.detach()
        actor_loss = -self.critic(torch.cat([features, self.actor(features)], dim=-1)).mean(dim=(1, 2)).sum()
        self._descend(actor_loss, self.actor.parameters, self.actor_optimiser)
        with torch.no_grad():
            for target_net, net in ((self.critic_target, self.critic), (self.actor_target, self.actor)):
                torch._foreach_lerp_(target_net.parameters, net.parameters, self.first.tau)

    @staticmethod
    def _descend(loss: Tensor, parameters: list[Tensor], optimiser: torch.optim.Optimizer) -> None:
        for parameter, slope in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = slope
        optimiser.step()

    @torch.no_grad()
    def act(self, seen: dict[str, np.ndarray]) -> np.ndarray:
        """Each agent's action for its own copy of the world, (seeds, actions) in [-1, 1]."""
        features = np.concatenate([seen[key] for key in self._order], -1)
        return self.actor(torch.as_tensor(features, dtype=torch.float32).to(self.device)[:, None])[:, 0].cpu().numpy()

    def _features(self, observation: Tensor, achieved: Tensor, goal: Tensor) -> Tensor:
        parts = {"observation": observation, "achieved_goal": achieved, "desired_goal": goal}
        return torch.cat([parts[key] for key in self._order], dim=-1)

    def write_back(self, steps: int) -> None:
        """Bring the agents up to date."""
        for mine, theirs in (
            (self.actor, [a.actor.mu for a in self.agents]),
            (self.critic, [a.critic.q_networks[0] for a in self.agents]),
            (self.actor_target, [a.actor_target.mu for a in self.agents]),
            (self.critic_target, [a.critic_target.q_networks[0] for a in self.agents]),
        ):
            mine.copy_into(theirs)
        for agent in self.agents:
            agent.num_timesteps = steps


def train_together(folder: Path, plan: Plan, seeds: list[int], *, device: str, tick: Tick) -> bool:
    """Train all seeds of a plan side by side; curves and agents are kept as `train_seed` keeps them.

    The seeds of a stack share one random generator: they are independent, but another number of seeds gives other curves.
    Returns False after Ctrl-C; a stack has no checkpoint and starts anew.
    """
    done = [seed for seed in seeds if curve_file(folder, seed).with_suffix(".zip").exists()]
    if len(done) == len(seeds):
        tick(plan.steps * len(seeds))
        return True
    stack = Stack(plan, seeds, device)
    torch.manual_seed(seeds[0])
    rng = np.random.default_rng(seeds[0])
    first, world = stack.first, stack.world
    low, high = world.action_space.low, world.action_space.high  # type: ignore[union-attr]
    sigma = first.action_noise._sigma if first.action_noise is not None else 0.0
    looks = []
    for seed, agent in zip(seeds, stack.agents, strict=True):
        write_rows(curve_file(folder, seed), [])
        looks.append(Looks(curve_file(folder, seed), plan, seed, agent))
    state = world.begin(len(seeds), rng)
    with interruptible() as asked:
        for step in range(plan.steps + 1):
            if step % plan.every == 0 or step == plan.steps:
                stack.write_back(step)
                for look in looks:
                    look.look(step)
            if asked:
                return False
            if step == plan.steps:
                break
            seen = world.look(state)
            if step < first.learning_starts:
                action = rng.uniform(-1, 1, (len(seeds), *low.shape))
            else:
                action = np.clip(stack.act(seen) + rng.normal(0, 1, (len(seeds), *low.shape)) * sigma, -1, 1)
            state = world.move(state, low + (action + 1) / 2 * (high - low), rng)
            after = world.look(state)
            stack.buffer.add(
                before=seen["observation"],
                achieved_before=seen["achieved_goal"],
                goal=seen["desired_goal"],
                action=action,
                after=after["observation"],
                achieved=after["achieved_goal"],
            )
            if (step + 1) % world.horizon == 0:
                state = world.begin(len(seeds), rng)
            if step + 1 > first.learning_starts:
                stack.update()
            tick(len(seeds))
    for seed, agent in zip(seeds, stack.agents, strict=True):
        agent.save(curve_file(folder, seed).with_suffix(".zip"))
    return True
