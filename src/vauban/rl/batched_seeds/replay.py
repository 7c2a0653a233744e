"""What all seeds have lived through, on the device: stored and drawn from without waiting for the host."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vauban.errors import BadInput
from vauban.rl.envs import World


class Replay:
    """The replay buffers of n seeds, each fed by some copies of the world that begin and end their episodes together.

    goals: (seeds, copies, episodes, goal…), known before anything is lived through.
    length: steps of a copy that are kept, whole episodes.
    relabelled: the share of transitions that get a goal of their own future, as in `HerReplayBuffer` with strategy "future"; None
        for a plain buffer. Hindsight draws from finished episodes only, as the library does.
    """

    def __init__(self, world: World, goals: Tensor, length: int, relabelled: float | None, generator: torch.Generator):
        device, (seeds, copies) = goals.device, goals.shape[:2]
        shape = {key: tuple(space.shape or ()) for key, space in world.observation_space.spaces.items()}
        action: Any = world.action_space
        room = {
            "before": shape["observation"],
            "achieved_before": shape["achieved_goal"],
            "after": shape["observation"],
            "achieved": shape["achieved_goal"],
            "action": tuple(action.shape) or (1,),
        }
        if length % world.horizon:
            raise BadInput(f"a replay of {length} steps does not hold whole episodes of {world.horizon}")
        self.kept = {key: torch.zeros(seeds, copies, length, *s, device=device) for key, s in room.items()}
        self.episode = torch.zeros(length, dtype=torch.long, device=device)
        self.world, self.goals, self.length, self.relabelled = world, goals, length, relabelled
        self.clock = torch.zeros(1, dtype=torch.long, device=device)
        self.generator = generator
        self._seeds = torch.arange(seeds, device=device)[:, None]

    def add(self, **transition: Tensor) -> None:
        """One step of every copy, (seeds * copies, …) each."""
        slot = self.clock % self.length
        for key, value in transition.items():
            kept = self.kept[key]
            kept.index_copy_(2, slot, value.to(kept.dtype).reshape(*kept.shape[:2], 1, *kept.shape[3:]))
        self.episode.index_copy_(0, slot, self.clock // self.world.horizon)
        self.clock += 1

    def snapshot(self) -> dict[str, Any]:
        """What is kept so far."""
        filled = min(int(self.clock), self.length)
        kept = {key: value[:, :, :filled].cpu() for key, value in self.kept.items()}
        return {"kept": kept, "episode": self.episode[:filled].cpu(), "clock": self.clock.cpu()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Keep what a snapshot has."""
        filled = len(snapshot["episode"])
        for key, value in self.kept.items():
            value[:, :, :filled].copy_(snapshot["kept"][key])
        self.episode[:filled].copy_(snapshot["episode"])
        self.clock.copy_(snapshot["clock"])

    def sample(self, batch: int) -> tuple[dict[str, Tensor], Tensor]:
        """Transitions (seeds, batch, …) with their goals, and rewards (seeds, batch, 1)."""
        device, horizon = self.clock.device, self.world.horizon
        draw = torch.rand(3, len(self._seeds), batch, device=device, generator=self.generator)
        steps = self.clock if self.relabelled is None else self.clock // horizon * horizon
        place = (draw[0] * steps.clamp(max=self.length)).long()
        copy = (draw[2] * self.goals.shape[1]).long()
        at = self._seeds, copy, place
        chosen = {key: kept[at] for key, kept in self.kept.items()}
        goal = self.goals[self._seeds, copy, self.episode[place]]
        if self.relabelled is not None:
            later = place + (draw[1] * (horizon - place % horizon)).long()
            own = self.kept["achieved"][self._seeds, copy, later]
            virtual = torch.arange(batch, device=device) < int(self.relabelled * batch)
            goal = torch.where(virtual[None, :, None], own, goal)
        chosen["goal"] = goal
        return chosen, self.world.reward(chosen["achieved"], goal)[..., None].float()
