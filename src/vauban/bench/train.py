"""Benchmark of training: updates of Vauban's trainer, with views, against those of a bare loop without, measured in turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import torch

from vauban.bench.turns import in_turns
from vauban.data import Dataset
from vauban.engine.network import device_name, in_precision
from vauban.models import build
from vauban.models.registry import fitting_views
from vauban.smoothing import build as build_smoothing
from vauban.training.batches import Held, Order
from vauban.training.distributed import Processes
from vauban.training.graphs import Recorded
from vauban.training.recipe import Recipe
from vauban.training.updates import Updater


def measure(
    spec: str,
    smoothing: str,
    recipe: Recipe,
    size: int,
    seconds: float,
    device: str,
    compile: bool,
    on_progress: Callable[[int], None],
) -> dict[str, Any]:
    """Pictures per second of both for random pictures and a network with random weights, and the median of their ratio.

    The bare loop trains the same network with the same optimizer, precision, layout and compilation on a batch that is on the
    device already: forward, cross-entropy, backward, update. Vauban's fetches pictures, augments them, makes views and averages
    weights as the recipe says. `seconds_an_epoch` is for `size` pictures.
    """
    views, where = build_smoothing(smoothing), torch.device(device)
    shape = (1, 28, 28) if spec.startswith(("cnn", "wong")) else (3, 32, 32)
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (size, *shape), dtype=np.uint8)
    labels = draw.integers(0, 10, size)
    source = Held(Dataset(images, labels, 10, tuple("0123456789"), "random"), where)
    name = fitting_views(spec, views.view_shape(torch.Size(shape)), 10)
    began = time.perf_counter()
    updater = Updater(
        build(name, seed=0).to(where), views, recipe, source.shape, source.levels, 10, where, Processes(), compile
    )
    recorded = Recorded(updater)
    bare_update = _bare(name, views.view_shape(source.shape), recipe, where, compile)
    order, steps = Order(size, recipe.batch, 0), count()
    updater.training_mode()

    def vauban(updates: int) -> None:
        first = next(steps)
        for step, (x, y) in enumerate(source.pairs(order, first, first + updates), first):
            recorded.update(x, y, step % 1000, 1000)

    def bare(updates: int) -> None:
        for _ in range(updates):
            bare_update()

    for function in (vauban, bare):
        function(8)
    compiled_in = time.perf_counter() - began
    found = in_turns({"bare": bare, "vauban": vauban}, recipe.batch, seconds, where, on_progress)
    about = {"model": name, "smoothing": str(views.spec), "loss": recipe.loss, "batch": recipe.batch}
    about |= {"device": device_name(where), "precision": recipe.precision}
    about |= {"compiled": str(compile), "threads": str(torch.get_num_threads())}
    return {**about, **found, "seconds_an_epoch": size / found["vauban"], "seconds_before": compiled_in}


def _bare(name: str, shape: torch.Size, recipe: Recipe, device: torch.device, compile: bool) -> Callable[[], None]:
    """One update of a plain training loop."""
    network = build(name, seed=0).to(device).train()
    batch = torch.rand(recipe.batch, *shape, device=device)
    labels = torch.randint(0, 10, (recipe.batch,), device=device)
    if len(shape) == 3:
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        batch = batch.contiguous(memory_format=torch.channels_last)
    program: Any = torch.compile(network, dynamic=False) if compile else network
    optimizer = recipe.optimizer_for(network.parameters(), device)

    def update() -> None:
        with in_precision(recipe.precision, device):
            with torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
                loss = torch.nn.functional.cross_entropy(program(batch).float(), labels)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update
