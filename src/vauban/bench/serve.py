"""Benchmark of the service under load: votes per second of many clients beside bare forward passes, and waiting times."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from vauban.engine.network import Network, device_name, in_precision
from vauban.service.desk import Desk
from vauban.service.running import running

_WHO = ("bare", "served", "clients")
_FEW = 200  # votes of requests that come at once, of which only the first radius counts


def measure(
    desk: Desk, inputs: Path, clients: int, seconds: float, rounds: int, votes: int, on_progress: Callable[[int], None]
) -> dict[str, Any]:
    """Bare forward passes, one client, many that come one after the other, and many that come at once, in turns.

    A round is `seconds` of each. Rates are votes in a second of the clock (`wall`), and in a second of processor time of this
    process, user and system, all threads (`cpu`), which other load on the machine changes less. Bare passes are those of the
    service's network in its compute shape, in as many threads at a time as the service casts shapes, each with as many torch
    threads, while nobody asks. Served votes are those that were counted; uncounted ones (probe views of each record, votes beyond
    a last look) cost time and are not among them, and neither are views that only fill a shape. Waiting times are seconds to a
    first radius, as a client sees them; of many clients, those of requests that begin after all clients have come, evenly spread
    over the time that a request then takes. `inputs`: a file of numpy.save, from which the clients take theirs. `votes`: of one
    request.
    """
    with running(desk) as url:
        bare = _Bare(desk)
        bare.rate(0.5)
        names = (
            "bare",
            "served",
            "ratio",
            "cpu_ratio",
            "bare_us",
            "served_us",
            "clients_us",
            "single",
            "many",
            "at_once",
        )
        found: dict[str, list[Any]] = {name: [] for name in names}
        for _ in range(rounds):
            before = bare.rate(seconds / 2)
            spread = clients * votes / before.wall
            served, asked = _load(desk, url, clients, votes, seconds, spread, inputs)
            after = bare.rate(seconds / 2)
            found["bare"].append((before.wall + after.wall) / 2)
            found["served"].append(served.wall)
            found["ratio"].append(2 * served.wall / (before.wall + after.wall))
            found["cpu_ratio"].append(2 * served.cpu / (before.cpu + after.cpu))
            found["bare_us"].append(2e6 / (before.cpu + after.cpu))
            found["served_us"].append(1e6 / served.cpu)
            found["clients_us"].append(_clients_cpu(asked, votes))
            found["many"] += _waits([one for one in asked if one[0] > spread])
            found["single"] += _waits(_asked(url, 1, votes, seconds / 2, 0.0, inputs))
            found["at_once"] += _waits(_asked(url, clients, _FEW, 0.5, 0.0, inputs))
            on_progress(int(3.5 * seconds))
        single = median(found["single"])
        many, at_once = (_percentile(found[name], 0.95) for name in ("many", "at_once"))
        sampler, (bare_us, served_us, clients_us) = desk.served.smoothed, (median(found[f"{x}_us"]) for x in _WHO)
        return {
            "model": desk.about()["model"],
            "rows": sampler.rows,
            "block": sampler.block,
            "device": device_name(sampler.device),
            "workers": desk.voting.workers,
            "threads": desk.voting.threads,
            "clients": clients,
            "votes": votes,
            "requests": len(found["many"]),
            "bare": median(found["bare"]),
            "served": median(found["served"]),
            "served_to_bare": median(found["ratio"]),
            "served_to_bare_cpu": median(found["cpu_ratio"]),
            "served_to_bare_cpu_with_clients": bare_us / (served_us + clients_us),
            "bare_cpu_us": bare_us,
            "served_cpu_us": served_us,
            "clients_cpu_us": clients_us,
            "single_first_radius": single,
            "p95_first_radius": many,
            "p95_to_single": many / single,
            "p95_at_once": at_once,
            "at_once_to_single": at_once / single,
        }


@dataclass(frozen=True)
class _Rate:
    """Votes in a second of the clock, and in a second of processor time of this process."""

    wall: float
    cpu: float


class _Stopwatch:
    """Clock and processor time of this process."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def rate(self, votes: float) -> _Rate:
        """The rates of so many votes since the beginning."""
        wall, cpu = self._began
        return _Rate(votes / (time.perf_counter() - wall), votes / (time.process_time() - cpu))


class _Bare:
    """Forward passes of the service's networks, nothing else, in the service's compute shape and as many at a time."""

    def __init__(self, desk: Desk):
        smoothed, casters = desk.served.smoothed, desk.voting.casters
        self._networks = [smoothed.network] if casters is None else casters.networks
        self._threads, self._rows = desk.voting.threads, smoothed.rows or 1
        shape = smoothed.smoothing.view_shape(torch.Size(desk.served.shape))
        self._views = smoothed.network.laid_out(torch.rand(self._rows, *shape, device=smoothed.device))

    def rate(self, seconds: float) -> _Rate:
        """Views per second."""
        with ThreadPoolExecutor(len(self._networks)) as pool:
            watch = _Stopwatch()
            cast = sum(pool.map(lambda network: self._passes(network, seconds), self._networks))
            return watch.rate(cast)

    def _passes(self, network: Network, seconds: float) -> int:
        torch.set_num_threads(self._threads)
        cast, began = 0, time.perf_counter()
        with torch.inference_mode(), in_precision(network.precision, network.device):
            while time.perf_counter() - began < seconds:
                for _ in range(4):
                    network.model(self._views)
                cast += 4 * self._rows
                if network.device.type == "cuda":
                    torch.cuda.synchronize()
        return cast


def _load(
    desk: Desk, url: str, clients: int, votes: int, seconds: float, spread: float, inputs: Path
) -> tuple[_Rate, list[list[Any]]]:
    """The rate of many clients once all have come, and what they noted."""
    found: list[_Rate] = []

    def watching() -> None:
        while desk.in_progress < 0.9 * clients and time.monotonic() - began < 10 * spread + 60:
            time.sleep(0.01)
        time.sleep(0.1 * spread)
        watch, before = _Stopwatch(), desk.metrics.counted
        time.sleep(seconds)
        found.append(watch.rate(desk.metrics.counted - before))

    began = time.monotonic()
    thread = threading.Thread(target=watching)
    thread.start()
    asked = _asked(url, clients, votes, spread + seconds + 2.0, spread, inputs)
    thread.join()
    return found[0], asked


def _clients_cpu(asked: list[list[Any]], votes: int) -> float:
    """Microseconds of processor time of the clients' process for a vote, from its first finished request to its last."""
    used = [one[3] for one in asked]
    return 1e6 * (used[-1] - used[0]) / (votes * (len(used) - 1)) if len(used) > 1 else float("nan")


def _asked(url: str, clients: int, votes: int, seconds: float, spread: float, inputs: Path) -> list[list[Any]]:
    """What the process of clients printed."""
    command = [sys.executable, "-m", "vauban.bench.serve_load", url, clients, votes, seconds, spread, inputs]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _waits(asked: list[list[Any]]) -> list[float]:
    """Seconds to the first radius, of requests that got one; to their end, of the others."""
    return [last if first is None else first for _, first, last, _ in asked]


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
