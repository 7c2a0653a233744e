"""vauban train: trains a base classifier on views."""

from __future__ import annotations

from contextlib import ExitStack
from math import isnan
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vauban.cli import common
from vauban.cli.common import example

if TYPE_CHECKING:
    from vauban.data import Dataset
    from vauban.models import LoadedModel
    from vauban.smoothing import Smoothing
    from vauban.training import Recipe, Trained, Validation
    from vauban.training.losses import Loss
    from vauban.training.recipes import NamedRecipe

_VALIDATION_SHARE, _MOST_VALIDATIONS = 0.1, 10  # by default: the most time of training, and the most times


@example(
    "vauban train --data mnist --smoothing gaussian:sigma=0.5 --out model.safetensors",
    "vauban train --data cifar10 --smoothing gaussian:sigma=0.25 --recipe best --out model.safetensors",
    "vauban train --data mnist --smoothing ablation:retained=45 --loss stability:weight=6+consistency:weight=10 -o m.safetensors",
    "vauban train --data mnist -s gaussian:sigma=0.5 --model unet --loss mse --classifier clean.safetensors -o m.safetensors",
    "vauban train --data cifar10 --model resnet18 --loss simsiam --optimizer sgd --lr 0.12 --batch-size 256 -o f.safetensors",
    "vauban train --list-recipes",
    "torchrun --nproc-per-node 4 -m vauban train …",
)
def train(
    out: Annotated[Path | None, typer.Option("--out", "-o", help="file for the weights, .safetensors")] = None,
    smoothing: Annotated[
        str | None,
        typer.Option("--smoothing", "-s", help="views to train on, gaussian:sigma=0.5 or 'A | B' [the recipe's]"),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", help="data set, name:key=value,… (see: vauban data) [the recipe's, else mnist]"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="architecture (see: vauban models), or package.module:callable [by data]"),
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="settings by name: best, or one of --list-recipes")] = None,
    list_recipes: Annotated[
        bool, typer.Option("--list-recipes", help="list the recipes of the papers and ours, and exit")
    ] = False,
    loss: Annotated[
        str | None,
        typer.Option(
            help="noise, stability, consistency, adversarial, type2, macer, or for exact band and block patch-margin; several "
            "joined by +, with parameters as in stability:weight=6; of a denoiser mse or denoised-stability; of features, "
            "without labels, simclr, simsiam or coding-rate [noise]"
        ),
    ] = None,
    classifier: Annotated[
        str | None,
        typer.Option(
            help="train --model, a denoiser, for this classifier, which stays as it is: a .safetensors file, an architecture "
            "with --weights, or package.module:callable; no labels are used"
        ),
    ] = None,
    weights: Annotated[str | None, typer.Option(help="state dict for --classifier: .safetensors, .pt or .pth")] = None,
    epochs: Annotated[float | None, typer.Option(help="how often every picture is seen [10]")] = None,
    batch_size: Annotated[int | None, typer.Option(help="pictures per update, over all GPUs [128]")] = None,
    accumulate: Annotated[
        int | None, typer.Option(help="parts in which a batch is computed, to save memory [1]")
    ] = None,
    optimizer: Annotated[str | None, typer.Option(help="adamw or sgd [adamw]")] = None,
    momentum: Annotated[float | None, typer.Option(help="momentum of sgd [0.9]")] = None,
    lr: Annotated[float | None, typer.Option(help="highest learning rate [0.001]")] = None,
    schedule: Annotated[
        str | None, typer.Option(help="cosine, constant, onecycle or step:at=30/60,factor=0.1 [cosine]")
    ] = None,
    warmup: Annotated[
        float | None, typer.Option(help="epochs in which the rate rises from 0 [cosine: a twentieth of all, else 0]")
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(help="weight decay [0.0005]")] = None,
    label_smoothing: Annotated[float | None, typer.Option(help="probability shared by all classes [0]")] = None,
    mixup: Annotated[float | None, typer.Option(help="parameter of mixup's Beta distribution, 0: no mixup [0]")] = None,
    cutmix: Annotated[
        float | None, typer.Option(help="parameter of cutmix's Beta distribution, 0: no cutmix [0]")
    ] = None,
    augment: Annotated[
        str | None, typer.Option(help="none, shift, flip, crop-flip or resized-crop, before views are made [none]")
    ] = None,
    masks: Annotated[
        str | None,
        typer.Option(help="picture: each has noise of its own; batch: all pictures of a batch share it [picture]"),
    ] = None,
    ema: Annotated[
        float | None,
        typer.Option(help="save an average of the weights over the steps, with this decay; 0: the last [0]"),
    ] = None,
    clip: Annotated[float | None, typer.Option(help="largest norm of a gradient, 0: any [0]")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, tf32 or bf16 [fp32]")] = None,
    validate: Annotated[
        int | None,
        typer.Option(
            help="training pictures held out, by which the best weights are chosen; 0: none, the last weights [200, at most a "
            "twentieth of all; for a denoiser 0]"
        ),
    ] = None,
    radius: Annotated[
        float | None, typer.Option(help="radius at which held-out pictures are to be certified [by smoothing]")
    ] = None,
    votes: Annotated[int, typer.Option(min=1, help="votes for each held-out picture")] = 200,
    times: Annotated[
        int | None,
        typer.Option(
            min=1, help="how often held-out pictures are tried [10; fewer where that takes over a tenth of the time]"
        ),
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option(help="weights to start from, a file or a checkpoint; of 'D > A' those of D will do [random]"),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace finished weights, and an unfinished training of other settings")
    ] = False,
    standardise: Annotated[
        bool,
        typer.Option(
            "--standardise",
            help="scale the features of a table by their mean and standard deviation; the file keeps them",
        ),
    ] = False,
    input_range: common.InputRangeOption = None,
    tensorboard: Annotated[Path | None, typer.Option(help="folder for TensorBoard's files")] = None,
    every: common.EveryOption = 1,
    limit: common.LimitOption = None,
    workers: Annotated[
        int, typer.Option(min=0, help="processes that decode pictures in files, where these do not fit into memory")
    ] = 2,
    device: common.DeviceOption = "auto",
    seed: Annotated[int | None, typer.Option(help="seed of weights, order and noise [0]")] = None,
    json: common.JsonOption = False,
) -> None:
    """Train a base classifier on views of a data set (of its train split unless another is named).

    Values in [ ] hold where neither an option nor --recipe says otherwise. A checkpoint is written beside the output every minute
    and at Ctrl-C; the same command resumes from it. docs/training.md explains losses, recipes and several GPUs.
    """
    if list_recipes:
        _list_recipes(json)
        return
    from torch import Size

    from vauban.cli.build import check_out, read_range
    from vauban.data import load_some
    from vauban.data.registry import with_split
    from vauban.errors import BadInput
    from vauban.interrupts import InterruptedAtTheEnd
    from vauban.models import how_to_load
    from vauban.training import Recipe
    from vauban.training import train as run
    from vauban.training.distributed import in_first_process
    from vauban.training.losses import build as build_loss
    from vauban.training.recipes import named
    from vauban.training.unsmoothed import smoothing_for

    if out is None:
        raise BadInput("--out is missing: give the file for the weights, such as --out model.safetensors")
    check_out(out.expanduser())
    chosen = named(recipe, smoothing=smoothing, data=data or "mnist") if recipe else None
    data = data or (chosen.data if chosen else "mnist")
    if chosen is not None and chosen.missing:
        raise BadInput(f"the recipe {chosen.name} cannot be run: train lacks {chosen.missing}")
    where = common.pick_device(device)
    given: dict[str, Any] = {"epochs": epochs, "batch": batch_size, "lr": lr, "loss": loss, "optimizer": optimizer}
    given |= {"schedule": schedule, "warmup": warmup, "weight_decay": weight_decay, "label_smoothing": label_smoothing}
    given |= {"mixup": mixup, "cutmix": cutmix, "augment": augment, "ema": ema, "clip": clip, "precision": precision}
    given |= {"seed": seed, "accumulate": accumulate, "masks": masks, "momentum": momentum}
    settings = Recipe.from_options(chosen.recipe if chosen else Recipe(), given)
    selected = load_some(with_split(data, "train"), every, limit, stream=True)
    selected, kept_with = _standardised(selected) if standardise else (selected, None)
    learns = build_loss(settings.loss)
    law = smoothing_for(learns, smoothing or (chosen.smoothing if chosen else None))
    frozen = _classifier(classifier, weights)
    learns.check_shape(law, Size(selected.images.shape[1:]))
    spec = _architecture(model, chosen, law, selected, learns)
    held = 0 if validate is None and not learns.uses_labels else validate
    kept, validation = _held_out(selected, held, radius, votes, times, settings)
    quiet = json or not in_first_process()
    for note in _notes(chosen, data) if not quiet else ():
        typer.echo(note, err=True)
    with ExitStack() as stack:
        callbacks = [_Shown(stack, spec.split(":")[0], quiet), *_tensorboard(tensorboard)]
        try:
            trained = run(
                spec, kept, law, settings, out=out, validation=validation, callbacks=callbacks, device=where, init=init,
                classifier=frozen, overwrite=overwrite, metadata=kept_with, input_range=read_range(input_range), workers=workers,
            )  # fmt: skip
        except InterruptedAtTheEnd as late:
            trained = late.result
    if in_first_process():
        named_spec = spec if frozen is None else f"{spec} > {frozen.spec}"
        if learns.learns_features:
            how = f"start from it with vauban train --init {out}"
            trunk = getattr(trained.network, "trunk", trained.network)
            from vauban.models.files import WITHOUT_LABELS
            from vauban.models.weights import read_header

            reads = hasattr(trunk, "fc") and WITHOUT_LABELS in read_header(out)
            if reads:  # networks and features that poison train takes
                how += f", or vauban poison train --defense ss-dpa:features=learned --model linear:learned={out}"
            _print_result(out, how, named_spec, trained, json)
            return
        how = how_to_load(out) if learns.uses_labels else _how_to_load(out, spec, frozen, (classifier, weights))
        _print_result(out, f"certify with {how}", named_spec, trained, json)
        if not json and how.startswith("--model") and (learns.uses_labels or frozen is not None):
            typer.echo(_next_command(out, how, data, law, standardise))


def _notes(chosen: NamedRecipe | None, data: str) -> list[str]:
    """What to know of a named recipe: its note, and that it is for other data."""
    if chosen is None:
        return []
    from vauban.specs import Spec

    notes = [f"{chosen.name}: {chosen.note}"] if chosen.note else []
    other = Spec.parse(data).name not in (chosen.data, "npz", "images")
    return [f"{chosen.name} is a recipe for {chosen.data}, and the data are {data}"] * other + notes


class _Shown:
    """Shows a progress bar of the steps that are left, and prints what validation found."""

    def __init__(self, stack: ExitStack, name: str, quiet: bool):
        self.stack, self.name, self.quiet = stack, name, quiet
        self.advance: Any = None
        self.step = 0
        self.voted, self.next_line = 0, 0.0

    def validating(self, done: int, total: int) -> None:
        """While held-out pictures vote, a line after two seconds and every ten seconds from there."""
        now = monotonic()
        if done <= self.voted or not self.next_line:
            self.next_line = now + 2
        self.voted = done
        if now >= self.next_line and not self.quiet:
            typer.echo(f"validating: {done:,}/{total:,} pictures", err=True)
            self.next_line = now + 10

    def __call__(self, progress: Any) -> None:
        if self.advance is None:
            before = f" ({progress.first:,} of {progress.steps:,} steps are done already)" if progress.first else ""
            bar = common.progress(f"training {self.name}{before}", progress.steps - progress.first, "steps", self.quiet)
            self.advance, self.step = self.stack.enter_context(bar), progress.first
        self.advance(progress.step - self.step)
        self.step = progress.step
        found = progress.validated
        if found is not None and not self.quiet:
            views = "" if isnan(progress.accuracy) else f", accuracy on views {progress.accuracy:.3f}"
            held_out = (
                f"on views {found.base_accuracy:.3f}, smoothed {found.accuracy:.3f}, certified at {found.radius:.4g}"
            )
            typer.echo(
                f"epoch {progress.epoch:.1f}: loss {progress.loss:.4f}{views}; "
                f"held out: {held_out} {found.certified:.3f}",
                err=True,
            )


def _standardised(data: Dataset) -> tuple[Dataset, dict[str, str]]:
    """A table in the units of its own statistics, and what the file of weights keeps of them."""
    from dataclasses import replace

    from vauban.standardise import Standardisation

    stats = Standardisation.of(data)
    return replace(data, images=stats.applied(data.images)), stats.metadata()


def _classifier(text: str | None, weights: str | None) -> LoadedModel | None:
    """The frozen classifier behind a denoiser."""
    from vauban.errors import BadInput
    from vauban.models import load

    if text is None and weights is not None:
        raise BadInput(
            f"--weights {weights} are those of --classifier, which is missing: name the model they belong to"
        )
    return None if text is None else load(text, weights)


def _architecture(model: str | None, chosen: NamedRecipe | None, law: Smoothing, data: Dataset, loss: Loss) -> str:
    """The architecture with its sides set for views of these data."""
    import torch

    from vauban.errors import BadInput
    from vauban.models import canonical, default_for, fitting_views

    shape = law.view_shape(torch.Size(data.images.shape[1:]))
    name = model or (chosen.model if chosen else None)
    if name is None and not (loss.uses_labels or loss.learns_features):
        raise BadInput(f"{loss} trains a denoiser, and none is named: give --model dncnn or --model unet")
    return (
        default_for(shape, data.num_classes)
        if name is None
        else canonical(fitting_views(name, shape, data.num_classes))
    )


def _held_out(
    data: Dataset, count: int | None, radius: float | None, votes: int, times: int | None, recipe: Recipe
) -> tuple[Dataset, Validation | None]:
    from vauban.training import Validation, split

    held = min(200, len(data) // 20) if count is None else count
    if held == 0 or data.labels is None:
        return data, None
    kept, out = split(data, held, recipe.seed)
    trained_on = recipe.epochs * len(kept)  # pictures; an update takes about three times as long as a vote
    affordable = int(_VALIDATION_SHARE * 3 * trained_on / (held * votes))
    return kept, Validation(out.held(), radius, votes, times or min(_MOST_VALIDATIONS, max(1, affordable)))


def _tensorboard(folder: Path | None) -> list[Any]:
    if folder is None:
        return []
    from vauban.training.tensorboard import TensorBoard

    return [TensorBoard(folder)]


def _how_to_load(out: Path, spec: str, frozen: LoadedModel | None, given: tuple[str | None, str | None]) -> str:
    """The options by which a command takes a trained denoiser, alone or with its classifier, `given` as text and weights."""
    from shlex import quote

    from vauban.models.files import how_to_load, names_code

    if frozen is not None and not names_code(f"{spec} > {frozen.spec}"):
        return how_to_load(out)
    classifier, weights = given
    own = names_code(spec)
    if own and weights is not None:
        return "vb.denoise in Python: denoiser and classifier each need a file of weights"
    model = quote(f"{spec if own else out} > {classifier or 'CLASSIFIER'}")
    rest = out if own else weights
    return f"--model {model}" if rest is None else f"--model {model} --weights {quote(str(rest))}"


def _next_command(out: Path, how: str, data: str, law: Smoothing, standardise: bool) -> str:
    """The command that certifies some inputs with the new weights: those of the test split, or a note on which inputs to name."""
    from shlex import quote

    from vauban.data.registry import in_test_split

    test = in_test_split(data)
    shown = "DATA" if test is None and standardise else quote(str(test or data))
    some = "--limit 100" if law.law.exact else "-n 1000 --limit 100"
    views = f"--smoothing {quote(str(law.first.spec))} {some}"
    command = f"vauban certify {how} --data {shown} {views} --out {quote(f'runs/{out.stem}')}"
    if test is not None:
        return f"next: {command}"
    what = "DATA: a table" if shown == "DATA" else "these are the inputs of the training: for a result, name inputs"
    return f"next: {command}\n({what} that the network was not trained on)"


def _print_result(out: Path, how: str, spec: str, trained: Trained, json: bool) -> None:
    from vauban.training.trainer import BASE_ACCURACY

    accuracy = None if isnan(trained.accuracy) else trained.accuracy
    best = trained.validated
    if json:
        found = {"certified_accuracy": best.certified, "radius": best.radius} if best else {}
        common.print_json(
            {"out": str(out), "model": spec, BASE_ACCURACY: accuracy, "step": trained.step, "validation": found}
        )
        return
    if accuracy is not None:
        typer.echo(f"accuracy on training views: {accuracy:.1%}")
    if best is not None:
        typer.echo(
            f"held-out inputs certified at {best.radius:.4g}: {best.certified:.1%} (step {trained.step}, an estimate)"
        )
    typer.echo(f"weights in {out}; {how}")


def _list_recipes(json: bool) -> None:
    from dataclasses import asdict

    from vauban.training.recipes import listing

    rows = listing()
    if json:
        common.print_json([asdict(row) for row in rows])
        return
    common.print_table(
        ["name", "data", "model", "smoothing", "training", "source"],
        [list(asdict(row).values()) for row in rows],
        numbers=False,
    )
