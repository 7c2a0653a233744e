"""Trains groups of base classifiers as jobs on a Ray cluster, with the same result as in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

import torch

from vauban.engine.cluster import RayCluster, connect, read_cluster
from vauban.errors import BadInput, VaubanError
from vauban.poisoning.partitioning.partition import TrainingSet
from vauban.poisoning.progress import ProgressCallback
from vauban.poisoning.training.guarded import fit_parts
from vauban.poisoning.training.trainer import Trainer

T = TypeVar("T")

_GROUP = 16
RETRIES = 3
"""How often a group is trained again, or votes again, whose worker died."""
_PURPOSE = "training on other machines"
_TRAINED = "groups that were trained are kept in the folder, if one was given"


def connected_cluster(on: str) -> RayCluster | None:
    """The cluster that `on` names, once it answers; None for this process."""
    cluster = read_cluster(on)
    if cluster is not None:
        connect(cluster, _PURPOSE)
    return cluster


def fit_on(
    cluster: RayCluster | None,
    trainer: Trainer,
    parts: Sequence[TrainingSet],
    numbers: Sequence[int],
    on_progress: ProgressCallback | None,
) -> Iterator[tuple[list[int], Any]]:
    """What `fit_parts` yields, computed in this process or by the workers of Ray."""
    if cluster is None:
        return fit_parts(trainer, parts, numbers, on_progress)
    return _fit_on_ray(cluster, trainer, parts, numbers, on_progress)


def call_on(cluster: RayCluster | None, trainer: Trainer, work: Callable[[], T]) -> T:
    """What `work()` returns, computed in this process or by one worker of Ray that may train."""
    if cluster is None:
        return work()
    ray = connect(cluster, _PURPOSE)
    needs, _ = job_needs(ray, cluster, trainer)
    found: T = result_of(ray, ray.remote(**needs, max_retries=RETRIES)(_call).remote(work), _TRAINED)
    return found


def _call(work: Callable[[], T]) -> T:
    return work()


def _fit_on_ray(
    cluster: RayCluster,
    trainer: Trainer,
    parts: Sequence[TrainingSet],
    numbers: Sequence[int],
    on_progress: ProgressCallback | None,
) -> Iterator[tuple[list[int], Any]]:
    """Groups in the order in which they finish; at most two jobs a processor are submitted, which bounds the memory.

    Groups are the trainer's own, and workers compute with as many threads as this process, so that every bit is what this
    process would compute on the worker's machine. A group whose worker dies is trained again by another one; one that kills
    `RETRIES` + 1 workers stops the training, since a death is no function of its samples that could be part of a claim.
    """
    ray = connect(cluster, _PURPOSE)
    needs, at_once = job_needs(ray, cluster, trainer)
    job = ray.remote(**needs, max_retries=RETRIES)(_train)
    shared_trainer, threads = ray.put(trainer), torch.get_num_threads()
    waiting = _groups(numbers, int(trainer.spec.get("group", _GROUP)))
    running: list[Any] = []
    try:
        while True:
            while len(running) < at_once and (rows := next(waiting, None)) is not None:
                running.append(
                    job.remote(shared_trainer, [parts[i] for i in rows], [numbers[i] for i in rows], threads)
                )
            if not running:
                return
            ready, running = ray.wait(running, num_returns=1)
            for some, weights in result_of(ray, ready[0], _TRAINED):
                if on_progress:
                    on_progress(len(some))
                yield some, weights
    finally:
        for task in running:
            ray.cancel(task, force=True)


def job_needs(ray: Any, cluster: RayCluster, trainer: Trainer) -> tuple[dict[str, int], int]:
    """What a job of this trainer needs of a machine, and how many jobs are submitted at once."""
    on_gpu = str(trainer.spec.get("device", "cpu")).startswith("cuda")
    needs = {"num_cpus": 0 if on_gpu else 1, "num_gpus": 1 if on_gpu else 0}
    return needs, cluster.workers or max(2, 2 * int(ray.cluster_resources().get("GPU" if on_gpu else "CPU", 1)))


def result_of(ray: Any, task: Any, kept: str) -> Any:
    """What a job returned; an error if its workers died, which says what is `kept`."""
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as problem:
        raise VaubanError(
            f"workers keep dying: one group of base classifiers was tried {RETRIES + 1} times, the last time because of\n  "
            f"{str(problem)[:400]}\n{kept}: check the workers' memory and logs, and run the same command again"
        ) from None


def _groups(numbers: Sequence[int], group: int) -> Iterator[list[int]]:
    """Rows of `numbers` that the trainer trains together."""
    if group < 1:
        raise BadInput(f"group={group}: a trainer works on one partition at a time at least")
    order = sorted(range(len(numbers)), key=lambda i: numbers[i])
    return (list(rows) for _, rows in groupby(order, key=lambda i: numbers[i] // group))


def _train(
    trainer: Trainer, parts: Sequence[TrainingSet], numbers: Sequence[int], threads: int
) -> list[tuple[list[int], Any]]:
    """One job: everything `fit_parts` yields for these partitions, on the CPU."""
    torch.set_num_threads(threads)
    return [(some, _to_cpu(weights)) for some, weights in fit_parts(trainer, parts, numbers)]


def _to_cpu(weights: Any) -> Any:
    if not isinstance(weights, dict):
        return weights
    return {name: value.detach().cpu() for name, value in weights.items()}
