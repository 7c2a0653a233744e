"""vauban baseline: trains a classifier without certificates, as the papers attack beside their smoothed ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vauban.cli import common
from vauban.cli.common import example


@example(
    "vauban baseline undefended --data mnist --model wong-mnist --out undefended.safetensors",
    "vauban baseline wasserstein-adversarial --epsilon 0.3 --steps 7 --out adversarial.safetensors",
    "vauban attack --smoothing none --threat wasserstein-l2 --model undefended.safetensors --limit 20 --out attacks/u",
)
def baseline(
    name: Annotated[
        str,
        typer.Argument(
            help="undefended, binarised, linf-adversarial, linf-provable or wasserstein-adversarial", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="file for the weights, .safetensors")],
    data: common.DataOption = "mnist",
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="architecture (see: vauban models) [by data]")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="how often every picture is seen")] = 5,
    batch_size: Annotated[int, typer.Option(min=1, help="pictures per update")] = 128,
    lr: Annotated[float, typer.Option(help="learning rate")] = 1e-3,
    epsilon: Annotated[
        float,
        typer.Option(help="size of the changes in training: largest change of a number, or pixels moved by the mass"),
    ] = 0.1,
    steps: Annotated[int, typer.Option(min=1, help="steps of the attack in training")] = 7,
    every: common.EveryOption = 1,
    limit: common.LimitOption = None,
    device: common.DeviceOption = "auto",
    seed: Annotated[int, typer.Option(help="seed of weights and order")] = 0,
    json: common.JsonOption = False,
) -> None:
    """Train a baseline: undefended, on binarised or attacked pictures, or by interval bounds. It has no certificates."""
    import torch

    from vauban.attacks.baselines import BASELINES, BaselineRecipe, saved_as, train_baseline
    from vauban.cli.build import check_out
    from vauban.data import load_some
    from vauban.data.registry import with_split
    from vauban.errors import BadInput
    from vauban.models import canonical, default_for, fitting_views, how_to_load
    from vauban.models.building import build
    from vauban.models.files import save
    from vauban.specs import choose

    choose("baseline", name, BASELINES)
    check_out(out.expanduser())
    if lr <= 0 or epsilon <= 0:
        raise BadInput(f"lr={lr:g}, epsilon={epsilon:g}: numbers above zero are needed")
    samples = load_some(with_split(data, "train"), every, limit)
    if samples.labels is None:
        raise BadInput(f"{samples.name} has no labels: they are needed to train")
    shape, where = torch.Size(samples.images.shape[1:]), common.pick_device(device)
    text = (
        default_for(shape, samples.num_classes) if model is None else fitting_views(model, shape, samples.num_classes)
    )
    spec = canonical(text)
    recipe = BaselineRecipe(epochs=epochs, batch=batch_size, lr=lr, epsilon=epsilon, steps=steps)
    network = build(spec, seed=seed).to(where)
    x, labels = torch.as_tensor(samples.images), torch.as_tensor(samples.labels)
    trained = train_baseline(name, network, x, labels, recipe, seed=seed)
    save(out, trained, saved_as(name, spec), {"baseline": f"{name}, {recipe}"})
    how = how_to_load(out)
    if json:
        common.print_json({"out": str(out), "baseline": name, "model": spec, "load": how})
        return
    typer.echo(f"{name}: weights in {out}; attack with vauban attack --smoothing none --threat l2 {how}")
