"""What unlabelled pictures give to heads of few labels: 40 heads on gradient features of MNIST training digits, seconds on a CPU.

    python benchmarks/poisoning/heads.py

Digits 0..7,999 of the training set are not labelled, heads get theirs from 8,000..10,999, and 11,000..11,999 are answered.
"""

from __future__ import annotations

import torch

from vauban.data import load
from vauban.poisoning.training.input_transforms import input_transform
from vauban.poisoning.training.stacked.self_training import SelfTraining

HEADS, NUMBERS = 40, 160


def main() -> None:
    digits = load("mnist:split=train").select(limit=12_000)
    front, features = input_transform("gradients"), []
    for start in range(0, len(digits), 500):
        pictures = torch.from_numpy(digits.images[start : start + 500]).float() / 255
        features.append(front.after(front.before(pictures)).flatten(1))
    x, y = torch.cat(features), torch.from_numpy(digits.labels)
    torch.manual_seed(0)
    middle = x[:8000].mean(0)
    x = torch.nn.functional.normalize(
        (x - middle) @ torch.pca_lowrank(x[:8000] - middle, NUMBERS, center=False)[2], dim=1
    )
    for labels in (20, 50):
        rows = 8000 + torch.randperm(3000, generator=torch.Generator().manual_seed(0))[: HEADS * labels]
        parts = [(x[some], y[some]) for some in rows.view(HEADS, labels)]
        for how in (SelfTraining(0.1, 0, 0.03, 2.0), SelfTraining(0.1, 10, 0.03, 2.0)):
            weight, bias = how.fit(parts, 10, x[:8000])
            right = ((x[11_000:] @ weight + bias[:, None]).argmax(2) == y[11_000:]).float().mean()
            print(f"{labels} labels a head, {how.rounds} rounds: {right:.1%} right")


if __name__ == "__main__":
    main()
