"""Benchmark of a Ray cluster: votes per second of one and several workers, the cost of sending blocks, the writer's limit."""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from vauban.engine.cluster import RayCluster, connect, read_cluster
from vauban.engine.network import device_name
from vauban.engine.sampler import Sampler
from vauban.engine.scheduler import PendingInput
from vauban.engine.worker_pool import REPORTS, WorkerPool, worker_setup
from vauban.errors import BadInput, MissingExtra
from vauban.files import Log
from vauban.inputs import Inputs, prepare
from vauban.laws.law import Law
from vauban.methods import CertifySettings, FixedMethod
from vauban.models import load
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing import build
from vauban.votes import KeptCounts, Record, SampledVotes, Tally

_SEED = Seed.of(0)
_SMALL = 400


def measure(
    spec: str,
    smoothing: str,
    *,
    on: str = "ray",
    workers: int = 2,
    rounds: int = 5,
    seconds: float = 5.0,
    device: str = "cpu",
    on_progress: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Votes per second of this process, of one worker and of several, in turns, each for about `seconds` in each round.

    `efficiency`: the median over rounds of the rate of all workers, divided by their number times the rate of one worker. The
    cost of a block is measured on inputs of one shape of views each, sent one at a time and many at a time: it is the
    difference. The writer's rate is that of unpacking and writing tallies in which eight of a thousand classes have votes.
    """
    cluster = read_cluster(on)
    if cluster is None:
        raise BadInput("--on here: a cluster is needed, for example --on ray")
    ray = connect(cluster, "measuring a cluster")
    smoothed, inputs = _classifier(spec, smoothing, device)
    with smoothed.ready(inputs):
        sampler = smoothed.sampler(inputs, _method(smoothed, 1_000))
        rows = sampler.rows
        per_input = _votes_for(smoothed, sampler, inputs, seconds)
        many, brief = _method(smoothed, per_input), _method(smoothed, max(rows, 20))
        began = time.perf_counter()
        with _pool(ray, cluster, smoothed, sampler, inputs, many, workers) as pool:
            pool.gather()
            start = time.perf_counter() - began
            rates: dict[str, list[float]] = {"here": [], "one": [], "all": []}
            for _ in range(rounds):
                few, more = _pending(inputs, 8), _pending(inputs, 8 * workers)
                rates["here"].append(_rate(sampler.run(few, many, _SEED), 8 * per_input))
                rates["one"].append(_rate(pool.only(1).run(few), 8 * per_input))
                rates["all"].append(_rate(pool.run(more), 8 * workers * per_input))
                on_progress(1)
        with _pool(ray, cluster, smoothed, sampler, inputs, brief, 1) as pool:
            pool.gather()
            blocks = _blocks(pool, inputs, rounds)
    return {
        "model": spec,
        "rows": rows,
        "device": device_name(smoothed.device),
        "threads": torch.get_num_threads(),
        "workers": workers,
        "start_seconds": start,
        **{name: median(some) for name, some in rates.items()},
        "one_to_here": median(o / h for o, h in zip(rates["one"], rates["here"], strict=True)),
        "efficiency": median(a / o / workers for a, o in zip(rates["all"], rates["one"], strict=True)),
        **blocks,
        "writer_tallies": _writer_rate(),
    }


def estimate(
    gpus: int,
    *,
    inputs: int = 50_000,
    votes: float = 1_800,
    rate: float = 24_000,
    tallies: float = 10,
    start: float = 120.0,
    seconds_a_block: float,
    writer_tallies: float,
) -> dict[str, float]:
    """Estimated seconds to certify on this many GPUs: the slower of voting and writing, after a start (Ray, model,
    compilation) that all workers make at the same time.

    `votes`, `tallies`: per input on average; `rate`: votes per second of a GPU. The process that writes also sends out blocks:
    the time for that (`seconds_a_block` per report) is not available for writing.
    """
    voting = inputs * votes / (rate * gpus)
    left = 1 - min(2 * gpus, REPORTS) * seconds_a_block
    writing = inputs * tallies / (writer_tallies * left)
    return {"gpus": gpus, "start": start, "voting": voting, "writing": writing, "seconds": start + max(voting, writing)}


def draw(path: Path, result: dict[str, Any], estimates: list[dict[str, float]]) -> None:
    """Write a picture: the measured rates beside the ideal, and the estimated time for a data set against GPUs."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report", "drawing") from None
    figure = Figure(figsize=(10, 4), dpi=150)
    left, right = figure.subplots(1, 2)
    count = result["workers"]
    names = ["this process", "1 worker", f"{count} workers"]
    left.bar(names, [result["here"], result["one"], result["all"]], width=0.55)
    left.plot([0.7, 2.3], [count * result["one"]] * 2, "k--", lw=1, label=f"{count} times 1 worker")
    left.set(ylabel="votes per second", title=f"measured: efficiency {result['efficiency']:.2f}")
    left.set_ylim(0, 1.2 * max(result["all"], count * result["one"]))
    left.legend(frameon=False, loc="upper left")
    gpus = [one["gpus"] for one in estimates]
    right.loglog(gpus, [one["seconds"] for one in estimates], lw=2, label="all")
    for part, style in (("voting", "--"), ("writing", ":"), ("start", "-.")):
        right.loglog(gpus, [one[part] for one in estimates], style, lw=1, label=part)
    right.set(xlabel="GPUs", ylabel="seconds", title="estimated: 50,000 inputs of ImageNet")
    right.grid(alpha=0.25)
    right.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)


def _classifier(spec: str, smoothing: str, device: str) -> tuple[SmoothedClassifier, Inputs]:
    loaded = load(spec, device=device, allow_random=True)
    size = 28 if loaded.channels == 1 else 32
    smoothed = SmoothedClassifier(loaded, build(smoothing), num_classes=loaded.num_classes or 10, device=device)
    return smoothed, prepare(torch.randint(0, 256, (8, loaded.channels or 3, size, size), dtype=torch.uint8))


class _OneLook(FixedMethod):
    """A fixed number of votes and one look at the end, so that only voting is measured."""

    @property
    def looks(self) -> list[int]:
        return [self.settings.n or 0]


def _method(smoothed: SmoothedClassifier, n: int) -> FixedMethod:
    law = smoothed.smoothing.law.for_shape((1, 28, 28))
    assert isinstance(law, Law)
    settings = CertifySettings.of(law, smoothed.num_classes, n=n, alpha=0.1)
    return _OneLook(settings, law, smoothed.num_classes, (1, 28, 28))


def _pool(
    ray: Any,
    cluster: RayCluster,
    smoothed: SmoothedClassifier,
    sampler: Sampler,
    inputs: Inputs,
    method: FixedMethod,
    workers: int,
) -> WorkerPool:
    model, spec = smoothed.base.module, str(smoothed.smoothing.spec)
    sent = worker_setup(sampler, model, spec, inputs, method, _SEED, "0" * 64, ray.cloudpickle.dumps)
    pool = WorkerPool(ray, cluster, sent, workers)
    if pool.workers < workers:
        raise BadInput(
            f"the cluster has room for {pool.workers} workers, not for {workers}: use fewer threads or more machines"
        )
    return pool


def _pending(inputs: Inputs, count: int) -> list[PendingInput]:
    values = inputs.values
    return [PendingInput(i, values[i % len(values)], 0, KeptCounts()) for i in range(count)]


def _votes_for(smoothed: SmoothedClassifier, sampler: Sampler, inputs: Inputs, seconds: float) -> int:
    """The number of votes per input with which eight inputs take this process about `seconds`."""
    rows, method = sampler.rows, _method(smoothed, max(sampler.rows, 20))
    for _ in range(2):
        rate = _rate(sampler.run(_pending(inputs, 8), method, _SEED), 8 * (method.settings.n or 1))
    return rows * max(1, round(rate * seconds / 8 / rows))


def _rate(records: Iterator[tuple[int, Record, bool]], votes: int) -> float:
    began = time.perf_counter()
    for _ in records:
        pass
    return votes / (time.perf_counter() - began)


def _blocks(pool: WorkerPool, inputs: Inputs, rounds: int) -> dict[str, float]:
    """The cost of sending out an item beyond its votes, in wall-clock time and in this process's CPU time."""
    waiting = _pending(inputs, _SMALL)
    clock, busy = [], []
    for _ in range(rounds):
        spent = {}
        for block in (1, 50):
            began, used = time.perf_counter(), time.process_time()
            for _ in pool.only(1, handout=block).run(waiting):
                pass
            spent[block] = time.perf_counter() - began, time.process_time() - used
        blocks = _SMALL - _SMALL / 50
        clock.append((spent[1][0] - spent[50][0]) / blocks)
        busy.append((spent[1][1] - spent[50][1]) / blocks)
    return {"block_seconds": median(clock), "block_busy_seconds": median(busy)}


def _writer_rate(reports: int = 200, tallies: int = 100) -> float:
    counts = np.zeros(1_000, dtype=np.int64)
    counts[::125] = 1_000
    report = pickle.dumps([(number, Tally(number, "count", 8_000, counts.copy()), False) for number in range(tallies)])
    table = SampledVotes(range(tallies), 1_000, lambda number: 8_000)
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder) / table.file, 0)
        began = time.perf_counter()
        for _ in range(reports):
            for _, tally, _last in pickle.loads(report):
                log.append(table.line(tally, "0" * 64))
        spent = time.perf_counter() - began
        log.close()
    return reports * tallies / spent
