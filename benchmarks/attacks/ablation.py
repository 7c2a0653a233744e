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


def classifier_of(job: Job) -> Any:
    """The smoothed classifier of Table 2.2."""
    base = job.trained("mnist-ablation-long", "cnn", SMOOTHING, job.mnist, epochs=60.0, batch=512, lr=0.002)
    return smoothed(base, SMOOTHING, job.device)


def run(job: Job, part: str, together: int = 275) -> None:
    """`search`: few common views, every restart's picture confirmed by 10,000 votes; `literal`: 10,000 votes at every step."""
    classifier = classifier_of(job)
    (literal if part == "literal" else searched)(job, classifier, together)


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
        budget=job.budget,
        seed=1,
        out=job.out / "attack",
        progress=False,
    )
    right = found.right & found.attacked
    job.write(
        "search",
        {
            "smoothing": SMOOTHING,
            "median_certified": certs.median_radius,
            "median_attack": float(np.median(found.distance[right])) if right.any() else None,
            "right": int(right.sum()),
        }
        | told(found, [0.0, 8.0, 16.0, 31.0]),
    )


def literal(job: Job, classifier: Any, together: int) -> None:
    """As the thesis words it: 10,000 votes decide at every step, abstentions count, nothing is confirmed afterwards."""
    data = job.mnist()
    x = torch.from_numpy(np.array(data.images)).float().to(job.device) / 255
    labels = torch.from_numpy(np.array(data.labels)).to(job.device)
    target = SmoothedTarget(classifier, x.shape[1:], votes=VOTES, confirm_votes=VOTES, abstain=ALPHA, seed=1)
    best = np.full(len(x), np.inf)
    for restart in range(RESTARTS):
        target.allow(seconds=job.left)
        found = build("pointwise:restarts=1").run(target, x, labels, L0, seed=restart)
        if target.exhausted:
            break
        best = np.minimum(best, found.distance)
        job.write(
            "literal",
            {
                "restarts": restart + 1,
                "index": np.asarray(data.index).tolist() if hasattr(data, "index") else list(range(len(x))),
                "distance": [None if np.isinf(d) else float(d) for d in best],
                "median_attack": float(np.median(best[best > 0])) if (best > 0).any() else None,
                "votes": int(target.views),
            },
        )
        job.say(f"restart {restart + 1}: median {np.median(best[best > 0]):.0f}")
