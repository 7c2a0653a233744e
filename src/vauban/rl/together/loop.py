"""Trains a stack from its first step to its last, with looks between; on a GPU a round is one replayed graph."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from stable_baselines3 import DQN

from vauban.rl.curves import curve_file
from vauban.rl.recipes import ALGORITHMS, Plan, make_world
from vauban.rl.together.ddpg import DDPGStack
from vauban.rl.together.dqn import DQNStack
from vauban.rl.together.goal_sets import GoalSetStack
from vauban.rl.together.stack import Stack
from vauban.rl.training import Tick, append_row, interruptible, look_seed, write_rows

_WARM_UP = 3
_TELL = 100  # steps
_capturing = threading.Lock()


def stack_of(plan: Plan, seeds: list[int], device: str) -> Stack:
    """The stack for a plan's algorithm; what cannot be stacked is refused."""
    world = make_world(plan.env)
    if world is not None and world.goal_set:
        return GoalSetStack(plan, seeds, device)
    return (DQNStack if issubclass(ALGORITHMS[plan.algo], DQN) else DDPGStack)(plan, seeds, device)


class Replayed:
    """Work on a stack, always of the same shape: on a GPU one graph, replayed once the work was done a few times."""

    def __init__(self, stack: Stack, work: Callable[[], None]):
        self.stack, self.work, self.done = stack, work, 0
        self.graph: Any = None

    def __call__(self) -> None:
        if self.graph is not None:
            self.graph.replay()
            return
        self.work()
        self.done += 1
        if self.done == _WARM_UP and self.stack.device.startswith("cuda"):
            with _capturing:
                torch.cuda.synchronize()
                self.graph = torch.cuda.CUDAGraph()
                self.graph.register_generator_state(self.stack.generator)
                with torch.cuda.graph(
                    self.graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
                ):
                    self.work()


def train_together(folder: Path, plan: Plan, seeds: list[int], *, device: str, tick: Tick) -> bool:
    """Train all seeds of a plan side by side; curves and agents are kept as `train_seed` keeps them.

    Returns False after Ctrl-C; a stack has no checkpoint and starts anew.
    """
    done = [seed for seed in seeds if curve_file(folder, seed).with_suffix(".zip").exists()]
    if len(done) == len(seeds):
        tick(plan.steps * len(seeds))
        return True
    stream: AbstractContextManager[Any] = nullcontext()
    if device.startswith("cuda"):  # where several stacks share a GPU, small ones go first
        world = make_world(plan.env)
        stream = torch.cuda.stream(torch.cuda.Stream(priority=0 if world is not None and world.goal_set else -1))
    with stream, interruptible() as asked:
        stack = stack_of(plan, seeds, device)
        for seed in seeds:
            write_rows(curve_file(folder, seed), [])
        began = time.perf_counter()
        steps, told, looked = 0, 0, -plan.every
        rounds, blindly = Replayed(stack, stack.round), Replayed(stack, lambda: stack.move(blindly=True))
        while True:
            if steps // plan.every > looked // plan.every or steps >= plan.steps:
                rounds = Replayed(stack, stack.round) if stack.refit(steps) else rounds
                _look(folder, stack, seeds, steps, time.perf_counter() - began)
                looked = steps
            if steps - told >= _TELL or steps >= plan.steps:
                tick(len(seeds) * (steps - told))
                told = steps
            if asked:
                return False
            if steps >= plan.steps:
                break
            if steps < stack.first.learning_starts:
                for _ in range(stack.moves):
                    blindly()
            else:
                rounds()
            steps += stack.steps_a_round
        stack.write_back(steps)
    for seed, agent in zip(seeds, stack.agents, strict=True):
        agent.save(curve_file(folder, seed).with_suffix(".zip"))
    return True


def _look(folder: Path, stack: Stack, seeds: list[int], steps: int, seconds: float) -> None:
    success, reward = stack.play(stack.plan.episodes, [look_seed(seed, steps) for seed in seeds])
    for seed, hits, total in zip(seeds, success.tolist(), reward.tolist(), strict=True):
        row = {"steps": steps, "success": hits, "reward": total, "seconds": round(seconds, 2)}
        append_row(curve_file(folder, seed), row)
