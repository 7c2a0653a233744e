"""vauban train: trains a base classifier on views."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vauban.cli import common
from vauban.cli.common import example


@example("vauban train --data mnist --smoothing gaussian:sigma=0.5 --out model.safetensors")
def train(
    out: Annotated[Path, typer.Option("--out", "-o", help="file for the weights, .safetensors")],
    smoothing: common.SmoothingOption,
    data: common.DataOption = "mnist",
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="architecture (see: vauban models) [by data]")
    ] = None,
    epochs: Annotated[int, typer.Option(help="times every picture is seen")] = 10,
    batch_size: Annotated[int, typer.Option(help="pictures per step")] = 128,
    lr: Annotated[float, typer.Option(help="highest learning rate")] = 1e-3,
    weight_decay: Annotated[float, typer.Option(help="AdamW's weight decay")] = 5e-4,
    augment: Annotated[str, typer.Option(help="none, shift or crop-flip")] = "none",
    loss: Annotated[str, typer.Option(help="training loss")] = "noise",
    every: common.EveryOption = 1,
    limit: common.LimitOption = None,
    device: common.DeviceOption = "auto",
    seed: Annotated[int, typer.Option(help="seed of weights, order and noise")] = 0,
    json: common.JsonOption = False,
) -> None:
    """Train a base classifier on views of a data set (its train split unless another is named).

    A checkpoint is written beside the output every minute and at Ctrl-C; the same command resumes from it.
    """
    import torch

    from vauban.cli.build import check_out
    from vauban.data import load_some
    from vauban.data.registry import with_split
    from vauban.errors import BadInput
    from vauban.models import canonical, fitting
    from vauban.models import load as load_model
    from vauban.smoothing import build
    from vauban.training import Recipe
    from vauban.training import train as run
    from vauban.training.trainer import BASE_ACCURACY, TrainingProgress

    if out.suffix != ".safetensors":
        raise BadInput(f"--out {out}: weights are written as safetensors, so give a name that ends in .safetensors")
    law = build(smoothing)
    where = common.pick_device(device)
    recipe = Recipe(epochs, batch_size, lr, weight_decay, augment, seed, loss)
    selected = load_some(with_split(data, "train"), every, limit)
    grey, size = selected.images.shape[1] == 1, selected.images.shape[-1]
    channels = law.view_shape(torch.Size(selected.images.shape[1:]))[0]
    name = model or ("cnn-small" if grey else "resnet18")
    spec = canonical(fitting(name, channels=channels, classes=selected.num_classes, size=size))
    check_out(out)
    last: list[TrainingProgress] = []

    with common.progress(
        f"training {spec.split(':')[0]}", recipe.steps(len(selected.images)), "steps", json
    ) as on_progress:

        def advance(state: TrainingProgress) -> None:
            on_progress(state.step - (last[-1].step if last else 0))
            last[:] = [state]

        run(out, spec, selected, law, recipe, device=where, on_progress=advance)
    accuracy = float(load_model(out).metadata[BASE_ACCURACY])
    if json:
        common.print_json({"out": str(out), "model": spec, BASE_ACCURACY: accuracy})
    else:
        typer.echo(f"{out}: {spec}, base accuracy {100 * accuracy:.1f} % on views of training pictures")
