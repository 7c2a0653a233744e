"""Benchmark of sampled votes: bare forward passes, the loop of published scripts, and Vauban, measured in turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from vauban.bench.turns import in_turns
from vauban.engine.compiled import compiled
from vauban.engine.network import Network, device_name, in_precision
from vauban.inputs import prepare
from vauban.methods import CertifySettings, method_for
from vauban.models import load
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing import build
from vauban.smoothing.random import Stream


def measure(
    spec: str,
    smoothing: str,
    rows: int | None,
    seconds: float,
    in_flight: int | None,
    device: str,
    on_progress: Callable[[int], None],
    precision: str = "fp32",
    compile: bool | str = False,
    backend: str | None = None,
) -> dict[str, Any]:
    """Votes per second of the three for a network with random weights, and the medians of their ratios over rounds.

    Bare passes and Vauban run the network in the layout Vauban chooses, with `precision` and `compile`; with a `backend` bare
    passes are torch's in the layout that is faster for it. The loop runs it in
    fp32 and the plain layout, as published. They take turns, a slice of time each, so that other load on the machine affects
    all of them.
    """
    loaded, plain = (load(spec, device=device, allow_random=True) for _ in range(2))
    size = 28 if loaded.channels == 1 else 32
    classes = loaded.num_classes or 10
    x = torch.randint(0, 256, (loaded.channels or 3, size, size), dtype=torch.uint8)
    smoothed = SmoothedClassifier(
        loaded,
        build(smoothing),
        num_classes=classes,
        device=device,
        rows=rows,
        in_flight=in_flight,
        precision=precision,
        compile=compile,
        backend=backend,
    )
    inputs, law = prepare(x[None]), smoothed.smoothing.law
    with smoothed.ready(inputs):
        method = method_for(CertifySettings.of(law, classes), law, classes, x.shape, smoothed.deviation(inputs))
        sampler = smoothed.sampler(inputs, method)
        sigma = getattr(smoothed.smoothing, "sigma", 0.5)
        stream, network = Stream(Seed.of(0), "count", 0), smoothed.network
        eager = network if network.runner is None else Network(loaded.module, sampler.device, precision)
        if eager is not network:
            eager.prepare(x.shape)
        batch = eager.laid_out(torch.rand(sampler.rows, *x.shape, device=sampler.device))
        picture = (x.float() / 255).to(sampler.device)
        model = compiled(eager.model, how=sampler.compiled) if sampler.compiled else eager.model

        def bare(shapes: int) -> None:
            with torch.inference_mode(), in_precision(precision, sampler.device):
                for _ in range(shapes):
                    model(batch)

        def loop(shapes: int) -> None:
            """Repeat, add noise, classify, copy every vote to the host, count in Python."""
            counts = [0] * classes
            with torch.inference_mode(), in_precision("fp32", sampler.device):
                for _ in range(shapes):
                    copies = picture.repeat((sampler.rows, 1, 1, 1))
                    votes = plain.module(copies + torch.randn_like(copies) * sigma).argmax(1)
                    for vote in votes.cpu().numpy():
                        counts[vote] += 1

        def vauban(shapes: int) -> None:
            for _ in sampler.cast(x, stream, [shapes * sampler.rows]):
                pass

        timed = {"bare": bare, "loop": loop, "vauban": vauban}
        about: dict[str, Any] = {"model": loaded.spec, "rows": sampler.rows, "device": device_name(sampler.device)}
        about |= {"precision": precision, "compiled": sampler.compiled, "threads": torch.get_num_threads()}
        about |= {"backend": "torch" if network.runner is None else network.runner.backend.name}
        return {**about, **in_turns(timed, sampler.rows, seconds, sampler.device, on_progress)}
