"""Trains a base classifier on views of its training pictures; training can be stopped and resumed at any step."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch

from vauban.certificates import UNIT_RANGE
from vauban.engine.failed_calls import reason
from vauban.engine.scheduler import current
from vauban.errors import ModelFailed, NotSaved, OutOfMemory, VaubanError
from vauban.files import locked_file
from vauban.interrupts import InterruptedAtTheEnd, interruptible
from vauban.models.files import WITHOUT_LABELS
from vauban.models.weights import read_header
from vauban.smoothing import Smoothing
from vauban.smoothing.trained_views import remember
from vauban.training.arguments import (
    callbacks_of,
    check_counts,
    check_network_kind,
    check_validation,
    entries_of,
    path_of,
    recipe_of,
)
from vauban.training.batches import Held, Order, Streamed, source_of
from vauban.training.checkpoints import Files
from vauban.training.denoising import Frozen, voter
from vauban.training.distributed import processes
from vauban.training.encoder import Encoder
from vauban.training.graphs import Recorded
from vauban.training.losses import build as build_loss
from vauban.training.origins import check_network, check_recipe, copied, described, fitted, initial, name_of
from vauban.training.progress import Callback, Trained, TrainingProgress
from vauban.training.recipe import Recipe
from vauban.training.saving import BASE_ACCURACY, Weights, what_is_kept
from vauban.training.unseen_gradients import unseen_zeroed
from vauban.training.unsmoothed import smoothing_for
from vauban.training.updates import Updater
from vauban.training.validation import Validated, Validation, validate
from vauban.validation import check_input_range, device_of

CHECKPOINT_EVERY = 60.0
REPORT_EVERY = 10  # steps: reading a loss waits for the device

__all__ = ["BASE_ACCURACY", "Callback", "Trained", "TrainingProgress", "train"]


def train(
    network: torch.nn.Module | str,
    data: Any,
    smoothing: Smoothing | str | Sequence[Smoothing | str] | None = None,
    recipe: Recipe | None = None,
    *,
    out: str | Path | None = None,
    validation: Validation | None = None,
    callbacks: Callback | Iterable[Callback] = (),
    device: torch.device | str = "cpu",
    init: str | Path | None = None,
    classifier: Any = None,
    overwrite: bool = False,
    compile: bool | None = None,
    classes: int | None = None,
    workers: int = 2,
    input_range: tuple[float, float] | None = UNIT_RANGE,
    stop_after: int | None = None,
    metadata: Mapping[str, str] | None = None,
    **settings: Any,
) -> Trained:
    """Train a network on views of `data`; the caller's module stays as it was, and the trained one is returned.

    `network`: a module, or the spec of an architecture, whose sides are set by the data. `data`: a data set of `vauban.data`,
    arrays (x, y), or a torch data set or loader (with `classes`, read by `workers` processes). Floats of pictures lie in
    `input_range` (None: anywhere), as when they are certified. `recipe`, or its fields as
    keywords (epochs=, loss=, lr=, …). `out`: a `.safetensors` file for the weights; a checkpoint beside it is written every
    minute and when interrupted. The same call resumes from it with the same results as an uninterrupted one (bit for bit on a
    CPU). A log `….train.jsonl` is kept beside it too. `validation`: pictures held out; the weights returned are then those
    with the best certified accuracy. `callbacks` are called with the progress; one that returns True ends the training; one with
    a method `validating(done, total)` is told how many held-out pictures have voted.
    `init`: weights to start from, a file or a checkpoint; of a pair 'dncnn > resnet18' those of the denoiser will do.
    `classifier`: the network is a denoiser, trained by mse or denoised-stability for this frozen classifier, and the pair is
    returned. A loss that learns features (simclr, simsiam) takes no smoothing and no labels: the network returned gives features,
    and the file holds the network with zeros for its last layer. `compile`: torch.compile, by default on a GPU. After
    `stop_after` steps it ends as if interrupted. `metadata`: further entries of the file of weights, text to text. Where what was
    learned cannot be written, `vauban.errors.NotSaved` is raised, whose `result` is what would have been returned.

    >>> import torch, vauban as vb
    >>> x, y = torch.rand(64, 2), torch.arange(64) % 2
    >>> trained = vb.train(torch.nn.Linear(2, 2), (x, y), "gaussian:sigma=0.1", epochs=2, batch=32, loss="consistency")
    >>> trained.step, trained.finished
    (4, True)
    """
    recipe = recipe_of(recipe, settings, train.__kwdefaults__ or ())
    check_network_kind(network)
    check_counts(stop_after, workers)
    further = entries_of(metadata, data)
    input_range = check_input_range(input_range)
    calls, device = callbacks_of(callbacks), device_of(device)
    files = Files(path_of("out", out)) if out is not None else None
    loss = build_loss(recipe.loss)
    smoothing = smoothing_for(loss, smoothing)
    frozen = Frozen.of(classifier, loss, recipe.loss) if classifier is not None else None
    check_validation(validation, loss, recipe.loss, frozen is not None)
    start = path_of("init", init) if init is not None else None
    with (
        processes(device) as (group, own_device),
        current(own_device),
        torch.random.fork_rng(devices=[]),
        ExitStack() as stack,
    ):
        group.check_batch(recipe.batch, recipe.accumulate, smoothing)
        if files is not None and group.first:
            files.refuse_existing(overwrite)
            stack.enter_context(locked_file(files.weights))
        source = source_of(data, own_device, classes, workers, loss.uses_labels, smoothing, input_range)
        check_recipe(recipe, source, loss)
        if validation is not None:
            validation.check(smoothing, input_range)
        loss.check(smoothing, soft_labels=bool(recipe.mixup or recipe.cutmix))
        loss.check_shape(smoothing, source.shape)
        view_shape = smoothing.view_shape(source.shape)
        network = fitted(network, view_shape, source.classes)
        module = loss.around(initial(network, recipe.seed, start), recipe.seed).to(own_device)
        views = torch.zeros(2, *view_shape, device=own_device)
        pictures = frozen is not None or not (loss.classifies or loss.learns_features)
        check_network(module, views, 0 if loss.learns_features else source.classes, pictures)
        if frozen is not None:
            frozen.check(name_of(network))
            pair = frozen.behind(module).to(own_device)
            check_network(pair, views, source.classes)
            module = pair if loss.classifies else module
        stack.enter_context(unseen_zeroed(module, views, recipe.precision))
        about = (source.shape, source.levels, source.classes, own_device, group)
        compiles = own_device.type == "cuda" if compile is None else compile
        updater = Updater(module, smoothing, recipe, *about, compiles)
        made_by = described(network, source, smoothing, recipe, start, validation, frozen)
        loop = _Loop(updater, source, files, made_by, validation, calls, frozen, overwrite)
        trained = loop.result(loop.run(stop_after))
        if trained.finished and group.first:
            if loss.learns_features and (start is None or WITHOUT_LABELS in read_header(start)):
                further[WITHOUT_LABELS] = "true"
            loop.save(trained, Weights(name_of(network), smoothing, made_by, loop.steps, frozen, further))
        if loop.interrupted:
            raise InterruptedAtTheEnd(trained)
    return trained


class _Loop:
    """The steps of one training, with its checkpoints, reports and validations."""

    def __init__(
        self,
        updater: Updater,
        source: Held | Streamed,
        files: Files | None,
        made_by: dict[str, str],
        validation: Validation | None,
        callbacks: list[Callback],
        frozen: Frozen | None = None,
        overwrite: bool = False,
    ):
        self.updater, self.source, self.made_by, self.validation = updater, source, made_by, validation
        self.recipe, self.group, self.callbacks = updater.recipe, updater.processes, callbacks
        self.files, self.frozen = files if self.group.first else None, frozen
        self.recorded = Recorded(updater)
        self.steps = self.recipe.steps(source.size)
        self.first = self.step = 0
        self.best, self.best_step = (-1.0, -1.0), 0
        self.best_weights: dict[str, torch.Tensor] | None = None
        self.history: list[TrainingProgress] = []
        self._found: list[torch.Tensor] = []  # loss and accuracy of every step since the last report
        self._whole = True  # whether the last update was completed
        self._ended = False  # by a callback
        self._kept: int | None = None  # the step whose state the checkpoint holds
        self._failed: set[Path] = set()  # files that could not be written, and whose warning was given
        self.interrupted = False  # in the last step: the weights are written first
        self._stop = Event()  # set by Ctrl-C
        self._judge = copied(updater.network).requires_grad_(False).eval() if validation is not None else None
        state = files.read_checkpoint(made_by, updater.differences, overwrite) if files is not None else None
        if state is not None:
            self._resume(state)
        elif self.files is not None:
            self.files.checkpoint.unlink(missing_ok=True)  # of another training, and to be overwritten
        if self.files is not None:
            told = self.first - self._unreported
            self.history = self.files.start_log(told, TrainingProgress.from_json)
        self._logged = len(self.history)

    def run(self, stop_after: int | None) -> bool:
        """Train to the end, or for `stop_after` steps; whether training came to its end, or a callback ended it."""
        order = Order(self.source.size, self.recipe.batch, self.recipe.seed, self.group.rank, self.group.world)
        last = self.steps if stop_after is None else min(self.steps, self.first + stop_after)
        saved = time.monotonic()
        stopped_by: BaseException | None = None
        self.updater.training_mode()
        try:
            with interruptible() as self._stop:
                self._ended = self._ended or (self._unreported and self._report())
                for x, y in () if self._ended else self.source.pairs(order, self.first, last):
                    self._update(x, y)
                    self._ended = self._reports() and self._report()
                    if self._ended:
                        break
                    self.interrupted = self._stop.is_set()
                    if self.interrupted and self.step < self.steps:
                        raise KeyboardInterrupt
                    if time.monotonic() - saved > CHECKPOINT_EVERY:
                        if self.files is not None:
                            self._try(self.files.checkpoint, self._checkpoint)
                        saved = time.monotonic()
                if self._found and not self._unreported:  # `stop_after` ends it between two reports
                    self._losses()
        except BaseException as problem:
            stopped_by = problem
            raise
        finally:
            if not self._ended and self._whole and (self._unreported or self.first < self.step < self.steps):
                self._checkpoint_at_the_stop(stopped_by)
        return self._ended or self.step == self.steps

    def save(self, trained: Trained, weights: Weights) -> None:
        """Write the finished weights if they are to be; where that fails, a checkpoint from which the same call writes them."""
        if self.files is None:
            return
        try:
            weights.write(self.files, trained)
        except Exception as problem:
            with suppress(OSError):
                self._checkpoint()
            raise NotSaved(
                f"training is finished, but {problem}. {what_is_kept(self.files, self._kept, self.steps)}", trained
            ) from problem

    def _checkpoint_at_the_stop(self, stopped_by: BaseException | None) -> None:
        """Write a checkpoint for whoever resumes; where that fails, an interruption keeps nothing, and says so."""
        try:
            self._checkpoint()
        except OSError as problem:
            kept = what_is_kept(self.files, self._kept, self.steps)
            if stopped_by is not None and not isinstance(stopped_by, KeyboardInterrupt):
                warnings.warn(f"{problem}. {kept}", stacklevel=4)
                return
            text = f"training was stopped after step {self.step} of {self.steps}, but {problem}. {kept}"
            raise NotSaved(text, self.result(finished=False)) from problem

    def _try(self, path: Path, write: Callable[[], None]) -> bool:
        """Write a file without which training can go on; whether that was done. Its first failure is a warning."""
        try:
            write()
        except OSError as problem:
            if path not in self._failed:
                warnings.warn(f"{problem}; training goes on, and tries to write it again later", stacklevel=4)
            self._failed.add(path)
            return False
        return True

    def result(self, finished: bool) -> Trained:
        """The network with its best weights, or its last where nothing was held out."""
        weights = self.best_weights or self.updater.weights()
        self.updater.network.load_state_dict(weights)
        step = self.best_step if self.best_weights else self.step
        network = voter(self.updater.network, self.frozen)
        if not isinstance(network, Encoder):
            remember(network, str(self.updater.smoothing.spec))
        return Trained(network.eval().requires_grad_(False), self.history, step, finished)

    def _update(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """One step; what the network or the loss raises in it is a `ModelFailed`."""
        self._whole = False
        try:
            self._found.append(self.recorded.update(x, y, self.step, self.steps))
        except torch.OutOfMemoryError as problem:
            raise OutOfMemory(
                f"step {self.step + 1} does not fit into memory ({reason(problem)}): give "
                f"accumulate={2 * self.recipe.accumulate} (--accumulate), which computes the batch of {self.recipe.batch} in "
                "parts, or a smaller batch"
            ) from problem
        except VaubanError:
            raise
        except (Exception, SystemExit) as problem:
            sides = self.updater.loss.view_shape(self.updater.smoothing, self.source.shape)
            shape = (len(x) // self.recipe.accumulate, *sides)
            raise ModelFailed(
                f"step {self.step + 1} of training failed: {reason(problem)}. The model in training mode and the loss "
                f"{self.recipe.loss} must take views of shape {shape}: try model.train()(torch.zeros{shape})"
            ) from problem
        self.step += 1
        self._whole = True

    @property
    def _unreported(self) -> bool:
        """Whether the report of the last step is still to be made, since its validation was interrupted."""
        return bool(self._found) and self._reports()

    def _reports(self) -> bool:
        return self.step % REPORT_EVERY == 0 or self.step == self.steps or self._validates()

    def _validates(self) -> bool:
        if self.validation is None:
            return False
        every = max(1, self.steps // self.validation.times)
        return self.step % every == 0 or self.step == self.steps

    def _report(self) -> bool:
        """Read the losses since the last report, tell callbacks and log; whether a callback ends the training."""
        loss, accuracy = self._losses().mean(0).tolist()
        validated = self._validate() if self._validates() else None
        self._found = []
        epoch = self.step * self.recipe.batch / self.source.size
        rate = self.recipe.rate(self.step - 1, self.steps)
        progress = TrainingProgress(self.step, self.steps, epoch, rate, loss, accuracy, validated, self.first)
        self.history.append(progress)
        self._log()
        answers = [callback(progress) for callback in self.callbacks] if self.group.first else []
        ends = any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)
        return self.group.any(ends, self.updater.device)

    def _log(self) -> None:
        """Add the last report to the log; if one before it could not be written, write all of them again."""
        if self.files is None:
            return
        files, records = self.files, [progress.to_json() for progress in self.history]
        if self._logged == len(records) - 1:
            done = self._try(files.log, lambda: files.append_log(records[-1]))
        else:
            done = self._try(files.log, lambda: files.write_log(records))
        self._logged = len(self.history) if done else -1

    def _validate(self) -> Validated:
        """Try the weights that would be saved now, and keep them if they are the best so far."""
        assert self.validation is not None
        assert self._judge is not None
        weights = self.updater.weights()
        self._judge.load_state_dict(weights)
        judge = voter(self._judge, self.frozen)
        about = (self.updater.smoothing, self.updater.device, self.recipe.precision)
        found = validate(judge, self.validation, *about, self._validating)
        if (found.certified, found.base_accuracy) >= self.best:
            self.best, self.best_step, self.best_weights = (found.certified, found.base_accuracy), self.step, weights
        return found

    def _validating(self, done: int) -> None:
        """Tell callbacks how many held-out pictures have voted; stop after Ctrl-C: a checkpoint says what is left."""
        assert self.validation is not None
        kept = self.files is not None and self.group.world == 1
        if self._stop.is_set() and (kept or self.step < self.steps):
            raise KeyboardInterrupt
        for callback in self.callbacks if self.group.first else ():
            if hasattr(callback, "validating"):
                callback.validating(done, len(self.validation.data))

    def _losses(self) -> torch.Tensor:
        """Loss and accuracy of every step since the last report; refused where a loss or a weight is not finite."""
        found = self.group.mean(torch.stack(self._found)).cpu()
        self._refuse_divergence(found[:, 0])
        return found

    def _refuse_divergence(self, losses: torch.Tensor) -> None:
        """Refuse to go on if a loss since the last report is not finite, or a weight: a finite loss may have another gradient."""
        bad = (~losses.isfinite()).nonzero().flatten().tolist()
        if bad:
            what, step = f"the loss became {float(losses[bad[0]])}", self.step - len(losses) + bad[0] + 1
        elif not self.updater.finite():
            what, step = "weights became infinite or NaN", self.step
        else:
            return
        kept = "no checkpoint was written before"
        if self.files is not None and self._kept is not None:
            kept = f"{self.files.checkpoint} holds the last good weights: start from them with init= (--init) and another out"
        advice = "give a lower lr (--lr), or clip=1 (--clip 1)"
        raise VaubanError(f"{what} at step {step} of {self.steps}: {advice}; {kept}")

    def _checkpoint(self) -> None:
        """Write the state after the last step, unless it has diverged."""
        found = torch.stack(self._found).cpu() if self._found else torch.zeros(0, 2)
        if self.files is None or not (bool(found[:, 0].isfinite().all()) and self.updater.finite()):
            return
        best = {"score": list(self.best), "step": self.best_step, "weights": self.best_weights or {}}
        about = {"made_by": self.made_by, "step": self.step, "best": best, "found": found, "ended": self._ended}
        self.files.write_checkpoint(self.updater.state() | about)
        self._kept = self.step

    def _resume(self, state: dict[str, Any]) -> None:
        self.updater.load_state(state)
        self.first = self.step = self._kept = int(state["step"])
        self._ended = bool(state.get("ended"))
        best = state["best"]
        (certified, accuracy), self.best_step = best["score"], int(best["step"])
        self.best, self.best_weights = (certified, accuracy), best["weights"] or None
        self._found = list(state["found"].to(self.updater.device))
