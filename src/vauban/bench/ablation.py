"""Benchmark of pixel ablation at ImageNet size: all views at once, compared with drawing one kept pixel at a time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from vauban.seed import Seed
from vauban.smoothing.ablation import Ablation, first_different
from vauban.smoothing.random import Stream


def measure(views: int = 1_000, pixels: int = 50_176, retained: int = 1_000) -> dict[str, Any]:
    """Seconds to choose the kept pixels of `views` views, words included, and by a loop (timed on a tenth of them)."""
    shape = torch.Size([1, pixels])
    per_view = Ablation(retained, unit="feature").words(shape)
    stream = Stream(Seed.of(0), "probe", 0)
    at_once, mask = float("inf"), torch.empty(0)
    for _ in range(3):
        began = time.perf_counter()
        mask = first_different(stream.words(0, views, per_view, torch.device("cpu")), pixels, retained)
        at_once = min(at_once, time.perf_counter() - began)
    if not bool((mask.sum(dim=1) == retained).all()):
        raise AssertionError(f"a view does not keep exactly {retained} pixels")
    rng, few = np.random.default_rng(0), max(1, views // 10)
    began = time.perf_counter()
    kept = np.zeros((few, pixels), dtype=bool)
    for row in kept:
        left = retained
        while left:
            pixel = rng.integers(pixels)
            left -= not row[pixel]
            row[pixel] = True
    loop = (time.perf_counter() - began) * views / few
    return {"views": views, "pixels": pixels, "retained": retained, "at_once": at_once, "loop": loop}
