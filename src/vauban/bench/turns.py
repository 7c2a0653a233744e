"""Measures functions in turns, so that other load on the machine affects all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

import torch

ROUNDS = 12
_WARM_UP = 64


def in_turns(
    timed: Mapping[str, Callable[[int], None]],
    rows: int,
    seconds: float,
    device: torch.device,
    on_progress: Callable[[int], None],
    of: str = "vauban",
) -> dict[str, float]:
    """Votes per second of each function, and medians over rounds of the ratio of `of` to every other.

    A function casts as many shapes of `rows` votes as its argument says; each gets `seconds` in total.
    """
    slices = {name: _slice(function, seconds / ROUNDS, device) for name, function in timed.items()}
    rates: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(ROUNDS):
        for name, function in timed.items():
            rates[name].append(slices[name] * rows / _clock(function, slices[name], device))
        on_progress(int(len(timed) * seconds / ROUNDS))
    ratios = {
        f"{of}_to_{other}": median(v / o for v, o in zip(rates[of], rates[other], strict=True))
        for other in timed
        if other != of
    }
    return {name: median(rate) for name, rate in rates.items()} | ratios


def _clock(function: Callable[[int], None], shapes: int, device: torch.device) -> float:
    began = time.perf_counter()
    function(shapes)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def _slice(function: Callable[[int], None], seconds: float, device: torch.device) -> int:
    """The number of shapes that takes about `seconds`, measured after a warm-up: on a GPU of many shapes where they are
    quick, since memory of the host is still allocated in the first ones, and a compiler may still be busy."""
    _clock(function, 2, device)
    if device.type == "cuda" and _clock(function, 2, device) < 0.2:
        _clock(function, _WARM_UP, device)
    return max(2, round(3 * seconds / _clock(function, 3, device)))
