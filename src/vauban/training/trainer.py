"""Trains a base classifier on views of its training pictures; training can be stopped and resumed at any step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from vauban.data import Dataset
from vauban.errors import BadInput, RunRefused
from vauban.files import replace_file
from vauban.inputs import Inputs, prepare
from vauban.models import build, save
from vauban.seed import Seed
from vauban.smoothing import Smoothing
from vauban.smoothing.random import Stream
from vauban.training import losses
from vauban.training.augment import augment

CHECKPOINT_EVERY = 60.0
REPORT_EVERY = 10  # steps: reading a loss waits for the device
BASE_ACCURACY = "base_accuracy_on_training_views"


@dataclass(frozen=True)
class Recipe:
    """Training settings: AdamW, with a learning rate that rises over the first twentieth of the steps and falls on a cosine.

    `loss`: the text form of a loss of `vauban.training.losses`, or of several joined by +.
    """

    epochs: int = 10
    batch: int = 128
    lr: float = 1e-3
    weight_decay: float = 5e-4
    augment: str = "none"
    seed: int = 0
    loss: str = "noise"

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or not self.lr > 0 or self.weight_decay < 0:
            raise BadInput(f"{self}: epochs and batch must be at least 1, lr above 0, weight_decay at least 0")
        losses.build(self.loss)

    def steps(self, size: int) -> int:
        """How many steps training on `size` pictures takes."""
        return self.epochs * math.ceil(size / self.batch)


@dataclass(frozen=True)
class TrainingProgress:
    """The state of training after a step: mean loss and base accuracy on views over the last steps."""

    step: int
    steps: int
    loss: float
    accuracy: float


def train(
    out: Path,
    model: str,
    data: Dataset,
    smoothing: Smoothing,
    recipe: Recipe,
    *,
    device: torch.device | str = "cpu",
    on_progress: Callable[[TrainingProgress], None] | None = None,
    stop_after: int | None = None,
) -> torch.nn.Module:
    """Train the architecture `model` on views of `data` and save it at `out`, with data, smoothing and recipe in its metadata.

    A checkpoint beside `out` is written every minute and when interrupted; the same call resumes from it with the same
    results as an uninterrupted one. `stop_after` ends early after that many steps, as an interruption would.
    """
    if data.labels is None:
        raise BadInput(f"{data.name} has no labels to train on")
    device = torch.device(device)
    inputs, labels = prepare(data.images), torch.from_numpy(data.labels)
    made_by = _made_by(model, data, smoothing, recipe)
    network = build(model, seed=recipe.seed).to(device).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    checkpoint = out.with_name(out.name + ".checkpoint")
    first = _resume(checkpoint, network, optimizer, made_by)
    steps, saved, recent = recipe.steps(len(labels)), time.monotonic(), _Recent()
    step = first
    try:
        while step < steps and (stop_after is None or step - first < stop_after):
            for group in optimizer.param_groups:
                group["lr"] = recipe.lr * _schedule(step / steps)
            rows = _batch_rows(step, len(labels), recipe)
            loss, right = _step(network, optimizer, inputs, labels, rows, smoothing, recipe, step, device)
            step += 1
            recent.add(loss, right, len(rows))
            if on_progress and (step % REPORT_EVERY == 0 or step == steps):
                on_progress(TrainingProgress(step, steps, recent.loss, recent.accuracy))
            if time.monotonic() - saved > CHECKPOINT_EVERY:
                _checkpoint(checkpoint, network, optimizer, made_by, step)
                saved = time.monotonic()
    finally:
        if first < step < steps:
            _checkpoint(checkpoint, network, optimizer, made_by, step)
    network.eval()
    if step == steps:
        accuracy = _base_accuracy(network, inputs, labels, smoothing, recipe, device)
        save(out, network, model, {"trained": made_by, BASE_ACCURACY: f"{accuracy:.4f}"})
        checkpoint.unlink(missing_ok=True)
    return network


def _step(
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: Inputs,
    labels: torch.Tensor,
    rows: torch.Tensor,
    smoothing: Smoothing,
    recipe: Recipe,
    step: int,
    device: torch.device,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One update on views of the pictures of the batch; returns summed loss and number of right answers, on the device."""
    x, y = inputs.values[rows].to(device), labels[rows].to(device)
    stream = Stream(Seed.of(recipe.seed), "train", step)
    per_view = smoothing.words(x.shape[1:], inputs.levels)
    first = 0
    moves = stream.words(0, len(rows), per_view + 3, device)[:, per_view:]

    def words(count: int) -> torch.Tensor:
        nonlocal first
        drawn = stream.words(first, count * len(rows), per_view + 3, device)
        first += count * len(rows)
        return drawn[:, :per_view].unflatten(0, (count, len(rows)))

    batch = losses.Batch(network, augment(x, recipe.augment, moves), y, smoothing, inputs.levels, words)
    loss, scores = losses.build(recipe.loss)(batch)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach() * len(rows), (scores[0].detach().argmax(1) == y).sum()


def _base_accuracy(
    network: torch.nn.Module,
    inputs: Inputs,
    labels: torch.Tensor,
    smoothing: Smoothing,
    recipe: Recipe,
    device: torch.device,
    most: int = 5_000,
) -> float:
    """Accuracy of the trained network on one new view of each of the first `most` training pictures."""
    right, size = 0, min(most, len(labels))
    for first in range(0, size, recipe.batch):
        x, y = (t[first : min(first + recipe.batch, size)].to(device) for t in (inputs.values, labels))
        words = Stream(Seed.of(recipe.seed), "probe", first).words(
            0, len(x), smoothing.words(x.shape[1:], inputs.levels), device
        )
        with torch.inference_mode():
            right += int((network(smoothing.views(x, words, inputs.levels)).argmax(1) == y).sum())
    return right / size


def _batch_rows(step: int, size: int, recipe: Recipe) -> torch.Tensor:
    """The pictures of a step: every picture once per epoch, in an order that depends only on seed and epoch."""
    epoch, position = divmod(step, math.ceil(size / recipe.batch))
    return _order(epoch, size, recipe.seed)[position * recipe.batch : (position + 1) * recipe.batch]


@lru_cache(maxsize=2)
def _order(epoch: int, size: int, seed: int) -> torch.Tensor:
    generator = np.random.Generator(np.random.Philox(key=Seed.of(seed).key, counter=epoch << 192))
    return torch.from_numpy(generator.permutation(size))


def _schedule(done: float) -> float:
    """The learning rate's factor when this fraction of all steps is done."""
    return min(1.0, done * 20) * (0.5 + 0.5 * math.cos(math.pi * done)) + 1e-4


def _made_by(model: str, data: Dataset, smoothing: Smoothing, recipe: Recipe) -> str:
    parts = {"model": model, "data": data.name, "data_sha256": data.fingerprint(), "smoothing": smoothing.spec}
    return ", ".join(f"{key}={value}" for key, value in {**parts, **asdict(recipe)}.items())


def _checkpoint(
    path: Path, network: torch.nn.Module, optimizer: torch.optim.Optimizer, made_by: str, step: int
) -> None:
    content = BytesIO()
    state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "made_by": made_by, "step": step}
    torch.save(state, content)
    replace_file(path, content.getvalue())


def _resume(path: Path, network: torch.nn.Module, optimizer: torch.optim.Optimizer, made_by: str) -> int:
    """Load the checkpoint if there is one and return its step."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        return 0
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    if state["made_by"] != made_by:
        raise RunRefused(
            f"{path} was written by a training with other settings:\n  {state['made_by']}\nnow:\n  {made_by}\n"
            "give those settings to resume it, or remove it to start again"
        )
    network.load_state_dict(state["network"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


class _Recent:
    """Running means of loss and accuracy over the last hundred steps, read from the device only when they are used."""

    def __init__(self) -> None:
        self._sums: list[tuple[torch.Tensor, torch.Tensor, int]] = []

    def add(self, loss: torch.Tensor, right: torch.Tensor, size: int) -> None:
        self._sums = [*self._sums[-99:], (loss, right, size)]

    @property
    def loss(self) -> float:
        return self._mean(0)

    @property
    def accuracy(self) -> float:
        return self._mean(1)

    def _mean(self, which: Literal[0, 1]) -> float:
        if not self._sums:
            return float("nan")
        total = torch.stack([entry[which].float() for entry in self._sums]).sum()
        return float(total) / sum(size for _, _, size in self._sums)
