"""Votes per second of bare forward passes, of the usual published loop, and of Vauban, in turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from vauban.bench.turns import in_turns
from vauban.inputs import prepare
from vauban.layout import to_fast_layout
from vauban.models import load
from vauban.runs.folder import device_name
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing import build
from vauban.smoothing.random import Stream
from vauban.voting.compiled import compiled
from vauban.voting.precision import dtype_of, in_precision


def measure(
    spec: str,
    smoothing: str,
    rows: int | None,
    seconds: float,
    in_flight: int | None,
    device: str,
    tick: Callable[[int], None],
    precision: str = "fp32",
    compile: bool | str = False,
) -> dict[str, Any]:
    """Rates of the three ways for a network with random weights, and the medians of their ratios over rounds.

    Bare passes and Vauban run the network in the layout Vauban chooses, the loop in the plain one, as published; `precision`
    and `compile` are for these two as well. The ways take turns, a slice of time each, so that whatever else the machine does
    falls on all of them.
    """
    loaded, plain = (load(spec, device=device, allow_random=True) for _ in range(2))
    channels_last = to_fast_layout(loaded.module, 3, device, precision)
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
        precision=precision,
        compile=compile,
    )
    voter = smoothed.voter(prepare(x[None]))
    sigma = getattr(smoothed.smoothing, "sigma", 0.5)
    stream = Stream(Seed.of(0), "count", 0)
    batch = torch.rand(voter.rows, *x.shape, device=voter.device).to(dtype_of(precision))
    if channels_last:
        batch = batch.contiguous(memory_format=torch.channels_last)
    picture = (x.float() / 255).to(voter.device)

    network = compiled(smoothed.model, how=voter.compiled) if voter.compiled else smoothed.model

    def bare(shapes: int) -> None:
        with torch.inference_mode(), in_precision(precision, voter.device):
            for _ in range(shapes):
                network(batch)

    def loop(shapes: int) -> None:
        """Repeat, add noise, classify, bring every vote to the host, count in Python."""
        counts = [0] * classes
        with torch.inference_mode(), in_precision("fp32", voter.device):
            for _ in range(shapes):
                copies = picture.repeat((voter.rows, 1, 1, 1))
                votes = plain.module(copies + torch.randn_like(copies) * sigma).argmax(1)
                for vote in votes.cpu().numpy():
                    counts[vote] += 1

    def vauban(shapes: int) -> None:
        for _ in voter.cast(x, stream, [shapes * voter.rows], 255):
            pass

    ways = {"bare": bare, "loop": loop, "vauban": vauban}
    about: dict[str, Any] = {"model": loaded.spec, "rows": voter.rows, "device": device_name(voter.device)}
    about |= {"precision": precision, "compiled": voter.compiled}
    return {**about, "threads": torch.get_num_threads(), **in_turns(ways, voter.rows, seconds, voter.device, tick)}
