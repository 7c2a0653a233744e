"""Functions that cast votes, clocked in turns, so that whatever else the machine does falls on all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

import torch

ROUNDS = 12


def in_turns(
    timed: Mapping[str, Callable[[int], None]],
    rows: int,
    seconds: float,
    device: torch.device,
    on_progress: Callable[[int], None],
) -> dict[str, float]:
    """Votes per second of each way, and medians over rounds of the ratio of "vauban" to every other.

    A way casts as many shapes of `rows` votes as it is told to; each gets `seconds` in all.
    """
    slices = {name: _slice(way, seconds / ROUNDS, device) for name, way in timed.items()}
    rates: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(ROUNDS):
        for name, way in timed.items():
            rates[name].append(slices[name] * rows / _clock(way, slices[name], device))
        on_progress(int(len(timed) * seconds / ROUNDS))
    ratios = {
        f"vauban_to_{other}": median(v / o for v, o in zip(rates["vauban"], rates[other], strict=True))
        for other in timed
        if other != "vauban"
    }
    return {name: median(rate) for name, rate in rates.items()} | ratios


def _clock(way: Callable[[int], None], shapes: int, device: torch.device) -> float:
    began = time.perf_counter()
    way(shapes)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def _slice(way: Callable[[int], None], seconds: float, device: torch.device) -> int:
    """How many shapes take about so long, found after a warm-up."""
    _clock(way, 2, device)
    return max(2, round(3 * seconds / _clock(way, 3, device)))
