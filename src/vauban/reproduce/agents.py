"""Trains the agents of entries: batched programs that share a GPU, or a process for each seed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vauban.errors import BadInput
from vauban.files import locked

if TYPE_CHECKING:
    from vauban.reproduce.learning import Training
    from vauban.rl.recipes import Plan
    from vauban.rl.seeds import Job

_PROGRAMS_AT_ONCE, _AGENTS_IN_A_PROGRAM = 8, 40


def train(trainings: Sequence[Training], options: Any) -> None:
    """Train what is not complete, several at a time; raises KeyboardInterrupt after a request to stop, with checkpoints."""
    from vauban.rl.training import open_run

    missing = list({one.folder: one for one in trainings if not one.complete}.values())
    if not missing:
        return
    batched = _batched(missing, options)
    plans = [one.candidate.plan(one.folder in batched) for one in missing]
    total = sum(plan.steps * len(one.seeds) for one, plan in zip(missing, plans, strict=True))
    options.say(f"{len(missing)} trainings, {total:,} steps")
    with ExitStack() as held:
        for one, plan in zip(missing, plans, strict=True):
            open_run(one.folder, plan, one.candidate.label)
            held.enter_context(locked(one.folder))
        on_progress = held.enter_context(_bar(options, total))
        for run, together in ((_train_together, True), (_train_apart, False)):
            some = [pair for pair in zip(missing, plans, strict=True) if pair[1].together == together]
            if some and not run([one for one, _ in some], [plan for _, plan in some], options, on_progress):
                raise KeyboardInterrupt


def _batched(trainings: Sequence[Training], options: Any) -> set[Path]:
    """The folders of those of which all seeds can be one batched program on this device; of the others each seed is a process."""
    from vauban.rl.batched_seeds import batch_key, check_batched

    if not options.device.startswith("cuda"):
        return set()
    why_not: dict[Any, BadInput | None] = {}
    found = set[Path]()
    for one in trainings:
        if _is_robot(one):
            continue
        plan = one.candidate.plan(together=True)
        if (key := batch_key(plan)) not in why_not:
            why_not[key] = _refusal(check_batched, plan)
        if (problem := why_not[key]) is None:
            found.add(one.folder)
        else:
            options.say(f"{one.candidate.label}: a process for each seed ({problem})")
    return found


def _refusal(check: Callable[[Plan], None], plan: Plan) -> BadInput | None:
    """What a check says against a plan."""
    try:
        check(plan)
    except BadInput as problem:
        return problem
    return None


def _is_robot(training: Training) -> bool:
    from vauban.rl.robots import is_robot

    return is_robot(training.candidate.env)


def _train_apart(missing: Sequence[Training], plans: Sequence[Plan], options: Any, on_progress: Callable) -> bool:
    """A process for each seed; the first seed of every training comes before the second of any."""
    from vauban.rl.seeds import Job, train_jobs, workers_each

    listed = [
        (place, number, Job(one.folder, plan, seed))
        for number, (one, plan) in enumerate(zip(missing, plans, strict=True))
        for place, seed in enumerate(one.seeds)
    ]
    listed.sort(key=lambda job: job[:2])
    at_once = min(len(listed), options.jobs or len(os.sched_getaffinity(0)))
    workers = max(workers_each(one.candidate.env, at_once) for one in missing)
    jobs = [job for _, _, job in listed]
    return train_jobs(jobs, jobs=at_once, workers=workers, device=options.device, on_progress=on_progress)


def _train_together(missing: Sequence[Training], plans: Sequence[Plan], options: Any, on_progress: Callable) -> bool:
    """Trainings that differ in the goal weight alone as one batched program; programs are threads that share the GPU."""
    from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

    import torch

    from vauban.engine.network import in_precision
    from vauban.interrupts import interruptible
    from vauban.rl.batched_seeds import train_jobs_batched

    stop, lock = threading.Event(), threading.Lock()

    def report(steps: int) -> None:
        with lock:
            on_progress(steps)

    def train(jobs: Sequence[Job]) -> bool:
        return stop.is_set() or train_jobs_batched(jobs, device=options.device, on_progress=report, stop=stop.is_set)

    # Signals and the precision are of the whole process: threads of the pool can do nothing about the one, and would restore
    # the other in any order.
    precision = in_precision(plans[0].precision, torch.device(options.device))
    with interruptible() as asked, precision, ThreadPoolExecutor(options.jobs or _PROGRAMS_AT_ONCE) as pool:
        futures = [pool.submit(train, jobs) for jobs in _programs(missing, plans)]
        try:
            while wait(futures, timeout=0.5, return_when=FIRST_EXCEPTION).not_done and not asked.is_set():
                if any(future.done() and future.exception() for future in futures):
                    break
        finally:
            stop.set()
        for future in futures:
            future.result()
    return all(one.complete for one in missing)


def _programs(missing: Sequence[Training], plans: Sequence[Plan]) -> list[list[Job]]:
    """The jobs of each batched program: whole trainings whose plans can be one program, as many as fit into it."""
    from vauban.rl.batched_seeds import batch_key
    from vauban.rl.seeds import Job

    programs: list[list[Job]] = []
    open_ones: dict[Any, list[Job]] = {}
    for one, plan in zip(missing, plans, strict=True):
        jobs, key = [Job(one.folder, plan, seed) for seed in one.seeds], batch_key(plan)
        if key not in open_ones or len(open_ones[key]) + len(jobs) > _AGENTS_IN_A_PROGRAM:
            open_ones[key] = []
            programs.append(open_ones[key])
        open_ones[key] += jobs
    return programs


def _bar(options: Any, total: int) -> Any:
    return nullcontext(lambda steps: None) if options.bar is None else options.bar("training", total, "steps")
