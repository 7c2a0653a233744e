"""Benchmark of exact votes: bare forward passes, one position at a time as in published scripts, and Vauban, in turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from vauban.bench.turns import in_turns
from vauban.engine.network import device_name
from vauban.errors import BadInput
from vauban.methods import CertifySettings, method_for
from vauban.models import fitting, load
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing import build

SMOOTHINGS = ("band:size=4", "block:size=10", "splitting:sigma=1", "fractional:p=1/2,scale=6", "sparse:scale=20")
_INPUTS = 200


def measure(
    spec: str, smoothing: str, rows: int | None, seconds: float, device: str, on_progress: Callable[[int], None]
) -> dict[str, Any]:
    """Votes per second of the three for a network with random weights on small pictures, and the medians of their ratios.

    The loop takes one position (one view number) at a time for a batch of pictures, in the plain layout, and copies the votes
    to the host, as published scripts do.
    """
    made = build(smoothing)
    if not made.law.exact:
        raise BadInput(f"{smoothing} is sampled: use vauban bench certify")
    grey = spec.startswith("cnn")
    shape = torch.Size((1, 28, 28) if grey else (3, 32, 32))
    channels = made.view_shape(shape)[0]
    fitted = fitting(spec, channels=channels, classes=10, size=shape[-1])
    loaded, plain = (load(fitted, device=device, allow_random=True) for _ in range(2))
    smoothed = SmoothedClassifier(loaded, made, num_classes=10, device=device, rows=rows)
    inputs = smoothed.prepare(torch.randint(0, 256, (_INPUTS, *shape), dtype=torch.uint8))
    with smoothed.ready(inputs):
        method = method_for(CertifySettings.of(made.law, 10), made.law, 10, shape)
        enumerator = smoothed.sampler(inputs, method)
        enumerator.probe(inputs.values)
        some, views, network = enumerator.rows, enumerator.views, smoothed.network
        batch = network.laid_out(torch.rand(some, *made.view_shape(shape), device=device))
        pictures = inputs.values[torch.arange(some) % _INPUTS].to(device)

        def bare(shapes: int) -> None:
            with torch.inference_mode():
                for _ in range(shapes):
                    network.model(batch)

        def loop(shapes: int) -> None:
            counts = torch.zeros(some, 10, dtype=torch.int64)
            with torch.inference_mode():
                for j in range(shapes):
                    words = torch.full((some, 1), j % views, device=device)
                    votes = plain.module(made.views(pictures, words, 255)).argmax(1).cpu()
                    counts[torch.arange(some), votes] += 1

        def vauban(shapes: int) -> None:
            while shapes > 0:
                now = max(1, min(shapes, _INPUTS * views // some))
                for _ in enumerator.cast(inputs.values, 0, min(now * some, _INPUTS * views)):
                    pass
                shapes -= now

        timed = {"bare": bare, "loop": loop, "vauban": vauban}
        about = {"model": fitted, "smoothing": str(made.spec), "views": views, "rows": some}
        about |= {"device": device_name(enumerator.device), "threads": torch.get_num_threads()}
        return {**about, **in_turns(timed, some, seconds, enumerator.device, on_progress)}
