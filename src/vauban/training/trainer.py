"""Trains a base classifier on views of its training pictures; training can be stopped and resumed at any step."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from vauban.data import Dataset
from vauban.errors import BadInput, VaubanError
from vauban.models import build, save
from vauban.smoothing import Smoothing
from vauban.smoothing import build as build_smoothing
from vauban.training.batches import Held, Order, Streamed, source_of
from vauban.training.checkpoints import Files, read_state
from vauban.training.distributed import Processes, processes
from vauban.training.graphs import Recorded
from vauban.training.recipe import Recipe
from vauban.training.updates import Updater
from vauban.training.validation import Validated, Validation, validate

CHECKPOINT_EVERY = 60.0
REPORT_EVERY = 10  # steps: reading a loss waits for the device
BASE_ACCURACY = "base_accuracy_on_training_views"


@dataclass(frozen=True)
class TrainingProgress:
    """The state of training after a step: mean loss and accuracy on views since the last report, and the last validation."""

    step: int
    steps: int
    epoch: float
    rate: float
    loss: float
    accuracy: float
    validated: Validated | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the log."""
        record = {k: v for k, v in asdict(self).items() if k != "validated"}
        record = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in record.items()}
        return record | ({"validated": asdict(self.validated)} if self.validated else {})


Callback = Callable[[TrainingProgress], Any]


@dataclass(frozen=True)
class Trained:
    """A trained network in evaluation mode; `history`: one entry for each report; `step`: the step whose weights it has."""

    network: torch.nn.Module
    history: list[TrainingProgress] = field(repr=False)
    step: int
    finished: bool

    @property
    def accuracy(self) -> float:
        """Accuracy on training views in the last steps."""
        return self.history[-1].accuracy if self.history else math.nan


def train(
    network: torch.nn.Module | str,
    data: Any,
    smoothing: Smoothing | str,
    recipe: Recipe | None = None,
    *,
    out: str | Path | None = None,
    validation: Validation | None = None,
    callbacks: Callback | Iterable[Callback] = (),
    device: torch.device | str = "cpu",
    init: str | Path | None = None,
    overwrite: bool = False,
    compile: bool | None = None,
    classes: int | None = None,
    workers: int = 2,
    stop_after: int | None = None,
    **settings: Any,
) -> Trained:
    """Train a network on views of `data`; the caller's module stays as it was, and the trained one is returned.

    `network`: a module, or the spec of an architecture. `data`: a data set of `vauban.data`, arrays (x, y), or a torch data set or
    loader. `recipe`, or its fields as keywords (epochs=, loss=, lr=, …). `out`: a `.safetensors` file for the weights; a checkpoint
    beside it is written every minute and when interrupted, the same call resumes from it with the same results as an uninterrupted
    one (bit for bit on a CPU), and a log `….train.jsonl` is kept. `validation`: pictures held out; the weights returned are then
    those with the best certified accuracy. `callbacks` are called with the progress; one that returns True ends the training.
    `init`: weights to start from. `compile`: torch.compile, by default on a GPU. `stop_after` steps it ends as if interrupted.
    """
    recipe = Recipe.from_options(recipe or Recipe(), settings)
    smoothing = build_smoothing(smoothing) if isinstance(smoothing, str) else smoothing
    calls = [callbacks] if callable(callbacks) else list(callbacks)
    device = torch.device(device)
    files = Files(Path(out).expanduser()) if out is not None else None
    if files is not None and files.weights.suffix != ".safetensors":
        raise BadInput(f"{files.weights}: weights are written as safetensors, so give a name that ends in .safetensors")
    with processes(device) as (group, device):
        group.part_of(recipe.batch)
        if files is not None and group.first:
            files.refuse_existing(overwrite)
        source = source_of(data, device, classes, workers)
        module = build(network, seed=recipe.seed) if isinstance(network, str) else copy.deepcopy(network)
        if init is not None:
            load_into(module, Path(init).expanduser())
        about = _made_by(network, data, smoothing, recipe, init)
        loop = _Loop(
            module.to(device), source, smoothing, recipe, device, group, compile, files, about, validation, calls
        )
        finished = loop.run(stop_after)
        trained = loop.result(finished)
        if files is not None and finished and group.first:
            name = network if isinstance(network, str) else f"{type(network).__module__}:{type(network).__qualname__}"
            metadata = {
                "trained": about.replace("\n", ", "),
                "trained_smoothing": str(smoothing.spec),
                "step": str(trained.step),
            }
            save(files.weights, trained.network, name, {**metadata, BASE_ACCURACY: f"{trained.accuracy:.4f}"})
            files.checkpoint.unlink(missing_ok=True)
    return trained


class _Loop:
    """The steps of one training, with its checkpoints, reports and validations."""

    def __init__(
        self,
        network: torch.nn.Module,
        source: Held | Streamed,
        smoothing: Smoothing,
        recipe: Recipe,
        device: torch.device,
        group: Processes,
        compile: bool | None,
        files: Files | None,
        made_by: str,
        validation: Validation | None,
        callbacks: list[Callback],
    ):
        self.source, self.smoothing, self.recipe, self.device, self.group = source, smoothing, recipe, device, group
        self.files, self.made_by, self.validation, self.callbacks = (
            files if group.first else None,
            made_by,
            validation,
            callbacks,
        )
        compiles = device.type == "cuda" if compile is None else compile
        self.updater = Updater(
            network, smoothing, recipe, source.shape, source.levels, source.classes, device, group, compiles
        )
        self.recorded = Recorded(self.updater)
        self.steps = recipe.steps(source.size)
        self.first, self.best, self.best_step = 0, (-1.0, -1.0), 0
        self.best_weights: dict[str, torch.Tensor] | None = None
        self.history: list[TrainingProgress] = []
        self._found: list[torch.Tensor] = []
        self._judge: torch.nn.Module | None = None
        state = files.read_checkpoint(made_by) if files is not None else None
        if state is not None:
            self._resume(state)
        if self.files is not None:
            self.files.start_log(self.first)

    def run(self, stop_after: int | None) -> bool:
        """Train to the end, or to `stop_after` steps; whether the end was reached."""
        order = Order(self.source.size, self.recipe.batch, self.recipe.seed, self.group.rank, self.group.world)
        last = self.steps if stop_after is None else min(self.steps, self.first + stop_after)
        step, saved = self.first, time.monotonic()
        self.updater.training_mode()
        try:
            for x, y in self.source.pairs(order, self.first, last):
                self._found.append(self.recorded.update(x, y, step, self.steps))
                step += 1
                if self._reports(step) and self._report(step):
                    break
                if self.files is not None and time.monotonic() - saved > CHECKPOINT_EVERY:
                    self._checkpoint(step)
                    saved = time.monotonic()
        finally:
            if self.files is not None and self.first < step < self.steps:
                self._checkpoint(step)
        return step == self.steps

    def result(self, finished: bool) -> Trained:
        """The network with its best weights, or its last where nothing was held out."""
        weights = self.best_weights or self.updater.weights()
        self.updater.network.load_state_dict(weights)
        step = self.best_step if self.best_weights else (self.history[-1].step if self.history else self.first)
        return Trained(self.updater.network.eval().requires_grad_(False), self.history, step, finished)

    def _reports(self, step: int) -> bool:
        return step % REPORT_EVERY == 0 or step == self.steps or self._validates(step)

    def _validates(self, step: int) -> bool:
        if self.validation is None:
            return False
        every = max(1, self.steps // self.validation.times)
        return step % every == 0 or step == self.steps

    def _report(self, step: int) -> bool:
        """Read the losses since the last report, tell callbacks and log; whether a callback ends the training."""
        loss, accuracy = self.group.mean(torch.stack(self._found).mean(0)).tolist()
        self._found = []
        if not math.isfinite(loss):
            self._diverged(step, loss)
        validated = self._validate(step) if self._validates(step) else None
        epoch = step * self.recipe.batch / self.source.size
        rate = self.recipe.rate(step - 1, self.steps)
        progress = TrainingProgress(step, self.steps, epoch, rate, loss, accuracy, validated)
        self.history.append(progress)
        if not self.group.first:
            return False
        if self.files is not None:
            self.files.write_log(progress.to_json())
        return any([callback(progress) is True for callback in self.callbacks])

    def _validate(self, step: int) -> Validated:
        """Try the weights that would be saved now, and keep them if they are the best so far."""
        assert self.validation is not None
        weights = self.updater.weights()
        if self._judge is None:
            self._judge = copy.deepcopy(self.updater.network).requires_grad_(False).eval()
        self._judge.load_state_dict(weights)
        found = validate(self._judge, self.validation, self.smoothing, self.device, self.recipe.precision)
        if (found.certified, found.base_accuracy) >= self.best:
            self.best, self.best_step, self.best_weights = (found.certified, found.base_accuracy), step, weights
        return found

    def _diverged(self, step: int, loss: float) -> None:
        kept = self.files is not None and self.files.checkpoint.exists()
        good = (
            f"{self.files.checkpoint} holds the last good weights (start from them with --init)"
            if kept and self.files
            else ""
        )
        self.first = self.steps  # nothing after this step is worth a checkpoint
        raise VaubanError(
            f"the loss became {loss} in the {REPORT_EVERY} steps before step {step}: lower --lr, or give --clip 1"
            + (f"; {good}" if good else "")
        )

    def _checkpoint(self, step: int) -> None:
        if self._found and not bool(torch.isfinite(torch.stack(self._found)[:, 0]).all()):
            return
        assert self.files is not None
        best = {"score": list(self.best), "step": self.best_step, "weights": self.best_weights or {}}
        self.files.write_checkpoint({**self.updater.state(), "best": best, "made_by": self.made_by, "step": step})

    def _resume(self, state: dict[str, Any]) -> None:
        self.updater.load_state(state)
        self.first = int(state["step"])
        best = state["best"]
        self.best, self.best_step = tuple(best["score"]), int(best["step"])  # type: ignore[assignment]
        self.best_weights = best["weights"] or None


def load_into(network: torch.nn.Module, path: Path) -> None:
    """Load weights from a file, or from a training's checkpoint, into a network."""
    from vauban.models.files import fill
    from vauban.models.weights import fit, read_weights

    if path.name.endswith(".checkpoint"):
        network.load_state_dict(fit(read_state(path)["network"], network.state_dict(), str(path)))
    else:
        fill(network, read_weights(path)[0], str(path))


def _made_by(
    network: torch.nn.Module | str, data: Any, smoothing: Smoothing, recipe: Recipe, init: str | Path | None
) -> str:
    """Everything that the weights depend on, one setting a line."""
    name = network if isinstance(network, str) else type(network).__qualname__
    parts: dict[str, Any] = {"model": name, "data": getattr(data, "name", type(data).__name__)}
    if isinstance(data, Dataset):
        parts["data_sha256"] = data.fingerprint()
    parts |= {"smoothing": smoothing.spec, **asdict(recipe)} | ({"init": init} if init is not None else {})
    return "\n".join(f"{key}={value}" for key, value in parts.items())
