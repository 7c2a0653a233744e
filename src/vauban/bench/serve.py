"""Benchmark of the service under load: votes per second of many clients beside bare forward passes, and waiting times."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from vauban.engine.network import device_name, in_precision
from vauban.service.desk import Desk
from vauban.service.running import running

_FEW = 200  # votes of requests that come at once, of which only the first radius counts


def measure(
    desk: Desk, inputs: Path, clients: int, seconds: float, rounds: int, votes: int, on_progress: Callable[[int], None]
) -> dict[str, Any]:
    """Bare forward passes, one client, many that come one after the other, and many that come at once, in turns.

    A round is `seconds` of each. Rates are votes in a second of the clock (`wall`), and in a second in which the voting thread
    had a processor (`busy`), which other load on the machine changes less. Bare passes are cast by the thread of the service
    that votes, while nobody asks. Waiting times are seconds to a first radius, as a client sees them; of many clients, those of
    requests that begin after all clients have come, evenly spread over the time that a request then takes. `inputs`: a file of
    numpy.save, from which the clients take theirs. `votes`: of one request.
    """
    with running(desk) as url:
        bare = _Bare(desk)
        bare.rate(0.5)
        names = ("bare", "served", "ratio", "busy_ratio", "single", "many", "at_once")
        found: dict[str, list[Any]] = {name: [] for name in names}
        for _ in range(rounds):
            before = bare.rate(seconds / 2)
            spread = clients * votes / before.wall
            served, waits = _load(desk, url, clients, votes, seconds, spread, inputs)
            after = bare.rate(seconds / 2)
            found["bare"].append((before.wall + after.wall) / 2)
            found["served"].append(served.wall)
            found["ratio"].append(2 * served.wall / (before.wall + after.wall))
            found["busy_ratio"].append(2 * served.busy / (before.busy + after.busy))
            found["many"] += waits
            found["single"] += _waits(_asked(url, 1, votes, seconds / 2, 0.0, inputs))
            found["at_once"] += _waits(_asked(url, clients, _FEW, 0.5, 0.0, inputs))
            on_progress(int(3.5 * seconds))
        single = median(found["single"])
        many, at_once = (_percentile(found[name], 0.95) for name in ("many", "at_once"))
        sampler = desk.served.smoothed
        return {
            "model": desk.about()["model"],
            "rows": sampler.rows,
            "block": sampler.block,
            "device": device_name(sampler.device),
            "threads": torch.get_num_threads(),
            "clients": clients,
            "votes": votes,
            "requests": len(found["many"]),
            "bare": median(found["bare"]),
            "served": median(found["served"]),
            "served_to_bare": median(found["ratio"]),
            "served_to_bare_busy": median(found["busy_ratio"]),
            "single_first_radius": single,
            "p95_first_radius": many,
            "p95_to_single": many / single,
            "p95_at_once": at_once,
            "at_once_to_single": at_once / single,
        }


@dataclass(frozen=True)
class _Rate:
    """Votes in a second of the clock, and in a second of processor time of the voting thread."""

    wall: float
    busy: float


class _Stopwatch:
    """Clock and processor time of the thread that votes."""

    def __init__(self, desk: Desk):
        clock = getattr(time, "pthread_getcpuclockid", None)
        self._busy = None if clock is None else clock(desk.voting.thread_id)
        self._began = self._now()

    def rate(self, votes: float) -> _Rate:
        """The rates of so many votes since the beginning."""
        wall, busy = (now - then for now, then in zip(self._now(), self._began, strict=True))
        return _Rate(votes / wall, votes / busy)

    def _now(self) -> tuple[float, float]:
        wall = time.perf_counter()
        return wall, wall if self._busy is None else time.clock_gettime(self._busy)


class _Bare:
    """Forward passes of the service's network, nothing else, in the service's compute shape."""

    def __init__(self, desk: Desk):
        self._desk = desk
        smoothed = desk.served.smoothed
        self._rows = smoothed.rows or 1
        shape = smoothed.smoothing.view_shape(torch.Size(desk.served.shape))
        self._views = smoothed.network.laid_out(torch.rand(self._rows, *shape, device=smoothed.device))

    def rate(self, seconds: float) -> _Rate:
        """Views per second."""

        def passes() -> _Rate:
            network, cast, watch = self._desk.served.smoothed.network, 0, _Stopwatch(self._desk)
            began = time.perf_counter()
            with torch.inference_mode(), in_precision(network.precision, network.device):
                while time.perf_counter() - began < seconds:
                    for _ in range(4):
                        network.model(self._views)
                    cast += 4 * self._rows
                    if network.device.type == "cuda":
                        torch.cuda.synchronize()
            return watch.rate(cast)

        return self._desk.voting.call(passes).result()


def _load(
    desk: Desk, url: str, clients: int, votes: int, seconds: float, spread: float, inputs: Path
) -> tuple[_Rate, list[float]]:
    """The rate of many clients once all have come, and their waiting times."""
    found: list[_Rate] = []

    def watching() -> None:
        while desk.in_progress < 0.9 * clients and time.monotonic() - began < 10 * spread + 60:
            time.sleep(0.01)
        time.sleep(0.1 * spread)
        watch, before = _Stopwatch(desk), desk.metrics.counted
        time.sleep(seconds)
        found.append(watch.rate(desk.metrics.counted - before))

    began = time.monotonic()
    thread = threading.Thread(target=watching)
    thread.start()
    asked = _asked(url, clients, votes, spread + seconds + 2.0, spread, inputs)
    thread.join()
    return found[0], _waits([one for one in asked if one[0] > spread])


def _asked(url: str, clients: int, votes: int, seconds: float, spread: float, inputs: Path) -> list[list[Any]]:
    """What the process of clients printed."""
    command = [sys.executable, "-m", "vauban.bench.serve_load", url, clients, votes, seconds, spread, inputs]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _waits(asked: list[list[Any]]) -> list[float]:
    """Seconds to the first radius, of requests that got one; to their end, of the others."""
    return [last if first is None else first for _, first, last in asked]


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
