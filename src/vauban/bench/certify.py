"""Votes per second of bare forward passes, of the usual published loop, and of Vauban, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from vauban.layout import to_fast_layout
from vauban.models import load
from vauban.runs.certify import device_name
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing import build
from vauban.smoothing.random import Stream

_ROUNDS = 12


def measure(
    spec: str,
    smoothing: str,
    rows: int | None,
    seconds: float,
    in_flight: int | None,
    device: str,
    tick: Callable[[int], None],
) -> dict[str, Any]:
    """Rates of the three ways for a network with random weights, and the medians of their ratios over rounds.

    Bare passes and Vauban run the network in the layout Vauban chooses, the loop in the plain one, as published. The ways
    take turns, a slice of time each, so that whatever else the machine does falls on all of them.
    """
    loaded, plain = (load(spec, device=device, allow_random=True) for _ in range(2))
    channels_last = to_fast_layout(loaded.module, 3, device)
    size = 28 if loaded.channels == 1 else 32
    classes = loaded.num_classes or 10
    x = torch.randint(0, 256, (loaded.channels or 3, size, size), dtype=torch.uint8)
    smoothed = SmoothedClassifier(
        loaded.module,
        build(smoothing),
        num_classes=classes,
        device=device,
        rows=rows,
        in_flight=in_flight,
        channels_last=channels_last,
    )
    voter = smoothed.voter(x.shape)
    sigma = getattr(smoothed.smoothing, "sigma", 0.5)
    stream = Stream(Seed.of(0), "count", 0)
    batch = torch.rand(voter.rows, *x.shape, device=voter.device)
    if channels_last:
        batch = batch.contiguous(memory_format=torch.channels_last)
    picture = (x.float() / 255).to(voter.device)

    def bare(shapes: int) -> None:
        with torch.inference_mode():
            for _ in range(shapes):
                loaded.module(batch)

    def loop(shapes: int) -> None:
        """Repeat, add noise, classify, bring every vote to the host, count in Python."""
        counts = [0] * classes
        with torch.inference_mode():
            for _ in range(shapes):
                copies = picture.repeat((voter.rows, 1, 1, 1))
                votes = plain.module(copies + torch.randn_like(copies) * sigma).argmax(1)
                for vote in votes.cpu().numpy():
                    counts[vote] += 1

    def vauban(shapes: int) -> None:
        for _ in voter.cast(x, stream, [shapes * voter.rows], 255):
            pass

    ways = {"bare": bare, "loop": loop, "vauban": vauban}
    slices = {name: _slice(way, seconds / _ROUNDS, voter.device) for name, way in ways.items()}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):
        for name, way in ways.items():
            rates[name].append(slices[name] * voter.rows / _clock(way, slices[name], voter.device))
        tick(int(3 * seconds / _ROUNDS))
    ratio = {
        f"vauban_to_{other}": median(v / o for v, o in zip(rates["vauban"], rates[other], strict=True))
        for other in ("bare", "loop")
    }
    about = {"model": loaded.spec, "rows": voter.rows, "device": device_name(voter.device)}
    return {**about, "threads": torch.get_num_threads(), **{name: median(r) for name, r in rates.items()}, **ratio}


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
