"""Table 2.2: the Pointwise attack, ten restarts, on ablation of MNIST with 45 retained pixels; abstentions count."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pieces import Job, smoothed, told

from vauban.attacks.base import build
from vauban.attacks.running import attack
from vauban.attacks.targets import SmoothedTarget
from vauban.threats import L0

SMOOTHING = "ablation:retained=45"
ALPHA, VOTES, RESTARTS = 0.05, 10_000, 10
TOGETHER, LITERAL_TOGETHER = 25, 4


def classifier_of(job: Job) -> Any:
    """The smoothed classifier of Table 2.2."""
    base = job.trained("mnist-ablation-long", "cnn", SMOOTHING, job.mnist, epochs=60.0, batch=512, lr=0.002)
    return smoothed(base, SMOOTHING, job.device, job.precision)


def run(job: Job, part: str, together: int | None = None) -> None:
    """`search`: few common views, every restart's picture confirmed by 10,000 votes; `literal`: 10,000 votes at every step."""
    classifier = classifier_of(job)
    way, usual = (literal, LITERAL_TOGETHER) if part == "literal" else (searched, TOGETHER)
    way(job, classifier, together or usual)


def medians(distance: np.ndarray) -> dict[str, float | None]:
    """The median of all digits, where those that are wrong or abstained without any change have 0, and that of the others."""
    some = {"median_attack": distance, "median_changed": distance[distance > 0]}
    return {name: float(np.median(values)) if len(values) else None for name, values in some.items()}


def searched(job: Job, classifier: Any, together: int) -> None:
    """Ten attacks of one restart each, so that each restart's picture is confirmed by itself."""
    data = job.mnist()
    certs = classifier.certify(data, n=VOTES, alpha=ALPHA, seed=1, out=job.out / "run", progress=False)
    job.say(f"certified accuracy at 8 pixels {certs.accuracy(8.0):.3f}")
    found = attack(
        classifier,
        data,
        certificates=certs,
        attacks=["pointwise:restarts=1"] * RESTARTS,
        votes=500,
        confirm_votes=VOTES,
        abstain=ALPHA,
        together=together,
        **job.limits,
        seed=1,
        out=job.out / "attack",
    )
    right = found.right & found.attacked
    job.write(
        "search",
        {
            "smoothing": SMOOTHING,
            "median_certified": certs.median_radius,
            **medians(found.distance[right]),
            "right": int(right.sum()),
        }
        | told(found, [0.0, 8.0, 16.0, 31.0]),
    )


def literal(job: Job, classifier: Any, together: int) -> None:
    """As the thesis words it: 10,000 votes decide at every step, abstentions count, nothing is confirmed afterwards.

    A few digits at a time, restart by restart; each is kept as it ends, and the same command goes on with the rest.
    """
    data = job.mnist()
    x = (torch.from_numpy(np.array(data.images)).float() / 255).to(job.device)
    labels = torch.from_numpy(np.array(data.labels)).to(job.device)
    target = SmoothedTarget(classifier, x.shape[1:], votes=VOTES, confirm_votes=VOTES, abstain=ALPHA, seed=1)
    kept: dict[str, list[float | None]] = job.read("literal").get("found", {})
    few = max(1, min(together, len(x)))
    waiting = [(r, i) for r in range(RESTARTS) for i in range(0, len(x), few) if f"{r}:{i}:{few}" not in kept]
    longest = 0.0
    for restart, first in waiting:
        if 1.25 * longest > job.left:
            break
        began, rows = job.left, slice(first, first + few)
        target.allow(seconds=job.left)
        found = build("pointwise:restarts=1").run(target, x[rows], labels[rows], L0, seed=restart)
        if target.exhausted:
            job.say(f"no time for digits {first} to {first + few - 1}, restart {restart + 1}: give more --seconds")
            break
        longest = max(longest, began - job.left)
        kept[f"{restart}:{first}:{few}"] = [None if np.isinf(d) else float(d) for d in found.distance]
        _write_literal(job, data, kept)


def _write_literal(job: Job, data: Any, kept: dict[str, list[float | None]]) -> None:
    """The nearest of all restarts so far, digit by digit."""
    best, restarts = np.full(len(data), np.inf), np.zeros(len(data), dtype=int)
    for place, distances in kept.items():
        first = int(place.split(":")[1])
        for i, distance in enumerate(distances, start=first):
            best[i] = min(best[i], np.inf if distance is None else distance)
            restarts[i] += 1
    tried = restarts > 0
    middle = medians(best[tried])
    job.write(
        "literal",
        {
            "restarts": restarts.tolist(),
            "index": np.asarray(data.index).tolist(),
            "distance": [None if np.isinf(d) else float(d) for d in best],
            **middle,
            "found": kept,
        },
    )
    job.say(f"{len(kept)} parts are done, median {middle['median_attack']}")
