"""Small runs of digits for the tests of the page: by a linear model, which takes a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from vauban.data import load
from vauban.engine.network import BaseClassifier
from vauban.smoothed import SmoothedClassifier

DIGITS = load("mnist:split=test")
EVERY = 400


def templates(views: torch.Tensor) -> torch.Tensor:
    """Scores of ten classes: the likeness of a view to the mean digit of each class."""
    shown = views[:, :1].flatten(1)
    return (shown[:, None] * _WEIGHTS.T).sum(dim=2) - (_WEIGHTS**2).sum(dim=0) / 2


def _weights() -> torch.Tensor:
    images, labels = DIGITS.images[:2000].reshape(2000, -1) / 255, DIGITS.labels
    assert labels is not None
    means = np.stack([images[labels[:2000] == c].mean(axis=0) for c in range(10)], axis=1)
    return torch.from_numpy(means).float()


_WEIGHTS = _weights()


def classifier(smoothing: str) -> SmoothedClassifier:
    return SmoothedClassifier(BaseClassifier(templates, "templates", "t" * 64), smoothing, num_classes=10, device="cpu")


def certified(folder: Path, smoothing: str, every: int = EVERY, **settings: Any) -> Path:
    """A run of every n-th test digit."""
    exact = classifier(smoothing).smoothing.law.exact
    sampled = {} if exact else {"n": 200, "alpha": 0.01, "seed": 1}
    classifier(smoothing).certify(DIGITS.select(every), out=folder, progress=False, **{**sampled, **settings})
    return folder


def attacked(folder: Path, run: Path) -> Path:
    from vauban.attacks.running import attack

    base = BaseClassifier(templates, "templates", "t" * 64)
    settings: dict[str, Any] = {
        "views": 4,
        "votes": 100,
        "confirm_votes": 200,
        "limit": 2,
        "seed": 1,
        "progress": False,
    }
    attack(run, DIGITS, model=base, attacks="random:steps=15,starts=1", out=folder, **settings)
    return folder


def poisoned(folder: Path, spread: int = 1, aggregate: str = "plurality", inputs: int = 30, models: int = 40) -> Path:
    """A poisoning run of imported votes on test digits, most of them for the true class."""
    from vauban.poisoning.votes.importing import import_votes

    rng = np.random.default_rng(1)
    assert DIGITS.labels is not None
    labels = DIGITS.labels[:inputs]
    scores = rng.random((inputs, models, 10)) + 0.7 * rng.random((inputs, 1, 1)) * (
        np.arange(10) == labels[:, None, None]
    )
    file = folder.with_suffix(".npz")
    partition = f"hash:partitions={models // spread}" + (f",spread={spread}" if spread > 1 else "")
    more = {"spread": spread, "threat": "samples", "partition": partition}
    np.savez(file, scores=scores, labels=labels, index=np.arange(inputs), num_classes=10, **more)
    import_votes(file, folder, aggregate, data="mnist:split=test")
    return folder
