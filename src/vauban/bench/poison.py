"""Benchmark of training base classifiers together, compared with one after another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from vauban.engine.network import device_name
from vauban.errors import BadInput
from vauban.poisoning.partitioning.partition import Partition, TrainingSet
from vauban.poisoning.progress import ProgressCallback
from vauban.poisoning.training.augmentation import augmentation
from vauban.poisoning.training.stacked.stacked_trainer import StackedTrainer, schedule


def measure(
    x: np.ndarray[Any, Any],
    y: np.ndarray[Any, Any],
    partitions: int,
    *,
    in_loop: int = 5,
    trained: int | None = None,
    steps: int | None = None,
    device: str = "cpu",
    on_progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """Seconds per base classifier, trained together (`trained` of them, all if None) and one after another (`in_loop` of them).

    All methods take the same number of steps on batches of the same size of the same samples, with the same network, augmentation
    and optimiser: "together"; "loop", which augments every batch, as is usual; and "prepared", the loop on copies augmented
    beforehand, as "together" does. All are warmed up first, and their accuracy is compared on a part of `x`.
    """
    trainer = StackedTrainer.recipe(x.shape[1:], int(y.max()) + 1, device)
    if trainer.network != "tiny-cnn":
        raise BadInput(f"samples of shape {x.shape[1:]}: the loop trains the network for grey pictures [1, h, w]")
    trainer = replace(trainer, steps=steps or trainer.steps)
    parts = [(x[rows], y[rows]) for rows in Partition(partitions).members(x, y)]
    parts = [part for part in parts if len(part[1])][:trained]
    if not 1 <= in_loop <= len(parts):
        raise BadInput(f"in_loop={in_loop}: from 1 to {len(parts)} base classifiers can be trained one after another")
    trainer = replace(trainer, group=min(trainer.group, len(parts)))
    short, few = replace(trainer, steps=3), parts[: trainer.group]
    for _ in short.fit(few, range(len(few))):
        pass
    for augment_each_step in (True, False):
        train_in_loop(short, parts[:1], augment_each_step)

    started = _now(device)
    groups = [weights for _, weights in trainer.fit(parts, range(len(parts)), on_progress)]
    seconds = {"together": (_now(device) - started) / len(parts)}
    inputs, truth = x[:: max(1, len(x) // 500)], y[:: max(1, len(x) // 500)]
    votes = torch.cat([trainer.scores(weights, inputs) for weights in groups])[:in_loop].argmax(dim=2)
    accuracy = {"together": float((votes.cpu().numpy() == truth).mean())}
    pictures = trainer.transform().before(torch.from_numpy(inputs.copy()).to(device).float() / 255)
    for method, augment_each_step in (("loop", True), ("prepared", False)):
        started = _now(device)
        networks = train_in_loop(trainer, parts[:in_loop], augment_each_step, on_progress)
        seconds[method] = (_now(device) - started) / in_loop
        with torch.inference_mode():
            answers = torch.stack([net(trainer.transform().after(pictures)).argmax(dim=1) for net in networks])
        accuracy[method] = float((answers.cpu().numpy() == truth).mean())
    counts = {"partitions": partitions, "trained": len(parts), "in_loop": in_loop, "steps": trainer.steps}
    machine = {"device": device_name(torch.device(device)), "threads": torch.get_num_threads()}
    ratios = {f"{method}_to_together": seconds[method] / seconds["together"] for method in ("loop", "prepared")}
    return {**counts, **machine, "seconds_each": seconds, "accuracy": accuracy, **ratios}


def train_in_loop(
    trainer: StackedTrainer,
    parts: Sequence[TrainingSet],
    augment_each_step: bool = True,
    on_progress: ProgressCallback | None = None,
) -> list[nn.Module]:
    """Train the recipe's network on each partition in turn, in plain torch: a module, an optimiser and a loop.

    With `augment_each_step` every step augments its batch; otherwise copies are augmented beforehand.
    """
    networks: list[nn.Module] = []
    chosen, transform = augmentation(trainer.augment), trainer.transform()

    def augmented(pictures: torch.Tensor) -> torch.Tensor:
        numbers = torch.rand(len(pictures), chosen.numbers, device=pictures.device)
        return transform.after(chosen.apply(pictures, numbers))

    for number, (x, y) in enumerate(parts):
        torch.manual_seed(number)
        pictures = transform.before(torch.from_numpy(x).to(trainer.device).float() / 255)
        labels = torch.from_numpy(y).to(trainer.device)
        if not augment_each_step:
            pictures, labels = augmented(pictures.repeat(trainer.views, 1, 1, 1)), labels.repeat(trainer.views)
        shape = transform.after(pictures[:1]).shape[1:] if augment_each_step else pictures.shape[1:]
        net = module(shape, trainer.num_classes).to(trainer.device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=trainer.lr, weight_decay=trainer.weight_decay)
        for step in range(trainer.steps):
            for settings in optimizer.param_groups:
                settings["lr"] = trainer.lr * schedule(step / trainer.steps)
            rows = torch.randint(len(pictures), (trainer.batch,), device=trainer.device)
            scores = net(augmented(pictures[rows]) if augment_each_step else pictures[rows])
            loss = functional.cross_entropy(scores, labels[rows], label_smoothing=trainer.label_smoothing)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        networks.append(net)
        if on_progress:
            on_progress(1)
    return networks


def module(shape: Sequence[int], classes: int) -> nn.Sequential:
    """The stacked network `tiny-cnn` as one torch module."""
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
