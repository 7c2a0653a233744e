"""Training of several seeds in parallel, one process for each."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vauban.errors import VaubanError
from vauban.rl.curves import curve_file
from vauban.rl.recipes import Plan
from vauban.rl.robots import is_robot
from vauban.rl.training import Interrupted, ProgressCallback, train_seed

_REPORT_STEPS = 100


@dataclass(frozen=True)
class Job:
    """One seed of one training."""

    folder: Path
    plan: Plan
    seed: int

    @property
    def curve(self) -> Path:
        """The file of its learning curve."""
        return curve_file(self.folder, self.seed)


def workers_each(env: str, at_once: int) -> int:
    """Processes that simulate for each of `at_once` jobs on this machine's cores: 1 unless the environment is a robot.

    A job's own process waits while its environment is simulated, and the other way round, so that it needs no further core.
    """
    return max(1, round(len(os.sched_getaffinity(0)) / at_once)) if is_robot(env) else 1


def train_seeds(folder: Path, plan: Plan, seeds: list[int], **options: Any) -> bool:
    """Train every seed of a plan that is not complete; `options` as for `train_jobs`."""
    return train_jobs([Job(folder, plan, seed) for seed in seeds], **options)


def train_jobs(
    listed: list[Job],
    *,
    jobs: int = 1,
    workers: int = 1,
    device: str = "cpu",
    tensorboard: bool = False,
    on_progress: ProgressCallback = lambda _: None,
) -> bool:
    """Train every job that is not complete, `jobs` at a time; returns False after Ctrl-C, with checkpoints written.

    An update of small networks uses one core and gains nothing from a second one, so each job has a process. `workers`: further
    processes of each that simulate robots, and threads of its updates in between.
    """
    if jobs == 1 or len(listed) == 1:
        options: dict[str, Any] = {
            "device": device, "tensorboard": tensorboard, "workers": workers, "on_progress": on_progress,
        }  # fmt: skip
        return all(train_seed(job.folder, job.plan, job.seed, **options) for job in listed)
    context = multiprocessing.get_context("forkserver")  # imports torch once for all processes
    context.set_forkserver_preload([__name__])
    messages: Any = context.Queue()
    running: dict[int, Any] = {}
    waiting, complete = list(range(len(listed))), True
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                number = waiting.pop(0)
                arguments = (number, listed[number], device, tensorboard, workers, messages)
                process = context.Process(target=_train_in_process, args=arguments)
                process.start()
                running[number] = process
            try:
                number, kind, value = messages.get(timeout=1.0)
            except queue.Empty:
                for number, process in list(running.items()):
                    if not process.is_alive() and messages.empty():
                        seed = listed[number].seed
                        raise VaubanError(f"the process of seed {seed} ended with code {process.exitcode}") from None
                continue
            if kind == "done":
                complete &= value
                running.pop(number).join()
                if not value:
                    waiting.clear()
            elif kind == "error":
                raise value
            else:
                on_progress(value)
    except KeyboardInterrupt:
        for process in running.values():
            if process.is_alive() and process.pid:
                os.kill(process.pid, signal.SIGINT)
        for process in running.values():
            process.join()
        return False
    finally:
        for process in running.values():
            process.terminate()
    return complete


def _train_in_process(number: int, job: Job, device: str, tensorboard: bool, workers: int, messages: Any) -> None:
    """Train one job in a process of its own; `messages` receives (number, "steps" | "done" | "error", value)."""
    import torch

    os.setpgrp()  # the terminal then sends Ctrl-C to the parent only, which forwards it once
    torch.set_num_threads(workers)
    parent = multiprocessing.parent_process()
    pending = 0

    def on_progress(steps: int) -> None:
        nonlocal pending
        pending += steps
        if pending >= _REPORT_STEPS:
            messages.put((number, "steps", pending))
            pending = 0
            if parent is None or not parent.is_alive():
                raise Interrupted

    options: dict[str, Any] = {"device": device, "tensorboard": tensorboard, "workers": workers}
    try:
        complete = train_seed(job.folder, job.plan, job.seed, on_progress=on_progress, **options)
        messages.put((number, "steps", pending))
        messages.put((number, "done", complete))
    except Exception as error:
        messages.put((number, "error", error))
