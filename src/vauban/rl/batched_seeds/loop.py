"""The batched training loop: evaluations, checkpoints, resumption; on a GPU each round is one CUDA graph."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from stable_baselines3 import DQN, SAC

from vauban.engine.network import in_precision
from vauban.errors import RunRefused
from vauban.interrupts import interruptible
from vauban.rl.batched_seeds.ddpg_stack import DDPGStack
from vauban.rl.batched_seeds.dqn_stack import DQNStack
from vauban.rl.batched_seeds.goal_set_stack import GoalSetStack
from vauban.rl.batched_seeds.picture_stack import PictureStack
from vauban.rl.batched_seeds.sac_stack import SACStack
from vauban.rl.batched_seeds.stack import Stack
from vauban.rl.checkpoints import read_checkpoint, write_checkpoint
from vauban.rl.curves import read_rows
from vauban.rl.recipes import ALGORITHMS, Plan, make_agent, make_world
from vauban.rl.seeds import Job
from vauban.rl.training import (
    CHECKPOINT_RATIO,
    CHECKPOINT_SECONDS,
    ProgressCallback,
    append_row,
    evaluation_seed,
    is_complete,
    publish_agent,
    write_agent,
    write_rows,
)

CHECKPOINT = "together.checkpoint.pt"
_WARM_UP_CALLS = 3
_REPORT_STEPS = 100
_capturing = threading.Lock()


def stack_of(plan: Plan, seeds: list[int], device: str, goal_weights: Sequence[float] | None = None) -> Stack:
    """The stack for a plan's algorithm; raises BadInput for a plan that cannot be batched."""
    return _stack_class(plan)(plan, seeds, device, goal_weights)


def batch_key(plan: Plan) -> Hashable:
    """Plans with the same key can be trained as one batched program: at most their goal weights differ, and none of them is 0."""
    weight = plan.settings.get("goal_weight")
    others = {key: value for key, value in plan.settings.items() if key != "goal_weight"}
    return repr((replace(plan, settings={}), sorted(others.items()), None if weight is None else weight > 0))


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


def train_batched(folder: Path, plan: Plan, seeds: list[int], **options: Any) -> bool:
    """Train all seeds of a plan as one batched program; `options` as for `train_jobs_batched`."""
    return train_jobs_batched([Job(folder, plan, seed) for seed in seeds], **options)


def train_jobs_batched(
    jobs: Sequence[Job],
    *,
    device: str,
    on_progress: ProgressCallback = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Train jobs whose plans have the same `batch_key` as one batched program; writes the same curve and agent files as
    `train_seed`.

    Returns False after Ctrl-C, or when `stop` returns True, with a checkpoint in the first job's folder from which the same call
    resumes; a checkpoint is also written every few minutes.
    """
    plan, folder = jobs[0].plan, jobs[0].folder
    done = [job for job in jobs if is_complete(job.curve, plan.steps)]
    if len(done) == len(jobs):
        on_progress(plan.steps * len(jobs))
        return True
    if done and not (folder / CHECKPOINT).exists():
        raise RunRefused(
            f"{folder} holds {len(done)} complete seeds of {len(jobs)}: no seed can be added to a batched training; "
            f"give --seeds {len(done)}, or another --out"
        )
    stream: AbstractContextManager[Any] = nullcontext()
    if device.startswith("cuda"):  # where several trainings share a GPU, those with small networks have priority
        world = make_world(plan.env)
        priority = 0 if world is not None and world.goal_set else -1
        stream = torch.cuda.stream(torch.cuda.Stream(torch.device(device), priority=priority))
    with stream, in_precision(plan.precision, torch.device(device)), interruptible() as stop_requested:
        stack = _stack(jobs, device)
        resumed, seconds = _resume(jobs, stack)
        steps = resumed or 0
        started = time.perf_counter() - seconds
        on_progress(len(jobs) * steps)
        reported, evaluated = steps, -plan.every if resumed is None else steps
        train_round = GraphRunner(stack, stack.round)
        move_at_random = GraphRunner(stack, lambda: stack.move(at_random=True))
        checkpointed, pause = time.perf_counter(), CHECKPOINT_SECONDS
        while True:
            if steps // plan.every > evaluated // plan.every or (steps >= plan.steps and steps > evaluated):
                stack.check_errors()
                if stack.resize(steps):
                    train_round = GraphRunner(stack, stack.round)
                _evaluate(jobs, stack, steps, time.perf_counter() - started)
                evaluated = steps
                if (now := time.perf_counter()) - checkpointed > pause:
                    _save_checkpoint(jobs, stack, steps, now - started)
                    checkpointed = time.perf_counter()
                    pause = max(CHECKPOINT_SECONDS, CHECKPOINT_RATIO * (checkpointed - now))
            if steps - reported >= _REPORT_STEPS or steps >= plan.steps:
                on_progress(len(jobs) * (steps - reported))
                reported = steps
            if steps >= plan.steps:
                break
            if stop_requested.is_set() or stop():
                _save_checkpoint(jobs, stack, steps, time.perf_counter() - started)
                return False
            if steps < stack.first.learning_starts:
                for _ in range(stack.moves_per_round):
                    move_at_random()
            else:
                train_round()
            steps += stack.steps_per_round
        stack.copy_to_agents(steps)
        # Seeds that are complete are never trained again: with this checkpoint, those after them need not be either.
        _save_checkpoint(jobs, stack, steps, time.perf_counter() - started)
    for job, agent in zip(jobs, stack.agents, strict=True):
        write_agent(agent, job.curve)
    for job in jobs:
        publish_agent(job.curve)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return True


def _stack(jobs: Sequence[Job], device: str) -> Stack:
    given = "goal_weight" in jobs[0].plan.settings  # then in all of them: they have one `batch_key`
    weights = [float(job.plan.settings["goal_weight"]) for job in jobs] if given else None
    return stack_of(jobs[0].plan, [job.seed for job in jobs], device, weights)


def _save_checkpoint(jobs: Sequence[Job], stack: Stack, steps: int, seconds: float) -> None:
    stack.check_errors()
    about = {"seeds": [job.seed for job in jobs], "trainings": _trainings(jobs), "steps": steps, "seconds": seconds}
    about["device"] = torch.device(stack.device).type
    write_checkpoint(jobs[0].folder / CHECKPOINT, {**about, "stack": stack.snapshot()})


def _trainings(jobs: Sequence[Job]) -> list[str]:
    """The folders that are trained as one, seen from the first."""
    return list(dict.fromkeys(os.path.relpath(job.folder, jobs[0].folder) for job in jobs))


def _resume(jobs: Sequence[Job], stack: Stack) -> tuple[int | None, float]:
    """Restore a stack from the checkpoint and cut curves to its step.

    Returns the steps and seconds trained before, None and 0 without a checkpoint.
    """
    folder, device = jobs[0].folder, torch.device(stack.device).type
    path, steps, seconds = folder / CHECKPOINT, None, 0.0
    if path.exists():
        try:
            checkpoint = read_checkpoint(path)
            trainings = checkpoint.get("trainings", ["."])
            if trainings != _trainings(jobs):
                raise RunRefused(
                    f"{folder} was stopped while {len(trainings)} trainings were one program ({', '.join(trainings)} from "
                    f"there): give the same command to resume it, or remove {path} to start again"
                )
            for option, stopped_with, given in (
                ("seeds", len(checkpoint["seeds"]), len(jobs)),
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
    for job in jobs:
        if steps is not None and not job.curve.exists():
            raise RunRefused(
                f"{job.curve} is missing, but {path} continues it: put it back, or remove {path} to start again"
            )
        write_rows(job.curve, [] if steps is None else [row for row in read_rows(job.curve) if row["steps"] <= steps])
    return steps, seconds


def _evaluate(jobs: Sequence[Job], stack: Stack, steps: int, seconds: float) -> None:
    """Append a line to the curve of every job."""
    success, reward = stack.play(stack.plan.episodes, [evaluation_seed(job.seed, steps) for job in jobs])
    for job, hits, total in zip(jobs, success.tolist(), reward.tolist(), strict=True):
        append_row(job.curve, {"steps": steps, "success": hits, "reward": total, "seconds": round(seconds, 2)})
