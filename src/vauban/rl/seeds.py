"""Training of several seeds in parallel, one process for each."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
from pathlib import Path
from typing import Any

from vauban.errors import VaubanError
from vauban.rl.recipes import Plan
from vauban.rl.training import Interrupted, ProgressCallback, train_seed

_REPORT_STEPS = 100


def train_seeds(
    folder: Path,
    plan: Plan,
    seeds: list[int],
    *,
    jobs: int = 1,
    device: str = "cpu",
    tensorboard: bool = False,
    on_progress: ProgressCallback = lambda _: None,
) -> bool:
    """Train every seed that is not complete, `jobs` at a time; returns False after Ctrl-C, with checkpoints written.

    An update of these small networks uses one core and gains nothing from a second one, so each seed has a process.
    """
    if jobs == 1 or len(seeds) == 1:
        options: dict[str, Any] = {"device": device, "tensorboard": tensorboard, "on_progress": on_progress}
        return all(train_seed(folder, plan, seed, **options) for seed in seeds)
    context = multiprocessing.get_context("forkserver")  # imports torch once for all processes
    context.set_forkserver_preload([__name__])
    messages: Any = context.Queue()
    running: dict[int, Any] = {}
    waiting, complete = list(seeds), True
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                seed = waiting.pop(0)
                arguments = (folder, plan, seed, device, tensorboard, messages)
                process = context.Process(target=_train_in_process, args=arguments, daemon=True)
                process.start()
                running[seed] = process
            try:
                seed, kind, value = messages.get(timeout=1.0)
            except queue.Empty:
                for seed, process in list(running.items()):
                    if not process.is_alive() and messages.empty():
                        raise VaubanError(f"the process of seed {seed} ended with code {process.exitcode}") from None
                continue
            if kind == "done":
                complete &= value
                running.pop(seed).join()
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


def _train_in_process(folder: Path, plan: Plan, seed: int, device: str, tensorboard: bool, messages: Any) -> None:
    """Train one seed in a process of its own; `messages` receives (seed, "steps" | "done" | "error", value)."""
    import torch

    os.setpgrp()  # the terminal then sends Ctrl-C to the parent only, which forwards it once
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    pending = 0

    def on_progress(steps: int) -> None:
        nonlocal pending
        pending += steps
        if pending >= _REPORT_STEPS:
            messages.put((seed, "steps", pending))
            pending = 0
            if parent is None or not parent.is_alive():
                raise Interrupted

    try:
        complete = train_seed(folder, plan, seed, device=device, tensorboard=tensorboard, on_progress=on_progress)
        messages.put((seed, "steps", pending))
        messages.put((seed, "done", complete))
    except Exception as error:
        messages.put((seed, "error", error))
