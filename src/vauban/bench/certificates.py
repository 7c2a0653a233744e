"""Benchmark of radii from counts: all inputs at once, compared with a loop over inputs, for every law at ImageNet size."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.bounds.simultaneous import probability_bounds
from vauban.certificates import derive
from vauban.laws import sampled_law
from vauban.laws.law import Law

SHAPE = (3, 224, 224)
SMOOTHINGS = (
    "gaussian:sigma=0.5",
    "laplace:sigma=0.5",
    "uniform:sigma=0.5",
    "splitting:sigma=0.5,sampled=true",
    "fractional:p=1/2,scale=18,sampled=true",
    "ablation:retained=1000",
    "discrete:keep=0.1,values=256",
    "flow:sigma=0.01",
    "band:size=25,sampled=true",
    "block:size=75,sampled=true",
)


def measure(spec: str, inputs: int = 10_000, classes: int = 10, k: int = 3, n: int = 100_000) -> dict[str, Any]:
    """Seconds for the tables of a law, for `inputs` radii from counts, and for the same radii by a loop (timed on 20)."""
    rng = np.random.default_rng(0)
    counts = np.stack([rng.multinomial(n, p) for p in rng.dirichlet(np.full(classes, 0.1), inputs)])
    labels = counts.argmax(axis=1)
    noise = sampled_law(spec).for_shape(SHAPE)
    began = time.perf_counter()
    derive(counts[:2], labels[:2], noise, k=k)
    tables = time.perf_counter() - began
    began = time.perf_counter()
    certs = derive(counts, labels, noise, k=k)
    at_once = time.perf_counter() - began
    few = min(inputs, 20)
    began = time.perf_counter()
    by_loop = np.array([_one(noise, counts[i], labels[i], k) for i in range(few)])
    loop = (time.perf_counter() - began) * inputs / few
    if not np.allclose(by_loop, certs.radius[:few], rtol=1e-6, atol=1e-6, equal_nan=True):
        raise AssertionError(f"{spec}: the loop and the vectorised form disagree")
    return {"smoothing": spec, "inputs": inputs, "tables": tables, "at_once": at_once, "loop": loop}


def _one(noise: Law, counts: NDArray[np.int64], label: int, k: int) -> float:
    """The radius of one input, by bisection on scalars for each t in turn."""
    bounds = probability_bounds(counts[None], np.array([label]), k=k, alpha=1e-3, method="simuem")
    sums = bounds.sums()[0]
    best = float("nan")
    for t, total in enumerate(sums, start=1):

        def stays(r: float, t: int = t, total: float = total) -> bool:
            return bool(noise.least(bounds.label, r)[0] > noise.most(np.array([total]), r)[0] / t)

        if not stays(0.0):
            continue
        low, high = 0.0, float(min(noise.scale, noise.max_distance))
        while high < noise.max_distance and stays(high):
            low, high = high, min(2 * high, noise.max_distance)
        steps = 60 if not noise.threat.integer else 20
        for _ in range(steps):
            middle = (low + high) / 2 if not noise.threat.integer else float(np.floor((low + high) / 2))
            low, high = (middle, high) if stays(middle) else (low, middle)
        best = np.fmax(best, low)
    return best
