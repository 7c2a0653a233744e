"""vauban bench train: the speed of training with views against a bare loop."""

from __future__ import annotations

from typing import Annotated

import typer

from vauban.cli import common
from vauban.cli.common import example


@example("vauban bench train", "vauban bench train --model resnet18 --batch-size 512 --precision bf16 --device cuda")
def train(
    model: Annotated[list[str] | None, typer.Option("--model", "-m", help="architecture; repeatable")] = None,
    smoothing: common.SmoothingOption = "gaussian:sigma=0.25",
    loss: Annotated[str, typer.Option(help="losses joined by +")] = "noise",
    batch_size: Annotated[int, typer.Option(min=1, help="pictures per update")] = 128,
    augment: Annotated[str, typer.Option(help="augmentation")] = "crop-flip",
    ema: Annotated[float, typer.Option(help="decay of the average of weights")] = 0.0,
    precision: Annotated[str, typer.Option(help="fp32, tf32 or bf16")] = "fp32",
    pictures: Annotated[int, typer.Option(min=1, help="pictures of an epoch")] = 50_000,
    seconds: Annotated[float, typer.Option(help="seconds for each variant of each model")] = 20.0,
    device: common.DeviceOption = "auto",
    compile: Annotated[bool | None, typer.Option(help="torch.compile both [on a GPU]")] = None,
    json: common.JsonOption = False,
) -> None:
    """Pictures per second in training: a bare loop without views, and Vauban's trainer with views, augmentation and averages."""
    from vauban.bench.train import measure
    from vauban.training import Recipe

    where = common.pick_device(device)
    recipe = Recipe(
        batch=batch_size, loss=loss, augment=augment, ema=ema, precision=precision, optimizer="sgd", lr=0.01
    )
    compiles = where != "cpu" if compile is None else compile
    results = []
    for spec in model or ["cnn", "resnet18"]:
        with common.progress(f"measuring {spec}", 2 * int(seconds), "s", json) as advance:
            results.append(measure(spec, smoothing, recipe, pictures, seconds, where, compiles, advance))
    if json:
        common.print_json(results)
        return
    table = [
        [
            f"{r['model']} at batch {r['batch']}",
            f"{r['bare']:,.0f}",
            f"{r['vauban']:,.0f}",
            f"{1 / r['vauban_to_bare']:.3f}",
            f"{r['seconds_an_epoch']:.2f}",
        ]
        for r in results
    ]
    headers = ["pictures per second", "(a) bare", "(b) Vauban", "time b / a", "seconds an epoch"]
    common.print_table(headers, table, title=f"{smoothing}, {loss}, {precision}, {results[0]['device']}")
