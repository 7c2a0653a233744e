"""Benchmark of the service under load: votes per second of many clients beside bare forward passes, and waiting times."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
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

    A round is `seconds` of each. Bare passes are cast by the thread of the service that votes, while nobody asks. Waiting times
    are seconds to a first radius, as a client sees them; of many clients, those of requests that begin after the first
    second of a round, in which the clients come one after the other. `inputs`: a file of numpy.save, from
    which the clients take theirs. `votes`: of one request.
    """
    with running(desk) as url:
        bare = _Bare(desk)
        bare.rate(0.5)
        found: dict[str, list[Any]] = {name: [] for name in ("bare", "served", "ratio", "single", "many", "at_once")}
        for _ in range(rounds):
            before = bare.rate(seconds / 2)
            rate, waits = _load(desk, url, clients, votes, seconds, inputs)
            after = bare.rate(seconds / 2)
            found["bare"].append((before + after) / 2)
            found["served"].append(rate)
            found["ratio"].append(2 * rate / (before + after))
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
            "single_first_radius": single,
            "p95_first_radius": many,
            "p95_to_single": many / single,
            "p95_at_once": at_once,
            "at_once_to_single": at_once / single,
        }


class _Bare:
    """Forward passes of the service's network, nothing else, in the service's compute shape."""

    def __init__(self, desk: Desk):
        self._desk = desk
        smoothed = desk.served.smoothed
        self._rows = smoothed.rows or 1
        shape = smoothed.smoothing.view_shape(torch.Size(desk.served.shape))
        self._views = smoothed.network.laid_out(torch.rand(self._rows, *shape, device=smoothed.device))

    def rate(self, seconds: float) -> float:
        """Views per second."""

        def passes() -> float:
            network, cast, began = self._desk.served.smoothed.network, 0, time.perf_counter()
            with torch.inference_mode(), in_precision(network.precision, network.device):
                while time.perf_counter() - began < seconds:
                    for _ in range(4):
                        network.model(self._views)
                    cast += 4 * self._rows
                    if network.device.type == "cuda":
                        torch.cuda.synchronize()
            return cast / (time.perf_counter() - began)

        return self._desk.voting.call(passes).result()


def _load(desk: Desk, url: str, clients: int, votes: int, seconds: float, inputs: Path) -> tuple[float, list[float]]:
    """Votes per second of many clients, without the first and last of them, and their waiting times."""
    window = [0.0, 0.0]

    def watch() -> None:
        while desk.in_progress < min(clients, desk.limits.queue) * 0.9 and time.monotonic() - began < 60:
            time.sleep(0.01)
        started, before = time.monotonic(), desk.metrics.counted
        time.sleep(seconds)
        window[:] = [desk.metrics.counted - before, time.monotonic() - started]

    began = time.monotonic()
    watching = threading.Thread(target=watch)
    watching.start()
    asked = _asked(url, clients, votes, seconds + 2.0, 1.0, inputs)
    watching.join()
    return window[0] / window[1], _waits([one for one in asked if one[0] > 1.0])


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
