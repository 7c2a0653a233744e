"""Trains a stack from its first step to its last, with looks between; on a GPU a round is one replayed graph."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from stable_baselines3 import DQN, SAC

from vauban.errors import RunRefused
from vauban.rl.batched_seeds.ddpg import DDPGStack
from vauban.rl.batched_seeds.dqn import DQNStack
from vauban.rl.batched_seeds.goal_sets import GoalSetStack
from vauban.rl.batched_seeds.pictures import PictureStack
from vauban.rl.batched_seeds.sac import SACStack
from vauban.rl.batched_seeds.stack import Stack
from vauban.rl.checkpoints import read_checkpoint, write_checkpoint
from vauban.rl.curves import curve_file, read_rows
from vauban.rl.recipes import ALGORITHMS, Plan, make_agent, make_world
from vauban.rl.training import (
    ProgressCallback,
    append_row,
    evaluation_seed,
    interruptible,
    is_complete,
    save_agent,
    write_rows,
)

CHECKPOINT = "together.checkpoint.pt"
_WARM_UP = 3
_TELL = 100  # steps
_KEEP, _RARELY = 120.0, 20  # seconds between checkpoints, and how many times as long as one takes
_capturing = threading.Lock()


def stack_of(plan: Plan, seeds: list[int], device: str) -> Stack:
    """The stack for a plan's algorithm; what cannot be stacked is refused."""
    return _kind(plan)(plan, seeds, device)


def check_batched(plan: Plan) -> None:
    """Refuse a plan that cannot be trained together, before anything is written."""
    _kind(plan).refuse(plan, make_agent(plan, 0, "cpu"))


def _kind(plan: Plan) -> type[Stack]:
    world = make_world(plan.env)
    if world is not None and world.goal_set:
        return PictureStack if plan.settings.get("encoder") == "pictures" else GoalSetStack
    algorithm = ALGORITHMS[plan.algo]
    return DQNStack if issubclass(algorithm, DQN) else SACStack if issubclass(algorithm, SAC) else DDPGStack


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


def train_batched(
    folder: Path,
    plan: Plan,
    seeds: list[int],
    *,
    device: str,
    on_progress: ProgressCallback,
    stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Train all seeds of a plan side by side; curves and agents are kept as `train_seed` keeps them.

    Returns False after Ctrl-C, or when `stop` says so, with a checkpoint from which the same call goes on; one is also made
    every few minutes.
    """
    done = [seed for seed in seeds if is_complete(curve_file(folder, seed), plan.steps)]
    if len(done) == len(seeds):
        on_progress(plan.steps * len(seeds))
        return True
    if done and not (folder / CHECKPOINT).exists():
        raise RunRefused(
            f"{folder} holds {len(done)} complete seeds of {len(seeds)}: seeds that are trained together begin together; "
            f"give --seeds {len(done)}, or another --out"
        )
    stream: AbstractContextManager[Any] = nullcontext()
    if device.startswith("cuda"):  # where several stacks share a GPU, small ones go first
        world = make_world(plan.env)
        stream = torch.cuda.stream(torch.cuda.Stream(priority=0 if world is not None and world.goal_set else -1))
    with stream, interruptible() as stop_requested:
        stack = stack_of(plan, seeds, device)
        behind, seconds = _take_up(folder, stack, seeds)
        steps = behind or 0
        began = time.perf_counter() - seconds
        on_progress(len(seeds) * steps)
        told, looked = steps, -plan.every if behind is None else steps
        rounds, blindly = Replayed(stack, stack.round), Replayed(stack, lambda: stack.move(blindly=True))
        kept, wait = time.perf_counter(), _KEEP
        while True:
            if steps // plan.every > looked // plan.every or (steps >= plan.steps and steps > looked):
                stack.check()
                rounds = Replayed(stack, stack.round) if stack.refit(steps) else rounds
                _look(folder, stack, seeds, steps, time.perf_counter() - began)
                looked = steps
                if (now := time.perf_counter()) - kept > wait:
                    _put_down(folder, stack, seeds, steps, now - began)
                    kept = time.perf_counter()
                    wait = max(_KEEP, _RARELY * (kept - now))
            if steps - told >= _TELL or steps >= plan.steps:
                on_progress(len(seeds) * (steps - told))
                told = steps
            if steps >= plan.steps:
                break
            if stop_requested.is_set() or stop():
                _put_down(folder, stack, seeds, steps, time.perf_counter() - began)
                return False
            if steps < stack.first.learning_starts:
                for _ in range(stack.moves):
                    blindly()
            else:
                rounds()
            steps += stack.steps_a_round
        stack.write_back(steps)
    for seed, agent in zip(seeds, stack.agents, strict=True):
        save_agent(agent, curve_file(folder, seed))
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return True


def _put_down(folder: Path, stack: Stack, seeds: list[int], steps: int, seconds: float) -> None:
    """Keep the whole stack, in one step."""
    stack.check()
    kept = {"seeds": seeds, "steps": steps, "seconds": seconds, "device": torch.device(stack.device).type}
    write_checkpoint(folder / CHECKPOINT, {**kept, "stack": stack.snapshot()})


def _take_up(folder: Path, stack: Stack, seeds: list[int]) -> tuple[int | None, float]:
    """Steps and seconds behind a stack that goes on from its checkpoint, or None and 0; curves end where it goes on."""
    path, device = folder / CHECKPOINT, torch.device(stack.device).type
    steps, seconds = None, 0.0
    if path.exists():
        try:
            kept = read_checkpoint(path)
            for name, here in (("seeds", len(seeds)), ("device", device)):
                there = len(kept[name]) if name == "seeds" else kept[name]
                if there != here:
                    raise RunRefused(f"{folder} was stopped with --{name} {there}: give that to go on")
            stack.restore(kept["stack"])
            steps, seconds = int(kept["steps"]), float(kept["seconds"])
        except RunRefused:
            raise
        except Exception as problem:
            why = (str(problem).splitlines() or [type(problem).__name__])[0][:200]
            raise RunRefused(
                f"{path} cannot be taken up ({why}): it is damaged, or of another version; remove it to start anew"
            ) from None
    for seed in seeds:
        curve = curve_file(folder, seed)
        if steps is not None and not curve.exists():
            raise RunRefused(
                f"{curve} is gone, but {path} goes on after it: put it back, or remove {path} to start anew"
            )
        write_rows(curve, [] if steps is None else [row for row in read_rows(curve) if row["steps"] <= steps])
    return steps, seconds


def _look(folder: Path, stack: Stack, seeds: list[int], steps: int, seconds: float) -> None:
    success, reward = stack.play(stack.plan.episodes, [evaluation_seed(seed, steps) for seed in seeds])
    for seed, hits, total in zip(seeds, success.tolist(), reward.tolist(), strict=True):
        row = {"steps": steps, "success": hits, "reward": total, "seconds": round(seconds, 2)}
        append_row(curve_file(folder, seed), row)
