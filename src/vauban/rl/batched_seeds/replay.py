"""Replay buffers of all seeds on one device, written and sampled without synchronising with the host."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vauban.errors import BadInput
from vauban.rl.envs import World


class Replay:
    """The replay buffers of n seeds, each filled by some copies of the world whose episodes have the same steps.

    goals: (seeds, copies, episodes, goal…), the goals of all episodes, sampled in advance.
    length: steps of a copy that are kept, a multiple of the horizon.
    relabelled: the share of a batch whose goal is replaced by one achieved later in the episode, as in `HerReplayBuffer` with
        strategy "future"; None for a plain buffer. With it only finished episodes are sampled, as in Stable-Baselines3.
    """

    def __init__(self, world: World, goals: Tensor, length: int, relabelled: float | None, generator: torch.Generator):
        device, (seeds, copies) = goals.device, goals.shape[:2]
        shape = {key: tuple(space.shape or ()) for key, space in world.observation_space.spaces.items()}
        action: Any = world.action_space
        shapes = {
            "before": shape["observation"],
            "achieved_before": shape["achieved_goal"],
            "after": shape["observation"],
            "achieved": shape["achieved_goal"],
            "action": tuple(action.shape) or (1,),
        }
        if length % world.horizon:
            raise BadInput(f"a replay of {length} steps does not hold whole episodes of {world.horizon}")
        self.transitions = {key: torch.zeros(seeds, copies, length, *s, device=device) for key, s in shapes.items()}
        self.episode = torch.zeros(length, dtype=torch.long, device=device)
        self.world, self.goals, self.length, self.relabelled = world, goals, length, relabelled
        self.clock = torch.zeros(1, dtype=torch.long, device=device)
        self.generator = generator
        self._seeds = torch.arange(seeds, device=device)[:, None]

    def add(self, **transition: Tensor) -> None:
        """Store one step of every copy, (seeds * copies, …) each."""
        slot = self.clock % self.length
        for key, value in transition.items():
            stored = self.transitions[key]
            stored.index_copy_(2, slot, value.to(stored.dtype).reshape(*stored.shape[:2], 1, *stored.shape[3:]))
        self.episode.index_copy_(0, slot, self.clock // self.world.horizon)
        self.clock += 1

    def snapshot(self) -> dict[str, Any]:
        """The transitions stored so far, on the CPU."""
        filled = min(int(self.clock), self.length)
        stored = {key: value[:, :, :filled].cpu() for key, value in self.transitions.items()}
        return {"kept": stored, "episode": self.episode[:filled].cpu(), "clock": self.clock.cpu()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Replace the contents by those of a snapshot."""
        filled = len(snapshot["episode"])
        for key, value in self.transitions.items():
            value[:, :, :filled].copy_(snapshot["kept"][key])
        self.episode[:filled].copy_(snapshot["episode"])
        self.clock.copy_(snapshot["clock"])

    def sample(self, batch: int) -> tuple[dict[str, Tensor], Tensor]:
        """Random transitions (seeds, batch, …) with their goals, and rewards (seeds, batch, 1)."""
        device, horizon = self.clock.device, self.world.horizon
        uniform = torch.rand(3, len(self._seeds), batch, device=device, generator=self.generator)
        steps = self.clock if self.relabelled is None else self.clock // horizon * horizon
        index = (uniform[0] * steps.clamp(max=self.length)).long()
        copy = (uniform[2] * self.goals.shape[1]).long()
        at = self._seeds, copy, index
        chosen = {key: stored[at] for key, stored in self.transitions.items()}
        goal = self.goals[self._seeds, copy, self.episode[index]]
        if self.relabelled is not None:
            later = index + (uniform[1] * (horizon - index % horizon)).long()
            own = self.transitions["achieved"][self._seeds, copy, later]
            virtual = torch.arange(batch, device=device) < int(self.relabelled * batch)
            goal = torch.where(virtual[None, :, None], own, goal)
        chosen["goal"] = goal
        return chosen, self.world.reward(chosen["achieved"], goal)[..., None].float()
