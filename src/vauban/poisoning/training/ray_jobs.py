"""Training on many machines: partitions are independent jobs, so groups of them go to Ray's workers. Same result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch

from vauban.cluster import Place, connect
from vauban.errors import BadInput
from vauban.poisoning.training.trainer import Part, Tick, Trainer

_GROUP = 16
_PURPOSE = "training on other machines"


def reached(on: str) -> Place:
    """The place where to train, once it is known to answer."""
    place = Place.parse(on)
    if not place.here:
        connect(place, _PURPOSE)
    return place


def fit_on(
    place: Place, trainer: Trainer, parts: Sequence[Part], numbers: Sequence[int], tick: Tick | None
) -> Iterator[tuple[list[int], Any]]:
    """What `trainer.fit` yields, computed here or by the workers of Ray."""
    if place.here:
        return trainer.fit(parts, numbers, tick)
    return _on_ray(place, trainer, parts, numbers, tick)


def _on_ray(
    place: Place, trainer: Trainer, parts: Sequence[Part], numbers: Sequence[int], tick: Tick | None
) -> Iterator[tuple[list[int], Any]]:
    """Groups in the order in which they are ready; at most two a processor are under way, so memory stays small.

    Groups are the trainer's own, and workers compute with as many threads as this process, so that every bit is what it would
    be here on such a machine.
    """
    ray = connect(place, _PURPOSE)
    on_gpu = str(trainer.spec.get("device", "cpu")).startswith("cuda")
    job = ray.remote(num_cpus=0 if on_gpu else 1, num_gpus=1 if on_gpu else 0)(_train)
    kept, threads = ray.put(trainer), torch.get_num_threads()
    at_once = place.workers or max(2, 2 * int(ray.cluster_resources().get("GPU" if on_gpu else "CPU", 1)))
    waiting = _groups(numbers, int(trainer.spec.get("group", _GROUP)))
    under_way: list[Any] = []
    try:
        while True:
            while len(under_way) < at_once and (places := next(waiting, None)) is not None:
                under_way.append(job.remote(kept, [parts[i] for i in places], [numbers[i] for i in places], threads))
            if not under_way:
                return
            ready, under_way = ray.wait(under_way, num_returns=1)
            for some, weights in ray.get(ready[0]):
                if tick:
                    tick(len(some))
                yield some, weights
    finally:
        for task in under_way:
            ray.cancel(task, force=True)


def _groups(numbers: Sequence[int], group: int) -> Iterator[list[int]]:
    """Places of the numbers that the trainer trains together."""
    if group < 1:
        raise BadInput(f"group={group}: a trainer works on one partition at a time at least")
    order = sorted(range(len(numbers)), key=lambda i: numbers[i])
    return (list(places) for _, places in groupby(order, key=lambda i: numbers[i] // group))


def _train(
    trainer: Trainer, parts: Sequence[Part], numbers: Sequence[int], threads: int
) -> list[tuple[list[int], Any]]:
    """One job: all that a trainer yields for these partitions, on the CPU."""
    torch.set_num_threads(threads)
    return [(some, _on_cpu(weights)) for some, weights in trainer.fit(parts, numbers, None)]


def _on_cpu(weights: Any) -> Any:
    if not isinstance(weights, dict):
        return weights
    return {name: value.detach().cpu() for name, value in weights.items()}
