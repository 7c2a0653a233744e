"""The batched training loop: evaluations, checkpoints, resumption; on a GPU each round is one CUDA graph."""

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
from vauban.interrupts import interruptible
from vauban.rl.batched_seeds.ddpg_stack import DDPGStack
from vauban.rl.batched_seeds.dqn_stack import DQNStack
from vauban.rl.batched_seeds.goal_set_stack import GoalSetStack
from vauban.rl.batched_seeds.picture_stack import PictureStack
from vauban.rl.batched_seeds.sac_stack import SACStack
from vauban.rl.batched_seeds.stack import Stack
from vauban.rl.checkpoints import read_checkpoint, write_checkpoint
from vauban.rl.curves import curve_file, read_rows
from vauban.rl.recipes import ALGORITHMS, Plan, make_agent, make_world
from vauban.rl.training import (
    CHECKPOINT_RATIO,
    CHECKPOINT_SECONDS,
    ProgressCallback,
    append_row,
    evaluation_seed,
    is_complete,
    save_agent,
    write_rows,
)

CHECKPOINT = "together.checkpoint.pt"
_WARM_UP_CALLS = 3
_REPORT_STEPS = 100
_capturing = threading.Lock()


def stack_of(plan: Plan, seeds: list[int], device: str) -> Stack:
    """The stack for a plan's algorithm; raises BadInput for a plan that cannot be batched."""
    return _stack_class(plan)(plan, seeds, device)


def check_batched(plan: Plan) -> None:
    """Raise BadInput if a plan cannot be batched."""
    _stack_class(plan).check_plan(plan, make_agent(plan, 0, "cpu"))


def _stack_class(plan: Plan) -> type[Stack]:
    world = make_world(plan.env)
    if world is not None and world.goal_set:
        return PictureStack if plan.settings.get("encoder") == "pictures" else GoalSetStack
    algorithm = ALGORITHMS[plan.algo]
    return DQNStack if issubclass(algorithm, DQN) else SACStack if issubclass(algorithm, SAC) else DDPGStack


class GraphRunner:
    """Calls a function on a stack; on a GPU captures it as a CUDA graph after a few calls and replays that."""

    def __init__(self, stack: Stack, function: Callable[[], None]):
        self.stack, self.function, self.calls = stack, function, 0
        self.graph: Any = None

    def __call__(self) -> None:
        if self.graph is not None:
            self.graph.replay()
            return
        self.function()
        self.calls += 1
        if self.calls == _WARM_UP_CALLS and self.stack.device.startswith("cuda"):
            with _capturing:
                torch.cuda.synchronize()
                self.graph = torch.cuda.CUDAGraph()
                self.graph.register_generator_state(self.stack.generator)
                with torch.cuda.graph(
                    self.graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
                ):
                    self.function()


def train_batched(
    folder: Path,
    plan: Plan,
    seeds: list[int],
    *,
    device: str,
    on_progress: ProgressCallback = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Train all seeds of a plan as one batched program; writes the same curve and agent files as `train_seed`.

    Returns False after Ctrl-C, or when `stop` returns True, with a checkpoint from which the same call resumes; a checkpoint is
    also written every few minutes.
    """
    done = [seed for seed in seeds if is_complete(curve_file(folder, seed), plan.steps)]
    if len(done) == len(seeds):
        on_progress(plan.steps * len(seeds))
        return True
    if done and not (folder / CHECKPOINT).exists():
        raise RunRefused(
            f"{folder} holds {len(done)} complete seeds of {len(seeds)}: no seed can be added to a batched training; "
            f"give --seeds {len(done)}, or another --out"
        )
    stream: AbstractContextManager[Any] = nullcontext()
    if device.startswith("cuda"):  # where several trainings share a GPU, those with small networks have priority
        world = make_world(plan.env)
        priority = 0 if world is not None and world.goal_set else -1
        stream = torch.cuda.stream(torch.cuda.Stream(torch.device(device), priority=priority))
    with stream, interruptible() as stop_requested:
        stack = stack_of(plan, seeds, device)
        resumed, seconds = _resume(folder, stack, seeds)
        steps = resumed or 0
        started = time.perf_counter() - seconds
        on_progress(len(seeds) * steps)
        reported, evaluated = steps, -plan.every if resumed is None else steps
        train_round = GraphRunner(stack, stack.round)
        move_at_random = GraphRunner(stack, lambda: stack.move(at_random=True))
        checkpointed, pause = time.perf_counter(), CHECKPOINT_SECONDS
        while True:
            if steps // plan.every > evaluated // plan.every or (steps >= plan.steps and steps > evaluated):
                stack.check_errors()
                if stack.resize(steps):
                    train_round = GraphRunner(stack, stack.round)
                _evaluate(folder, stack, seeds, steps, time.perf_counter() - started)
                evaluated = steps
                if (now := time.perf_counter()) - checkpointed > pause:
                    _save_checkpoint(folder, stack, seeds, steps, now - started)
                    checkpointed = time.perf_counter()
                    pause = max(CHECKPOINT_SECONDS, CHECKPOINT_RATIO * (checkpointed - now))
            if steps - reported >= _REPORT_STEPS or steps >= plan.steps:
                on_progress(len(seeds) * (steps - reported))
                reported = steps
            if steps >= plan.steps:
                break
            if stop_requested.is_set() or stop():
                _save_checkpoint(folder, stack, seeds, steps, time.perf_counter() - started)
                return False
            if steps < stack.first.learning_starts:
                for _ in range(stack.moves_per_round):
                    move_at_random()
            else:
                train_round()
            steps += stack.steps_per_round
        stack.copy_to_agents(steps)
    for seed, agent in zip(seeds, stack.agents, strict=True):
        save_agent(agent, curve_file(folder, seed))
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return True


def _save_checkpoint(folder: Path, stack: Stack, seeds: list[int], steps: int, seconds: float) -> None:
    stack.check_errors()
    about = {"seeds": seeds, "steps": steps, "seconds": seconds, "device": torch.device(stack.device).type}
    write_checkpoint(folder / CHECKPOINT, {**about, "stack": stack.snapshot()})


def _resume(folder: Path, stack: Stack, seeds: list[int]) -> tuple[int | None, float]:
    """Restore a stack from the checkpoint and cut curves to its step.

    Returns the steps and seconds trained before, None and 0 without a checkpoint.
    """
    path, device = folder / CHECKPOINT, torch.device(stack.device).type
    steps, seconds = None, 0.0
    if path.exists():
        try:
            checkpoint = read_checkpoint(path)
            for option, stopped_with, given in (
                ("seeds", len(checkpoint["seeds"]), len(seeds)),
                ("device", checkpoint["device"], device),
            ):
                if stopped_with != given:
                    raise RunRefused(f"{folder} was stopped with --{option} {stopped_with}: give that to resume it")
            stack.restore(checkpoint["stack"])
            steps, seconds = int(checkpoint["steps"]), float(checkpoint["seconds"])
        except RunRefused:
            raise
        except Exception as problem:
            why = (str(problem).splitlines() or [type(problem).__name__])[0][:200]
            raise RunRefused(
                f"{path} cannot be resumed ({why}): it is damaged, or of another version; remove it to start again"
            ) from None
    for seed in seeds:
        curve = curve_file(folder, seed)
        if steps is not None and not curve.exists():
            raise RunRefused(
                f"{curve} is missing, but {path} continues it: put it back, or remove {path} to start again"
            )
        write_rows(curve, [] if steps is None else [row for row in read_rows(curve) if row["steps"] <= steps])
    return steps, seconds


def _evaluate(folder: Path, stack: Stack, seeds: list[int], steps: int, seconds: float) -> None:
    """Append a line to the curve of every seed."""
    success, reward = stack.play(stack.plan.episodes, [evaluation_seed(seed, steps) for seed in seeds])
    for seed, hits, total in zip(seeds, success.tolist(), reward.tolist(), strict=True):
        row = {"steps": steps, "success": hits, "reward": total, "seconds": round(seconds, 2)}
        append_row(curve_file(folder, seed), row)
