"""vauban rl: train goal-conditioned agents, compare and plot their learning curves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vauban.cli import common
from vauban.cli.common import example

app = typer.Typer(
    help="Robustness to new goals: agents whose goal is given at test time (ReenGAGE).",
    no_args_is_help=True,
    rich_markup_mode=None,
)

RunsArgument = Annotated[
    list[Path], typer.Argument(help="run folders of vauban rl train", exists=True, file_okay=False)
]

UntilOption = Annotated[
    int | None, typer.Option(min=0, help="only evaluations up to this step, to compare runs of different length [all]")
]


@app.command()
@example(
    "vauban rl train --algo reengage-ddpg --env ContinuousSeek-v0:dim=20 --seeds 5 --out runs/seek",
    "vauban rl train --algo ddpg --env ContinuousSeek-v0:dim=20 --seeds 5 --out runs/seek-ddpg",
    "vauban rl train --algo multi-reengage-ddpg --env DriveSeek-v0 --goal-weight 0.2 --out runs/drive",
    "vauban rl train --algo reengage-robot-ddpg --env HandReach-v3 --goal-weight 1e-5 --seeds 3 --out runs/hand",
)
def train(
    out: Annotated[Path, common.folder_option("run folder; an interrupted training is resumed")],
    algo: Annotated[
        str,
        typer.Option(
            help="ddpg, sac, dqn or robot-ddpg, reengage-ddpg, -sac, -dqn or -robot-ddpg, multi-reengage-ddpg"
        ),
    ],
    env: Annotated[str, typer.Option(help="Name-v0:key=value,…: Vauban's, another package's, or Gymnasium's")],
    seeds: Annotated[int, typer.Option(min=1, help="how many seeds: 0, 1, …")] = 5,
    steps: Annotated[int | None, typer.Option(min=1, help="environment steps [the environment's own number]")] = None,
    goal_weight: Annotated[float | None, typer.Option(help="alpha, weight of the gradient loss [0.2]")] = None,
    settings: Annotated[
        str, typer.Option("--set", help="the agent's other settings, key=value,… [those of the thesis]")
    ] = "",
    every: Annotated[
        int | None, typer.Option(min=1, help="steps between evaluations [the environment's own number]")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="episodes of an evaluation [the environment's own number]")
    ] = None,
    envs: Annotated[
        int | None, typer.Option(min=1, help="copies of the environment of one agent [1; robots 38]")
    ] = None,
    label: Annotated[str | None, typer.Option(help="name in tables and pictures [algorithm]")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="seeds trained in parallel [one per core]")] = None,
    together: Annotated[
        bool,
        typer.Option("--together", help="all seeds as one batched program, fast on a GPU"),
    ] = False,
    precision: Annotated[
        str,
        typer.Option(
            help="fp32; with --together on a GPU tf32, or bf16: encoders of goal sets and pictures in bfloat16"
        ),
    ] = "fp32",
    device: Annotated[str, typer.Option(help="cpu, cuda or auto")] = "cpu",
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="also write TensorBoard logs")] = False,
    json: common.JsonOption = False,
) -> None:
    """Train an agent with several seeds, and write a curve of success against steps for each.

    Ctrl-C writes a checkpoint of the seeds in training; the same command resumes them and skips complete ones. With --together
    all seeds share one random generator: another number of seeds gives other curves.
    """
    import os

    from vauban.errors import BadInput
    from vauban.files import locked
    from vauban.rl.batched_seeds import check_batched, train_batched
    from vauban.rl.curves import read_run
    from vauban.rl.recipes import make_agent, read_settings
    from vauban.rl.recipes import plan as make_plan
    from vauban.rl.seeds import train_seeds, workers_each
    from vauban.rl.training import open_run

    own: dict[str, Any] = read_settings(settings)
    if goal_weight is not None:
        if "reengage" not in algo:
            raise BadInput(f"--goal-weight belongs to the reengage algorithms; {algo} has no gradient loss")
        own["goal_weight"] = goal_weight
    plan = make_plan(algo, env, own, steps, every, episodes, precision, together, envs)
    if precision != "fp32" and not together:
        raise BadInput(f"--precision {precision} needs --together: without it agents compute in fp32")
    if tensorboard and together:
        raise BadInput("--tensorboard with --together: a batched training writes no TensorBoard logs")
    where = common.pick_device(device)
    if precision == "tf32" and not where.startswith("cuda"):
        raise BadInput(f"--precision tf32 is an arithmetic of NVIDIA GPUs, not of {where}: use fp32")
    if together:
        check_batched(plan)
    elif not out.exists():
        make_agent(plan, 0, where)
    open_run(out, plan, label or (f"{algo}, alpha {own['goal_weight']:g}" if "goal_weight" in own else algo))
    at_once = min(seeds, jobs or len(os.sched_getaffinity(0)))
    with locked(out), common.progress(f"training {algo}", seeds * plan.steps, "steps", json) as on_progress:
        if together:
            done = train_batched(out, plan, list(range(seeds)), device=where, on_progress=on_progress)
        else:
            done = train_seeds(
                out,
                plan,
                list(range(seeds)),
                jobs=at_once,
                workers=workers_each(env, at_once),
                device=where,
                tensorboard=tensorboard,
                on_progress=on_progress,
            )
    if not done:
        raise KeyboardInterrupt
    _print_areas([read_run(out)], json)


@app.command()
@example("vauban rl evaluate runs/seek-ddpg runs/seek", "vauban rl evaluate runs/seek --episodes 200")
def evaluate(
    runs: RunsArgument,
    until: UntilOption = None,
    episodes: Annotated[int, typer.Option(min=0, help="also play this many episodes with the trained agents")] = 0,
    json: common.JsonOption = False,
) -> None:
    """Print the areas under the learning curves: mean and interquartile mean (IQM) over seeds, the spread, and a 95 % bootstrap
    interval of the mean and of what it is above the first run's, where both are of the same environment and length."""
    from vauban.rl.curves import read_run

    curves = [read_run(run) if until is None else read_run(run).until(until) for run in runs]
    played = (
        [_play(run, list(curve.seeds), episodes) for run, curve in zip(runs, curves, strict=True)] if episodes else None
    )
    _print_areas(curves, json, played)


@app.command()
@example("vauban rl plot runs/seek-ddpg runs/seek --out seek.png")
def plot(
    runs: RunsArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="plot, .png, .pdf or .svg")],
    title: Annotated[str | None, typer.Option(help="[the environment]")] = None,
    until: UntilOption = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="also the perfect greedy agent, where there is one")] = False,
) -> None:
    """Plot success, or for sets of goals how many are reached, against steps: mean over seeds and one standard deviation."""
    from vauban.errors import BadInput
    from vauban.rl.curves import draw, read_run
    from vauban.rl.evaluating import greedy_levels

    curves = [read_run(run) if until is None else read_run(run).until(until) for run in runs]
    levels = greedy_levels([curve.env for curve in curves]) if greedy else {}
    if out.suffix not in (".png", ".pdf", ".svg"):
        raise BadInput(f"--out {out}: a name that ends in .png, .pdf or .svg is needed")
    draw(out, curves, title=title or curves[0].env, levels=levels)
    typer.echo(str(out))


def _play(run: Path, seeds: list[int], episodes: int) -> float:
    import numpy as np

    from vauban.errors import BadInput
    from vauban.rl.curves import curve_file, read_manifest
    from vauban.rl.evaluating import evaluate as score
    from vauban.rl.training import load_agent

    manifest = read_manifest(run)
    trained = [seed for seed in seeds if curve_file(run, seed).with_suffix(".zip").exists()]
    if not trained:
        raise BadInput(f"{run} holds curves, but no trained agents that could play: leave --episodes out")
    column = 1 if manifest["score"] == "reward" else 0
    agents = {seed: load_agent(run, manifest["algo"], manifest["env"], seed) for seed in trained}
    return float(np.mean([score(agent, manifest["env"], episodes, seed)[column] for seed, agent in agents.items()]))


def _interval(ends: list[float] | None) -> str:
    return "" if ends is None else f"{ends[0]:.3f} to {ends[1]:.3f}"


def _gains(curves: list[Any]) -> list[list[float] | None]:
    """How far the area of each run is above that of the first, and the ends of its interval; None where they do not compare."""
    from vauban.rl.statistics import difference

    first, found = curves[0], []
    for curve in curves:
        alike = (curve.env, curve.what, curve.steps[-1]) == (first.env, first.what, first.steps[-1])
        several = min(len(curve.seeds), len(first.seeds)) > 1
        gain = difference([curve.areas], [first.areas]) if alike and several and curve is not first else None
        found.append(None if gain is None else [gain.value, gain.low, gain.high])
    return found


def _print_areas(curves: list[Any], json: bool, played: list[float] | None = None) -> None:
    lines = [{**curve.summary(), "gain": gain} for curve, gain in zip(curves, _gains(curves), strict=True)]
    if played is not None:
        lines = [{**line, "played": value} for line, value in zip(lines, played, strict=True)]
    if json:
        common.print_json(lines)
        return
    columns: dict[str, Any] = {
        "run": lambda line: line["run"],
        "environment": lambda line: line["env"],
        "seeds": lambda line: f"{line['seeds']}",
        "steps": lambda line: f"{line['steps']:,}",
        "area under curve": lambda line: f"{line['area']:.3f}",
        "95 %": lambda line: _interval(line["interval"]),
        "IQM": lambda line: f"{line['iqm']:.3f}",
        "spread": lambda line: f"{line['spread']:.3f}",
        "at the end": lambda line: f"{line['last']:.3f}",
        "seconds per seed": lambda line: f"{line['seconds']:,.0f}",
    }
    if any(line["gain"] for line in lines):
        columns["above the first"] = lambda line: (
            f"{line['gain'][0]:+.3f}, {_interval(line['gain'][1:])}" if line["gain"] else ""
        )
    if played is not None:
        columns["played again"] = lambda line: f"{line['played']:.3f}"
    common.print_table(list(columns), [[cell(line) for cell in columns.values()] for line in lines])
