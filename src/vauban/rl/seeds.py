"""Several seeds at once, one process each."""

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


def train_seeds(
    folder: Path,
    plan: Plan,
    seeds: list[int],
    *,
    jobs: int = 1,
    device: str = "cpu",
    tensorboard: bool = False,
    on_progress: ProgressCallback,
) -> bool:
    """Train every seed that is not complete, `jobs` at a time; returns False if Ctrl-C came, with checkpoints kept.

    An update on these small networks keeps one core busy and gains nothing from a second one: a process a seed is the fast way.
    """
    if jobs == 1 or len(seeds) == 1:
        return all(
            train_seed(folder, plan, seed, device=device, tensorboard=tensorboard, on_progress=on_progress)
            for seed in seeds
        )
    context = multiprocessing.get_context("forkserver")  # imports torch once for all processes
    context.set_forkserver_preload([__name__])
    told: Any = context.Queue()
    running: dict[int, Any] = {}
    waiting, complete = list(seeds), True
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                seed = waiting.pop(0)
                process = context.Process(
                    target=_work, args=(folder, plan, seed, device, tensorboard, told), daemon=True
                )
                process.start()
                running[seed] = process
            try:
                seed, kind, what = told.get(timeout=1.0)
            except queue.Empty:
                for seed, process in list(running.items()):
                    if not process.is_alive() and told.empty():
                        raise VaubanError(f"the process of seed {seed} ended with code {process.exitcode}") from None
                continue
            if kind == "done":
                complete &= what
                running.pop(seed).join()
                if not what:
                    waiting.clear()
            elif kind == "problem":
                raise what
            else:
                on_progress(what)
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


def _work(folder: Path, plan: Plan, seed: int, device: str, tensorboard: bool, told: Any) -> None:
    import torch

    os.setpgrp()  # Ctrl-C reaches the parent alone, which passes it on once
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    pending = 0

    def on_progress(more: int) -> None:
        nonlocal pending
        pending += more
        if pending >= 100:
            told.put((seed, "steps", pending))
            pending = 0
            if parent is None or not parent.is_alive():
                raise Interrupted

    try:
        complete = train_seed(folder, plan, seed, device=device, tensorboard=tensorboard, on_progress=on_progress)
        told.put((seed, "steps", pending))
        told.put((seed, "done", complete))
    except Exception as problem:
        told.put((seed, "problem", problem))
