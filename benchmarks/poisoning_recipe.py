"""Chooses the recipe of base classifiers on MNIST by a validation split of the training set; the test set is not read.

    python benchmarks/poisoning_recipe.py --device cuda --out recipe.json
    python benchmarks/poisoning_recipe.py --device cuda --defense ss-dpa:features=rotnet --parts 600 --inputs 6000 --out ss.json
    python benchmarks/poisoning_recipe.py --defense ss-dpa:features=spectral,by=stratified --parts 200 --inputs 6000 --out s.json
    python benchmarks/poisoning_recipe.py --defense ss-dpa:features=spectral,by=sort --parts 200 --inputs 6000 --as-it-is

Every 10th of the 60,000 training digits is held out. The other 54,000 are split into 1,080 and into 2,700 parts, of 50 and 20
digits each, as 1,200 and 3,000 parts of all digits have them. Each candidate is trained on the first `--parts` parts of each
split, and they vote on `--inputs` held-out digits. Its score is the mean accuracy of the base classifiers, averaged over the
two splits.

Candidates are fixed beforehand: the front ends; with the best one the augmentations; then, from the best of these, one setting
at a time; then all settings that were better by themselves, together. The best of all is the recipe. Results are kept in
`--out` after every candidate, and a second call goes on from there.

Base classifiers of SS-DPA are heads on features that are learned once, without labels, from the digits that are not held out, and
shared by all candidates. Their front end belongs to the features and is not chosen. With `--learning` two settings of the
features are chosen too, which are then learned anew for each. Spectral features have settings of their own, and no
augmentation; their candidates vary the settings that they had before any were chosen. With `--as-it-is` the recipe is measured,
and nothing is chosen. A candidate is trained from the text that `--model` of `vauban poison train` takes; the last line is that
command.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.data import load
from vauban.files import write_json
from vauban.poisoning.defense import parse_defense
from vauban.poisoning.ensemble import Ensemble
from vauban.poisoning.progress import no_progress
from vauban.poisoning.training.fitting import train_base_classifiers
from vauban.poisoning.training.stacked.build_trainer import build_trainer
from vauban.specs import Spec

HELD_OUT = 10
DIGITS = (50, 20)  # of a part: 1,080 and 2,700 parts of 54,000 digits
AUGMENTATIONS = ("warp", "shift", "warp-far")
SETTINGS: dict[str, tuple[Any, ...]] = {
    "lr": (1e-3, 1e-2),
    "label_smoothing": (0.0, 0.2),
    "views": (4, 32),
    "steps": (200, 800),
}
LEARNING: dict[str, tuple[Any, ...]] = {"learning_augment": ("warp",), "learning_epochs": (20,)}
SPECTRAL_BEFORE = {"rounds": 5, "shrink": 0.03, "sharpness": 2.0, "neighbours": 10, "directions": 80}
SPECTRAL: dict[str, tuple[Any, ...]] = {
    "rounds": (0, 1, 3, 10),
    "unseen": ("false",),
    "ridge": (0.03, 0.3),
    "shrink": (0.01, 0.1),
    "sharpness": (1.0, 4.0),
    "neighbours": (5, 20),
    "directions": (40, 160),
    "numbers": (30, 120),
}
LEARNED_BY = (*LEARNING, "neighbours", "directions", "numbers")  # settings of which features depend


def main() -> None:
    """Score candidates one after another and write them."""
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("--parts", type=int, default=25, help="parts of each split that are trained")
    read.add_argument("--inputs", type=int, default=1000, help="held-out digits that they vote on")
    read.add_argument("--out", type=Path, default=Path("poisoning_recipe.json"))
    read.add_argument("--defense", default="dpa", help="or ss-dpa:features=rotnet")
    read.add_argument("--fronts", default="gradients,upright,none", help="front ends of dpa, separated by commas")
    read.add_argument("--learning", action="store_true", help="choose settings of shared features too")
    read.add_argument("--as-it-is", action="store_true", help="measure the recipe as it is, and choose nothing")
    read.add_argument("--limit", type=int, help="use the first training digits only, to try the script out")
    read.add_argument("--device", default="cpu")
    read.add_argument("--threads", type=int, default=1)
    given = read.parse_args()
    torch.set_num_threads(given.threads)
    search = Search(given)
    if given.as_it_is:
        search.score({})
        return
    search.run(
        given.fronts.split(","),
        SPECTRAL if search.features == "spectral" else SETTINGS | (LEARNING if given.learning else {}),
    )


class Search:
    """Scores of candidates: settings in place of those of the recipe. Those in the file are not made again."""

    def __init__(self, given: argparse.Namespace):
        digits = load("mnist:split=train").select(limit=given.limit)
        assert digits.labels is not None
        held = np.arange(len(digits)) % HELD_OUT == 0
        self.x, self.y = digits.images[~held], digits.labels[~held]
        self.asked, self.truth = digits.images[held][: given.inputs], digits.labels[held][: given.inputs]
        self.parts, self.out, self.device = given.parts, given.out, given.device
        self.defense, self.text = parse_defense(given.defense), given.defense
        self.features = self.defense.shared_features(1)
        self.learned: defaultdict[str, dict[str, torch.Tensor]] = defaultdict(dict)
        self.about: dict[str, Any] = {
            "defense": given.defense,
            "held out": f"every {HELD_OUT}th training digit",
            "digits": len(digits),
            "parts": given.parts,
            "inputs": len(self.asked),
        }
        kept = json.loads(given.out.read_text()) if given.out.exists() else {**self.about, "candidates": []}
        if any(kept.get(key) != value for key, value in self.about.items()):
            raise SystemExit(f"{given.out} holds candidates that were measured otherwise: give another --out")
        self.found: list[dict[str, Any]] = kept["candidates"]

    def run(self, fronts: list[str], settings: dict[str, tuple[Any, ...]]) -> None:
        """Every candidate; the last lines name the best and the command that trains it."""
        front = {} if self.features else self.best([{"front": name, "augment": AUGMENTATIONS[0]} for name in fronts])
        if self.features == "spectral":
            first: dict[str, Any] = dict(SPECTRAL_BEFORE)
        else:
            first = self.best([{**front, "augment": name} for name in AUGMENTATIONS])
        single = {key: [{**first, key: value} for value in values] for key, values in settings.items()}
        better = {}
        for key, some in single.items():
            best = self.best(some)
            if self.score(best) > self.score(first):
                better[key] = best[key]
        chosen = self.best([first, *(one for some in single.values() for one in some), {**first, **better}])
        command = (
            f"vauban poison train --data mnist --partitions 1200 --defense {self.text} --model {self.model(chosen)}"
        )
        write_json(self.out, {**self.about, "candidates": self.found, "chosen": chosen, "command": command})
        print("chosen:", chosen, f"{100 * self.score(chosen):.2f} %")
        print(command)

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

    def model(self, settings: dict[str, Any]) -> str:
        """The settings as the text that --model takes."""
        return str(
            Spec("linear" if self.features else "tiny-cnn", {key: str(value) for key, value in settings.items()})
        )

    def measured(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Train and vote; accuracy of the base classifiers, of their vote, and its median margin, for each split."""
        more: dict[str, Any] = {}
        if self.device == "cpu":
            more["group"] = min(25, self.parts)  # slots of a group are computed in any case
        if (
            self.features
        ):  # the first trainer with these settings of the features fills the dictionary, the others read it
            more["shared"] = self.learned[str([settings.get(key) for key in LEARNED_BY])]
        trainer = build_trainer(
            (1, 28, 28), 10, model=self.model(settings), features=self.features, device=self.device, **more
        )
        rows, began = {}, time.perf_counter()
        for digits in DIGITS:
            split = self.defense.partition(len(self.x) // digits)
            manifest, groups = train_base_classifiers(
                self.x, self.y, split, trainer, against=self.defense.against, preprocessing="none", folder=None, source={},
                on="here", progress=no_progress, only=range(self.parts),
            )  # fmt: skip
            votes = Ensemble(manifest, trainer, groups).votes(self.asked)[:, : self.parts]
            rows[str(split.partitions)] = _measures(votes, self.truth)
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
