"""Training base classifiers one after another, the usual way, next to training them side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from vauban.errors import BadInput
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.training.augmentation import augmentation
from vauban.poisoning.training.stacked.group_data import Part
from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer, schedule
from vauban.runs.folder import device_name


def measure(
    x: np.ndarray[Any, Any],
    y: np.ndarray[Any, Any],
    partitions: int,
    *,
    alone: int = 5,
    trained: int | None = None,
    steps: int | None = None,
    device: str = "cpu",
    tick: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Seconds a base classifier takes side by side (over `trained` of them, all if None) and one after another (over `alone`).

    All ways take the same number of steps on batches of the same size of the same samples, with the same network, augmentation
    and optimiser: side by side; a loop that augments every batch, as is usual ("loop"); and that loop on views made
    beforehand, as side by side ("prepared"). All are warmed up first, and what they learned is compared on a part of `x`.
    """
    trainer = StackedTrainer.recipe(x.shape[1:], int(y.max()) + 1, device)
    if trainer.network != "cnn":
        raise BadInput(f"samples of shape {x.shape[1:]}: the loop trains the network for grey pictures [1, h, w]")
    trainer = replace(trainer, steps=steps or trainer.steps)
    parts = [(x[places], y[places]) for places in Partition(partitions).members(x, y)]
    parts = [part for part in parts if len(part[1])][:trained]
    if not 1 <= alone <= len(parts):
        raise BadInput(f"alone={alone}: from 1 to {len(parts)} base classifiers can be trained one after another")
    trainer = replace(trainer, group=min(trainer.group, len(parts)))
    short, few = replace(trainer, steps=3), parts[: trainer.group]
    for _ in short.fit(few, range(len(few))):
        pass
    for fresh in (True, False):
        one_by_one(short, parts[:1], fresh)

    began = _now(device)
    groups = [weights for _, weights in trainer.fit(parts, range(len(parts)), tick)]
    seconds = {"together": (_now(device) - began) / len(parts)}
    inputs, truth = x[:: max(1, len(x) // 500)], y[:: max(1, len(x) // 500)]
    votes = torch.cat([trainer.scores(weights, inputs) for weights in groups])[:alone].argmax(dim=2)
    accuracy = {"together": float((votes.cpu().numpy() == truth).mean())}
    pictures = trainer.ways().settle(torch.from_numpy(inputs.copy()).to(device).float() / 255)
    for way, fresh in (("loop", True), ("prepared", False)):
        began = _now(device)
        learned = one_by_one(trainer, parts[:alone], fresh, tick)
        seconds[way] = (_now(device) - began) / alone
        with torch.inference_mode():
            answers = torch.stack([net(trainer.ways().see(pictures)).argmax(dim=1) for net in learned])
        accuracy[way] = float((answers.cpu().numpy() == truth).mean())
    about = {"partitions": partitions, "trained": len(parts), "alone": alone, "steps": trainer.steps}
    where = {"device": device_name(torch.device(device)), "threads": torch.get_num_threads()}
    ratios = {f"{way}_to_together": seconds[way] / seconds["together"] for way in ("loop", "prepared")}
    return {**about, **where, "seconds_each": seconds, "accuracy": accuracy, **ratios}


def one_by_one(
    trainer: StackedTrainer, parts: Sequence[Part], fresh: bool = True, tick: Callable[[int], None] | None = None
) -> list[nn.Module]:
    """Train `cnn` on each partition in turn, as one would with torch alone: a module, an optimiser and a loop.

    With `fresh` every step augments its batch, as is usual; otherwise views are made beforehand, as side by side.
    """
    learned: list[nn.Module] = []
    make, ways = augmentation(trainer.augment), trainer.ways()

    def seen(pictures: torch.Tensor) -> torch.Tensor:
        return ways.see(make.make(pictures, torch.rand(len(pictures), make.numbers, device=pictures.device)))

    for number, (x, y) in enumerate(parts):
        torch.manual_seed(number)
        pictures = ways.settle(torch.from_numpy(x).to(trainer.device).float() / 255)
        labels = torch.from_numpy(y).to(trainer.device)
        if not fresh:
            pictures, labels = seen(pictures.repeat(trainer.views, 1, 1, 1)), labels.repeat(trainer.views)
        net = module(ways.see(pictures[:1]).shape[1:] if fresh else pictures.shape[1:], trainer.num_classes)
        net = net.to(trainer.device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=trainer.lr, weight_decay=trainer.weight_decay)
        for step in range(trainer.steps):
            for settings in optimizer.param_groups:
                settings["lr"] = trainer.lr * schedule(step / trainer.steps)
            rows = torch.randint(len(pictures), (trainer.batch,), device=trainer.device)
            scores = net(seen(pictures[rows]) if fresh else pictures[rows])
            loss = functional.cross_entropy(scores, labels[rows], label_smoothing=trainer.label_smoothing)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        learned.append(net)
        if tick:
            tick(1)
    return learned


def module(shape: Sequence[int], classes: int) -> nn.Sequential:
    """The network `cnn` of `vauban.poisoning.training.stacked.stacked_networks`, as one module."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * -(-height // 4) * -(-width // 4), 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


def _now(device: str) -> float:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
