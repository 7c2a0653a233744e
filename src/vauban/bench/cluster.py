"""What workers on a Ray cluster add: votes per second of one and of several, the cost of handing out, the writer's limit."""

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

from vauban.cluster import Place, connect
from vauban.errors import BadInput, MissingExtra
from vauban.inputs import Inputs, prepare
from vauban.layout import to_fast_layout
from vauban.models import load
from vauban.runs.crew import REPORTS, Crew, errand
from vauban.runs.folder import device_name
from vauban.runs.poll import Job, poll, wanted
from vauban.runs.tallies import Tally, Writer
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing import build

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
    tick: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Rates of this process, of one worker and of several, in turns, each for about so many `seconds` in each round.

    `efficiency`: the median over rounds of what several workers do, over as many times what one does in that round. Handing
    out is clocked on inputs of one shape of views each, one at a time and many at a time: the difference is what a block
    costs. The writer's rate is that of unpacking and writing tallies with eight of a thousand classes in them.
    """
    place = Place.parse(on)
    if place.here:
        raise BadInput("--on here: a cluster is measured, for example --on ray")
    ray = connect(place, "measuring a cluster")
    smoothed, inputs = _classifier(spec, smoothing, device)
    rows = smoothed.voter(inputs).rows
    smoothed.rows = rows
    per_input = _votes_for(smoothed, inputs, seconds)
    many, brief = Job({"n0": 0, "looks": [per_input]}, None, None), Job({"n0": 0, "looks": [rows]}, None, None)
    began = time.perf_counter()
    with _crew(ray, place, smoothed, inputs, many, workers) as crew:
        crew.gather()
        start = time.perf_counter() - began
        rates: dict[str, list[float]] = {"here": [], "one": [], "all": []}
        for _ in range(rounds):
            few = _some(inputs, 8)
            rates["here"].append(_rate(poll(smoothed, few, range(8), _SEED, many, {}), 8 * per_input))
            rates["one"].append(_rate(crew.only(1).poll(list(wanted(few, range(8), {}))), 8 * per_input))
            more = list(wanted(_some(inputs, 8 * workers), range(8 * workers), {}))
            rates["all"].append(_rate(crew.poll(more), 8 * workers * per_input))
            tick(1)
    with _crew(ray, place, smoothed, inputs, brief, 1) as crew:
        crew.gather()
        blocks = _blocks(crew, inputs, rounds)
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
    """Seconds that certifying takes on so many GPUs, on paper: the slower of voting and writing, after a start (Ray, model,
    compilation), which all workers make at once.

    `votes`, `tallies`: of an input on average; `rate`: votes a second of a GPU. The process that writes also hands out: what
    that takes of each second (`seconds_a_block` for every report) is not left for writing.
    """
    voting = inputs * votes / (rate * gpus)
    left = 1 - min(2 * gpus, REPORTS) * seconds_a_block
    writing = inputs * tallies / (writer_tallies * left)
    return {"gpus": gpus, "start": start, "voting": voting, "writing": writing, "seconds": start + max(voting, writing)}


def draw(path: Path, result: dict[str, Any], estimates: list[dict[str, float]]) -> None:
    """Write a picture: rates as measured beside the ideal, and the time for a data set on paper against GPUs."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise MissingExtra("matplotlib", "report", "drawing") from None
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), dpi=150)
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
    right.set(xlabel="GPUs", ylabel="seconds", title="on paper: 50,000 inputs of ImageNet")
    right.grid(alpha=0.25)
    right.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def _classifier(spec: str, smoothing: str, device: str) -> tuple[SmoothedClassifier, Inputs]:
    loaded = load(spec, device=device, allow_random=True)
    size = 28 if loaded.channels == 1 else 32
    smoothed = SmoothedClassifier(
        loaded.module,
        build(smoothing),
        num_classes=loaded.num_classes or 10,
        device=device,
        channels_last=to_fast_layout(loaded.module, 3, device),
    )
    return smoothed, prepare(torch.randint(0, 256, (8, loaded.channels or 3, size, size), dtype=torch.uint8))


def _crew(ray: Any, place: Place, smoothed: SmoothedClassifier, inputs: Inputs, job: Job, workers: int) -> Crew:
    manifest = {"model": {"sha256": "0" * 64}, "compute": {"threads": torch.get_num_threads()}}
    sent = errand(smoothed, inputs, manifest, _SEED, job, ray.cloudpickle.dumps)
    crew = Crew(ray, place, sent, workers)
    if crew.workers < workers:
        raise BadInput(
            f"the cluster has room for {crew.workers} workers, not for {workers}: fewer threads, or more machines"
        )
    return crew


def _some(inputs: Inputs, count: int) -> Inputs:
    return Inputs(inputs.values[torch.arange(count) % len(inputs.values)], inputs.levels)


def _votes_for(smoothed: SmoothedClassifier, inputs: Inputs, seconds: float) -> int:
    """How many votes an input gets so that eight of them take this process about so long."""
    job = Job({"n0": 0, "looks": [smoothed.rows]}, None, None)
    few = _some(inputs, 8)
    for _ in range(2):
        rate = _rate(poll(smoothed, few, range(8), _SEED, job, {}), 8 * int(smoothed.rows or 1))
    rows = int(smoothed.rows or 1)
    return rows * max(1, round(rate * seconds / 8 / rows))


def _rate(tallies: Iterator[tuple[Tally, bool]], votes: int) -> float:
    began = time.perf_counter()
    for _ in tallies:
        pass
    return votes / (time.perf_counter() - began)


def _blocks(crew: Crew, inputs: Inputs, rounds: int) -> dict[str, float]:
    """What a block costs beyond its votes, on the clock and of this process's time."""
    waiting = list(wanted(_some(inputs, _SMALL), range(_SMALL), {}))
    clock, busy = [], []
    for _ in range(rounds):
        spent = {}
        for block in (1, 50):
            began, used = time.perf_counter(), time.process_time()
            for _ in crew.only(1, handout=block).poll(waiting):
                pass
            spent[block] = time.perf_counter() - began, time.process_time() - used
        blocks = _SMALL - _SMALL / 50
        clock.append((spent[1][0] - spent[50][0]) / blocks)
        busy.append((spent[1][1] - spent[50][1]) / blocks)
    return {"block_seconds": median(clock), "block_busy_seconds": median(busy)}


def _writer_rate(reports: int = 200, tallies: int = 100) -> float:
    counts = np.zeros(1_000, dtype=np.int64)
    counts[::125] = 1_000
    report = pickle.dumps([(Tally(number, "count", 8_000, counts.copy()), False) for number in range(tallies)])
    with tempfile.TemporaryDirectory() as folder, Writer(Path(folder), "0" * 64, 0) as writer:
        began = time.perf_counter()
        for _ in range(reports):
            for tally, _last in pickle.loads(report):
                writer.keep(tally)
        return reports * tallies / (time.perf_counter() - began)
