"""Chooses the recipe of base classifiers on MNIST by a validation split of the training set; the test set is not read.

Every 10th of the 60,000 training digits is held out. The other 54,000 are split into 1,080 and into 2,700 parts, of 50 and 20
digits each, as 1,200 and 3,000 parts of all digits have them. Each candidate is trained on the first `--parts` parts of each
split, and they vote on `--inputs` held-out digits. Its score is the mean accuracy of the base classifiers, averaged over the
two splits.

Candidates are fixed beforehand: the front ends; with the best one the augmentations; then, from the best of these, one setting
at a time; then all settings that were better by themselves, together. The best of all is the recipe. Results are kept in
`--out` after every candidate, and a second call goes on from there.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.data import load
from vauban.files import write_json
from vauban.poisoning.ensemble import Ensemble
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.progress import no_progress
from vauban.poisoning.training.fitting import train_base_classifiers
from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer

HELD_OUT = 10
SPLITS = (1080, 2700)
AUGMENTATIONS = ("warp", "shift", "warp-far")
SETTINGS: dict[str, tuple[Any, ...]] = {
    "lr": (1e-3, 1e-2),
    "label_smoothing": (0.0, 0.2),
    "views": (4, 32),
    "steps": (200, 800),
}


def main() -> None:
    """Score candidates one after another and write them."""
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("--parts", type=int, default=25, help="parts of each split that are trained")
    read.add_argument("--inputs", type=int, default=1000, help="held-out digits that they vote on")
    read.add_argument("--out", type=Path, default=Path("poisoning_recipe.json"))
    read.add_argument("--fronts", default="gradients,upright,none", help="front ends, separated by commas")
    read.add_argument("--device", default="cpu")
    read.add_argument("--threads", type=int, default=1)
    given = read.parse_args()
    torch.set_num_threads(given.threads)
    Search(given.parts, given.inputs, given.out, given.device).run(given.fronts.split(","))


class Search:
    """Scores of candidates: settings in place of those of `StackedTrainer`. Those in the file are not made again."""

    def __init__(self, parts: int, inputs: int, out: Path, device: str):
        digits = load("mnist:split=train")
        assert digits.labels is not None
        held = np.arange(len(digits)) % HELD_OUT == 0
        self.x, self.y = digits.images[~held], digits.labels[~held]
        self.asked, self.truth = digits.images[held][:inputs], digits.labels[held][:inputs]
        self.parts, self.out, self.device = parts, out, device
        self.about = {"held out": f"every {HELD_OUT}th training digit", "parts": parts, "inputs": inputs}
        self.found: list[dict[str, Any]] = json.loads(out.read_text())["candidates"] if out.exists() else []

    def run(self, fronts: list[str]) -> None:
        """Every candidate; the last line names the best."""
        front = self.best([{"front": name, "augment": AUGMENTATIONS[0]} for name in fronts])
        first = self.best([{**front, "augment": name} for name in AUGMENTATIONS])
        single = {key: [{**first, key: value} for value in values] for key, values in SETTINGS.items()}
        better = {}
        for key, some in single.items():
            best = self.best(some)
            if self.score(best) > self.score(first):
                better[key] = best[key]
        chosen = self.best([first, *(one for some in single.values() for one in some), {**first, **better}])
        write_json(self.out, {**self.about, "candidates": self.found, "chosen": chosen})
        print("chosen:", chosen, f"{100 * self.score(chosen):.2f} %")

    def best(self, candidates: list[dict[str, Any]]) -> dict[str, Any]:
        """The candidate of the highest score."""
        return max(candidates, key=self.score)

    def score(self, settings: dict[str, Any]) -> float:
        """The mean accuracy of base classifiers over both splits."""
        known = next((one for one in self.found if one["settings"] == settings), None)
        if known is None:
            known = self.measured(settings)
            self.found.append(known)
            write_json(self.out, {**self.about, "candidates": self.found})
            print(json.dumps(known), flush=True)
        return float(known["score"])

    def measured(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Train and vote; accuracy of the base classifiers, of their vote, and its median margin, for each split."""
        group = (
            {} if self.device != "cpu" else {"group": min(25, self.parts)}
        )  # slots of a group are computed in any case
        trainer = StackedTrainer.recipe((1, 28, 28), 10, self.device, **group, **settings)
        rows, began = {}, time.perf_counter()
        for partitions in SPLITS:
            split = Partition(partitions)
            manifest, groups = train_base_classifiers(
                self.x, self.y, split, trainer, against=None, preprocessing="none", folder=None, source={}, on="here",
                progress=no_progress, only=range(self.parts),
            )  # fmt: skip
            votes = Ensemble(manifest, trainer, groups).votes(self.asked)[:, : self.parts]
            rows[str(partitions)] = _measures(votes, self.truth)
        score = sum(row["base"] for row in rows.values()) / len(rows)
        return {"settings": settings, "score": score, **rows, "seconds": round(time.perf_counter() - began, 1)}


def _measures(votes: NDArray[np.integer[Any]], truth: NDArray[np.int64]) -> dict[str, float]:
    """Shares: base classifiers that are right, inputs that the vote gets right, and the median lead of the true class."""
    counts = np.stack([(votes == label).sum(axis=1) for label in range(10)], axis=1)
    own = counts[np.arange(len(truth)), truth]
    others = counts.copy()
    others[np.arange(len(truth)), truth] = -1
    lead = (own - others.max(axis=1)) / votes.shape[1]
    base, clean = own.mean() / votes.shape[1], (counts.argmax(axis=1) == truth).mean()
    return {"base": round(float(base), 5), "clean": round(float(clean), 5), "lead": round(float(np.median(lead)), 4)}


if __name__ == "__main__":
    main()
