"""vauban bench: speed, measured side by side in one run."""

from __future__ import annotations

from typing import Annotated

import typer

from vauban.cli import common
from vauban.cli.common import example

app = typer.Typer(help="Measure speed, side by side in one run.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
@example("vauban bench certify", "vauban bench certify --model resnet18:channels=3,classes=10 --rows 50")
def certify(
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="architecture, random weights; repeatable")
    ] = None,
    smoothing: common.SmoothingOption = "gaussian:sigma=0.5",
    rows: Annotated[int | None, typer.Option(min=1, help="compute shape, views per forward pass [by size]")] = None,
    seconds: Annotated[float, typer.Option(help="time for each way of each model")] = 20.0,
    batch: Annotated[str, typer.Option(help="how many compute shapes are prepared ahead")] = "auto",
    device: common.DeviceOption = "auto",
    json: common.JsonOption = False,
) -> None:
    """Votes per second: bare forward passes, the usual loop of published scripts, and Vauban."""
    from vauban.bench.certify import measure
    from vauban.cli.asked import read_in_flight

    where = common.pick_device(device)
    results = []
    for spec in model or ["cnn", "resnet18"]:
        with common.progress(f"measuring {spec}", 3 * int(seconds), "s", json) as tick:
            results.append(measure(spec, smoothing, rows, seconds, read_in_flight(batch), where, tick))
    if json:
        common.print_json(results)
        return
    table = [
        [
            f"{r['model']} at {r['rows']} rows",
            f"{r['bare']:,.0f}",
            f"{r['loop']:,.0f}",
            f"{r['vauban']:,.0f}",
            f"{r['vauban_to_bare']:.3f}",
            f"{r['vauban_to_loop']:.3f}",
        ]
        for r in results
    ]
    headers = ["votes per second", "(a) bare", "(b) loop", "(c) Vauban", "c / a", "c / b"]
    common.print_table(headers, table, title=f"{smoothing} on {results[0]['device']}, {results[0]['threads']} threads")


@app.command()
@example("vauban bench exact", "vauban bench exact --smoothing band:size=4 --model resnet18")
def exact(
    smoothing: Annotated[
        list[str] | None, typer.Option("--smoothing", "-s", help="an exact smoothing; repeatable [all]")
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="architecture, random weights")] = "cnn",
    rows: Annotated[int | None, typer.Option(min=1, help="compute shape, views per forward pass [by size]")] = None,
    seconds: Annotated[float, typer.Option(help="time for each way of each smoothing")] = 10.0,
    device: common.DeviceOption = "auto",
    json: common.JsonOption = False,
) -> None:
    """Votes per second where every view votes: bare forward passes, one position at a time, and Vauban."""
    from vauban.bench.exact import SMOOTHINGS, measure

    where = common.pick_device(device)
    results = []
    for spec in smoothing or SMOOTHINGS:
        with common.progress(f"measuring {spec}", 3 * int(seconds), "s", json) as tick:
            results.append(measure(model, spec, rows, seconds, where, tick))
    if json:
        common.print_json(results)
        return
    table = [
        [
            f"{r['smoothing']}, {r['views']:,} views",
            *(f"{r[way]:,.0f}" for way in ("bare", "loop", "vauban")),
            *(f"{r[ratio]:.3f}" for ratio in ("vauban_to_bare", "vauban_to_loop")),
        ]
        for r in results
    ]
    headers = ["votes per second", "(a) bare", "(b) one position at a time", "(c) Vauban", "c / a", "c / b"]
    about = f"{model} at {results[0]['rows']} rows on {results[0]['device']}, {results[0]['threads']} threads"
    common.print_table(headers, table, title=about)


@app.command()
@example("vauban bench certificates", "vauban bench certificates --smoothing ablation:retained=1000")
def certificates(
    smoothing: Annotated[list[str] | None, typer.Option("--smoothing", "-s", help="a law; repeatable [all]")] = None,
    inputs: Annotated[int, typer.Option(min=1, help="radii to compute")] = 10_000,
    json: common.JsonOption = False,
) -> None:
    """Seconds for 10,000 top-3 radii from counts at ImageNet size, next to a loop over inputs."""
    from vauban.bench.certificates import SMOOTHINGS, measure

    results = []
    asked = smoothing or SMOOTHINGS
    with common.progress("measuring", len(asked), "laws", json) as tick:
        for spec in asked:
            results.append(measure(spec, inputs))
            tick(1)
    if json:
        common.print_json(results)
        return
    rows = [
        [
            r["smoothing"],
            *(f"{r[key]:.3f}" for key in ("tables", "at_once", "loop")),
            f"{r['loop'] / r['at_once']:,.0f}x",
        ]
        for r in results
    ]
    headers = [f"seconds for {inputs:,} radii, top 3", "tables, once", "Vauban", "loop", "faster"]
    common.print_table(headers, rows)


@app.command()
@example("vauban bench ablation --views 1000 --pixels 50176 --retained 1000")
def ablation(
    views: Annotated[int, typer.Option(min=1, help="how many views")] = 1_000,
    pixels: Annotated[int, typer.Option(min=2, help="pixels of a picture")] = 50_176,
    retained: Annotated[int, typer.Option(min=1, help="pixels kept")] = 1_000,
    json: common.JsonOption = False,
) -> None:
    """Seconds to choose the pixels that views keep, next to a loop that draws one kept pixel at a time."""
    from vauban.bench.ablation import measure

    result = measure(views, pixels, retained)
    if json:
        common.print_json(result)
        return
    title = f"{views:,} views that keep {retained:,} of {pixels:,} pixels"
    row = [f"{result['at_once']:.3f}", f"{result['loop']:.3f}", f"{result['loop'] / result['at_once']:.0f}x"]
    common.print_table([title, "Vauban, s", "loop, s", "faster"], [["choosing the pixels", *row]])
