"""vauban bench: measures the speed of Vauban and of alternatives in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vauban.cli import common
from vauban.cli.bench_serve import serve
from vauban.cli.bench_tables import refuse_unread, tables
from vauban.cli.bench_train import train
from vauban.cli.common import example

app = typer.Typer(
    help="Measure the speed of Vauban and of alternatives in one run.", no_args_is_help=True, rich_markup_mode=None
)
app.command()(train)
app.command()(serve)

_SMOOTHING = "gaussian:sigma=0.5"


@app.command()
@example(
    "vauban bench certify",
    "vauban bench certify --model resnet18:channels=3,classes=10 --rows 50",
    "vauban bench certify --table networks --table smoothings --precision bf16 --compile --seconds 2 --out votes.jsonl",
)
def certify(
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="architecture, random weights; repeatable")
    ] = None,
    smoothing: common.SmoothingOption = _SMOOTHING,
    rows: Annotated[int | None, typer.Option(min=1, help="compute shape, views per forward pass [by size]")] = None,
    seconds: Annotated[float, typer.Option(help="seconds for each variant of each model")] = 20.0,
    batch: Annotated[str, typer.Option(help="how many compute shapes are prepared ahead")] = "auto",
    device: common.DeviceOption = "auto",
    precision: common.PrecisionOption = "fp32",
    backend: common.BackendOption = None,
    compile: common.CompileOption = False,
    tune: common.TuneOption = False,
    table: Annotated[
        list[str] | None, typer.Option(help="a whole table, networks or smoothings (sampled and exact); repeatable")
    ] = None,
    size: Annotated[int | None, typer.Option(min=1, help="side of the pictures of --table [by network]")] = None,
    within: Annotated[
        float | None,
        typer.Option(help="seconds: no later row begins; one that has begun is finished (GPU: ended 30 s on)"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="append the rows of --table to this file as they come")] = None,
    json: common.JsonOption = False,
) -> None:
    """Votes per second: bare forward passes, the usual loop of published scripts, and Vauban."""
    from vauban.bench.certify import measure
    from vauban.cli.build import read_in_flight

    where, how = common.pick_device(device), "tuned" if tune else compile
    of_tables = {"--size": (size, None), "--within": (within, None), "--out": (out, None)}
    refuse_unread(table, of_tables, {"--smoothing": (smoothing, _SMOOTHING), "--batch": (batch, "auto")})
    if table:
        setting = {"precision": precision, "compile": how, "seconds": seconds, "rows": rows, "size": size}
        tables(table, model, within, out, json, device=where, backend=backend, **setting)
        return
    results = []
    for spec in model or ["cnn", "resnet18"]:
        with common.progress(f"measuring {spec}", 3 * int(seconds), "s", json) as advance:
            results.append(
                measure(
                    spec,
                    smoothing,
                    rows,
                    seconds,
                    read_in_flight(batch),
                    where,
                    advance,
                    precision,
                    how,
                    backend,
                )
            )
    if json:
        common.print_json(results)
        return
    lines = [
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
    compiled = {False: "", True: ", compiled", "tuned": ", compiled and tuned"}[results[0]["compiled"]]
    run_by = "" if results[0]["backend"] == "torch" else f", Vauban by {results[0]['backend']}, bare by torch"
    how = f"{results[0]['threads']} threads, {precision}{compiled}{run_by}"
    common.print_table(
        headers, lines, title=f"{smoothing} on {results[0]['device']}, {how}; the loop in fp32 as published"
    )


@app.command()
@example("vauban bench exact", "vauban bench exact --smoothing band:size=4 --model resnet18")
def exact(
    smoothing: Annotated[
        list[str] | None, typer.Option("--smoothing", "-s", help="an exact smoothing; repeatable [all]")
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="architecture, random weights")] = "cnn",
    rows: Annotated[int | None, typer.Option(min=1, help="compute shape, views per forward pass [by size]")] = None,
    seconds: Annotated[float, typer.Option(help="seconds for each variant of each smoothing")] = 10.0,
    device: common.DeviceOption = "auto",
    json: common.JsonOption = False,
) -> None:
    """Votes per second where every view votes: bare forward passes, one position at a time, and Vauban."""
    from vauban.bench.exact import SMOOTHINGS, measure

    where = common.pick_device(device)
    results = []
    for spec in smoothing or SMOOTHINGS:
        with common.progress(f"measuring {spec}", 3 * int(seconds), "s", json) as advance:
            results.append(measure(model, spec, rows, seconds, where, advance))
    if json:
        common.print_json(results)
        return
    table = [
        [
            f"{r['smoothing']}, {r['views']:,} views",
            *(f"{r[variant]:,.0f}" for variant in ("bare", "loop", "vauban")),
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
    """Seconds for 10,000 top-3 radii from counts at ImageNet size, compared with a loop over inputs."""
    from vauban.bench.certificates import SMOOTHINGS, measure

    results = []
    specs = smoothing or SMOOTHINGS
    with common.progress("measuring", len(specs), "laws", json) as advance:
        for spec in specs:
            results.append(measure(spec, inputs))
            advance(1)
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
    """Seconds to choose the pixels that views keep, compared with a loop that draws one kept pixel at a time."""
    from vauban.bench.ablation import measure

    result = measure(views, pixels, retained)
    if json:
        common.print_json(result)
        return
    title = f"{views:,} views that keep {retained:,} of {pixels:,} pixels"
    row = [f"{result['at_once']:.3f}", f"{result['loop']:.3f}", f"{result['loop'] / result['at_once']:.0f}x"]
    common.print_table([title, "Vauban, s", "loop, s", "faster"], [["choosing the pixels", *row]])


@app.command()
@example(
    "vauban bench votes probabilities.txt --smoothing gaussian:sigma=0.25",
    "vauban bench votes probabilities.txt --smoothing gaussian:sigma=0.25 --radii 0.25,0.5 --step 0.25 --json",
)
def votes(
    file: Annotated[Path, typer.Argument(help="the label's probability of each input, one number per line")],
    smoothing: common.SmoothingOption = "gaussian:sigma=0.25",
    n: Annotated[
        int, typer.Option("-n", min=1, help="votes per input: of the fixed test; at most, of the others")
    ] = 100_000,
    alpha: Annotated[float, typer.Option(help="failure probability allowed per input")] = 0.001,
    k: common.KOption = 1,
    radii: Annotated[str | None, typer.Option(help="target radii, separated by commas [1, 2 and 3 scales]")] = None,
    step: Annotated[float | None, typer.Option(help="step of the grid of radii [the scale of the noise]")] = None,
    trials: Annotated[int | None, typer.Option(min=2, help="simulated polls of all inputs [by their number]")] = None,
    seed: Annotated[int, typer.Option(help="seed of the simulation")] = 0,
    json: common.JsonOption = False,
) -> None:
    """Votes per input of every stopping policy, compared with the fixed test, on the label probabilities of real inputs."""
    from vauban.bench.votes import measure, polls_for, read_probabilities
    from vauban.report.numbers import asked_radius, percent
    from vauban.report.summary import parse_radii

    probabilities = read_probabilities(file)
    polls = trials or polls_for(len(probabilities))
    with common.progress(f"polling {len(probabilities)} inputs", polls, "polls", json) as advance:
        results = measure(
            probabilities,
            smoothing,
            n=n,
            alpha=alpha,
            k=k,
            radii=parse_radii(radii),
            step=step,
            trials=polls,
            seed=seed,
            on_progress=advance,
        )
    if json:
        common.print_json(results)
        return
    rows, before = [], ""
    for r in results:
        cost = (
            [f"{r['votes']:,.0f} ± {r['votes_error']:,.0f}", f"{r['fewer']:.1f}x"] if r["stop"] != before else ["", ""]
        )
        certified = [percent(r["certified"]), percent(r["fixed"])]
        rows.append([r["stop"] if r["stop"] != before else "", asked_radius(r["radius"]), *certified, *cost])
        before = r["stop"]
    headers = ["stop", "radius", "certified", f"by {n:,} votes", "votes per input", "fewer"]
    title = (
        f"{len(probabilities)} inputs of {file.name}, {smoothing}, top {k}, alpha {alpha}, {polls:,} polls simulated"
    )
    common.print_table(headers, rows, title=title)


@app.command()
@example("vauban bench poison", "vauban bench poison --partitions 1200 --trained 50 --in-loop 3 --device cpu")
def poison(
    data: common.DataOption = "mnist",
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="how many parts")] = 1_200,
    trained: Annotated[
        int | None, typer.Option(min=1, help="train this many together [all on a GPU, 50 on a CPU]")
    ] = None,
    in_loop: Annotated[int, typer.Option(min=1, help="train this many one after another")] = 5,
    steps: Annotated[int | None, typer.Option(min=1, help="steps of each [the recipe's]")] = None,
    device: common.DeviceOption = "auto",
    json: common.JsonOption = False,
) -> None:
    """Seconds to train the base classifiers of partitions together, compared with one after another in a usual loop."""
    from vauban.bench.poison import measure
    from vauban.data import load
    from vauban.data.registry import with_split
    from vauban.poisoning.partitioning.samples import training_labels

    where = common.pick_device(device)
    if where == "cpu":
        trained = min(trained or 50, partitions)
    loaded = load(with_split(data, "train"))
    labels = training_labels(loaded.images, loaded.labels)
    total = (trained or partitions) + 2 * in_loop
    with common.progress("training", total, "base classifiers", json) as on_progress:
        r = measure(
            loaded.images,
            labels,
            partitions,
            in_loop=in_loop,
            trained=trained,
            steps=steps,
            device=where,
            on_progress=on_progress,
        )
    if json:
        common.print_json(r)
        return
    names = {"together": "Vauban", "loop": "loop", "prepared": "loop, views made beforehand"}
    rows = [
        [
            name,
            f"{r['seconds_each'][method]:.4f}",
            f"{r['seconds_each'][method] * r['trained']:,.1f}",
            f"{r['accuracy'][method]:.1%}",
            f"{r['seconds_each'][method] / r['seconds_each']['together']:,.1f}x",
        ]
        for method, name in names.items()
    ]
    headers = ["seconds", "each", f"for {r['trained']:,}", "base accuracy", "to Vauban"]
    title = (
        f"{partitions:,} partitions, {r['steps']} steps, {in_loop} in the loops, {r['device']}, {r['threads']} threads"
    )
    common.print_table(headers, rows, title=title)


@app.command()
@example("vauban bench rl", "vauban bench rl --algo ddpg --env DriveSeek-v0 --batch 64")
def rl(
    algo: Annotated[str | None, typer.Option(help="ddpg, sac or dqn [all three, on their toy environments]")] = None,
    env: Annotated[str, typer.Option(help="environment for --algo")] = "ContinuousSeek-v0:dim=20",
    batch: Annotated[int, typer.Option(min=1, help="transitions per update")] = 256,
    goal_weight: Annotated[float, typer.Option(help="alpha, weight of the gradient loss")] = 0.2,
    seconds: Annotated[float, typer.Option(help="seconds for each variant of each agent")] = 10.0,
    device: common.DeviceOption = "auto",
    json: common.JsonOption = False,
) -> None:
    """Milliseconds per update: the library's agent, Vauban's without the gradient loss, and with it."""
    from vauban.bench.rl import PAIRS, measure

    where = common.pick_device(device)
    results = []
    for name, environment in [(algo, env)] if algo else PAIRS:
        with common.progress(f"measuring {name}", 3 * int(seconds), "s", json) as advance:
            results.append(measure(name, environment, batch, goal_weight, seconds, where, advance))
    if json:
        common.print_json(results)
        return
    rows = [
        [
            f"{r['algo']} on {r['env']}",
            *(f"{r[variant]:.2f}" for variant in ("library_ms", "plain_ms", "vauban_ms")),
            *(f"{r[ratio]:.2f}x" for ratio in ("overhead", "overhead_to_plain")),
        ]
        for r in results
    ]
    headers = ["ms per update", "(a) library", "(b) alpha 0", f"(c) alpha {goal_weight:g}", "c / a", "c / b"]
    common.print_table(headers, rows, title=f"batch {batch} on {results[0]['device']}, {results[0]['threads']} threads")


@app.command()
@example(
    "vauban bench cluster", "vauban bench cluster --model resnet18 --on ray:address=10.0.0.1:6379 --picture cluster.png"
)
def cluster(
    model: Annotated[str, typer.Option("--model", "-m", help="architecture, random weights")] = "cnn",
    smoothing: common.SmoothingOption = "gaussian:sigma=0.5",
    workers: Annotated[int, typer.Option(min=2, help="how many workers to compare with one")] = 2,
    threads: Annotated[int, typer.Option(min=1, help="threads of this process and of each worker")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="how often each variant is measured")] = 5,
    seconds: Annotated[float, typer.Option(help="seconds for each variant in each round")] = 5.0,
    start: Annotated[float, typer.Option(help="for the estimate: seconds until GPUs vote, with compilation")] = 120.0,
    device: common.DeviceOption = "cpu",
    on: Annotated[str, typer.Option(help="ray, or ray:address=host:port")] = "ray",
    picture: Annotated[Path | None, typer.Option(help="draw it: .png, .pdf or .svg")] = None,
    json: common.JsonOption = False,
) -> None:
    """Votes per second of one worker on a Ray cluster and of several, the cost of sending blocks, and an estimate for GPUs."""
    import torch

    from vauban.bench.cluster import draw, estimate, measure
    from vauban.cli.build import check_out

    if picture is not None:
        check_out(picture)
    where = common.pick_device(device)
    torch.set_num_threads(threads)
    with common.progress("measuring", rounds, "rounds", json) as advance:
        r = measure(
            model, smoothing, on=on, workers=workers, rounds=rounds, seconds=seconds, device=where, on_progress=advance
        )
    costs = {"seconds_a_block": r["block_busy_seconds"], "writer_tallies": r["writer_tallies"], "start": start}
    estimates = [estimate(2**power, **costs) for power in range(13)]
    if picture is not None:
        draw(picture, r, estimates)
    if json:
        common.print_json({**r, "estimates": estimates})
        return
    rows = [
        ["this process, votes/s", f"{r['here']:,.0f}"],
        ["1 worker, votes/s", f"{r['one']:,.0f}"],
        [f"{workers} workers, votes/s", f"{r['all']:,.0f}"],
        ["1 worker to this process", f"{r['one_to_here']:.3f}"],
        [f"efficiency of {workers} workers", f"{r['efficiency']:.3f}"],
        ["start of the workers, s", f"{r['start_seconds']:.1f}"],
        ["sending out a block, ms", f"{1e3 * r['block_seconds']:.2f}"],
        ["of it, CPU time of this process, ms", f"{1e3 * r['block_busy_seconds']:.2f}"],
        ["tallies written per second", f"{r['writer_tallies']:,.0f}"],
    ]
    about = f"{model} at {r['rows']} rows on {r['device']}, {r['threads']} threads each"
    common.print_table(["measured", ""], rows, title=about)
    table = [
        [f"{e['gpus']:,.0f}", *(f"{e[part]:,.1f}" for part in ("start", "voting", "writing", "seconds"))]
        for e in estimates
        if e["gpus"] in (1, 8, 64, 512, 4096)
    ]
    common.print_table(
        ["GPUs", "start, s", "voting, s", "sending and writing, s", "total, s"], table, title="estimated"
    )
