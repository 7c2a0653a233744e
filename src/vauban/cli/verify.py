"""vauban verify: recomputes every claim of a run and stops at the first contradiction."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vauban.cli import common
from vauban.cli.common import example

if TYPE_CHECKING:
    from vauban.data import Dataset
    from vauban.poisoning.part_replay import PartsReplay
    from vauban.replay import Replay


@example(
    "vauban verify runs/mnist",
    "vauban verify runs/mnist --data mnist:split=test",
    "vauban verify runs/announced --announced HASH --nonce NONCE --replay --all",
    "vauban verify runs/mnist --replay --model model.safetensors --data mnist:split=test --inputs 20",
    "vauban verify runs/dpa --replay --ensemble ens/ --parts 20",
)
def verify(
    run: Annotated[Path, typer.Argument(help="run folder")],
    replay: Annotated[bool, typer.Option("--replay", help="cast the votes of some inputs again and compare")] = False,
    model: common.ModelOption = None,
    weights: common.WeightsOption = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            help="the whole data set: the manifest's rule of selection must give the run's inputs [--replay: the manifest's]",
        ),
    ] = None,
    announced: Annotated[
        str | None, typer.Option(help="the hash that was published: the run must be that one, with --nonce")
    ] = None,
    nonce: Annotated[str | None, typer.Option(help="with --announced: the nonce that its source published")] = None,
    inputs: Annotated[
        int | None, typer.Option(min=1, help="with --replay: how many inputs, drawn at random here [20]")
    ] = None,
    all_inputs: Annotated[bool, typer.Option("--all", help="with --replay: every input, or every part")] = False,
    ensemble: Annotated[
        Path | None,
        typer.Option("--ensemble", "-e", help="with --replay, poisoning: folder that vauban poison train wrote"),
    ] = None,
    training: Annotated[
        str | None, typer.Option(help="with --replay, poisoning: the training set [the manifest's]", show_default=False)
    ] = None,
    parts: Annotated[
        int | None, typer.Option(min=1, help="with --replay, poisoning: how many parts to train again [20]")
    ] = None,
    trust: Annotated[
        list[str] | None,
        typer.Option(help="with --replay, poisoning: a type that skops files of the ensemble may hold"),
    ] = None,
    device: common.DeviceOption = "auto",
    json: common.JsonOption = False,
) -> None:
    """Recompute every claim from the votes; check hashes, counts and manifest. Needs no model.

    This proves that the claims follow from the votes in the folder. --data also checks how the inputs were selected, --announced
    and --nonce that this is the run that was announced, --replay checks votes against the model, or, of a
    poisoning run, against parts of the training set.
    Exit codes: 0 all claims follow from the votes, 1 something is wrong, 2 not a run, 3 the run is not finished.
    """
    from vauban.runs.verify import verify_run

    _refuse_folder_of_results(run)
    smoothing = {"model": model, "weights": weights, "inputs": inputs}
    poisoning = {"ensemble": ensemble, "training": training, "parts": parts, "trust": trust or None}
    if not replay:
        _refuse_unused({**smoothing, **poisoning, "all": all_inputs or None})
    given = None if data is None else _selected(run, data, replay)
    verdict = verify_run(run, announced=announced, nonce=nonce, data=given)
    replayed: Replay | PartsReplay | None = None
    if replay:
        from vauban.cli import replaying

        replayed = replaying.replay(
            run,
            smoothing=smoothing,
            poisoning=poisoning,
            everything=all_inputs,
            data=data,
            device=device,
            quiet=json,
        )
    if json:
        origin = (
            None if verdict.origin is None else {"package": verdict.origin.package, "version": verdict.origin.version}
        )
        found = {"run": str(run), "inputs": verdict.inputs, "votes": verdict.votes, "claim": verdict.claim}
        found |= {"law_from": origin, "optional": verdict.optional, "extensions": verdict.extensions}
        found |= {"extending": verdict.extending, "seed": verdict.seed, "selection": verdict.selection}
        found |= {"underived": verdict.underived}
        common.print_json(
            found | {"unproven": verdict.unproven, "replay": None if replayed is None else asdict(replayed)}
        )
        return
    typer.echo(
        f"{run}: {verdict.inputs} claims recomputed from {verdict.votes:,} votes; all hold: they follow from the votes."
    )
    typer.echo(common.printable(verdict.claim))
    if verdict.origin is not None:
        typer.echo(
            f"The law comes from {verdict.origin.package} {verdict.origin.version}: these claims depend on its own proof."
        )
    for n in verdict.extensions:
        typer.echo(
            f"Extended to {n:,} votes: claims-{n}.csv is another claim at its own alpha; the claims at the run's n and at every "
            "doubling of it up to here fail together with probability at most the sum of their alphas."
        )
    if verdict.extending is not None:
        typer.echo(
            f"The run is being extended to {verdict.extending:,} votes and that is not finished: nothing is claimed at that "
            f"number yet. The same certify command with --extend {verdict.extending} finishes it."
        )
    if verdict.optional:
        typer.echo(f"Also recorded: {common.printable(', '.join(verdict.optional))}")
    if replayed is not None:
        replaying.show(replayed)
    if verdict.selection is not None:
        typer.echo(f"The inputs are {verdict.selection}.")
    if announced is not None:
        typer.echo(f"This is the run that was announced as {announced}, with the nonce {nonce}.")
    typer.echo("What the folder cannot prove by itself:")
    for line in verdict.unproven[1 if replayed is not None else 0 :]:
        typer.echo(f"  {common.printable(line)}")
    if verdict.underived:
        typer.echo("What does not follow from the votes:")
    for line in verdict.underived:
        typer.echo(f"  {common.printable(line)}")


def _refuse_folder_of_results(folder: Path) -> None:
    """Refuse a folder that vauban reproduce wrote, in which runs have folders of their own."""
    from vauban.errors import RunRefused
    from vauban.reproduce.steps import RUNS
    from vauban.runs.manifest import FILE, has_manifest

    within = sorted(run for run in (folder / RUNS).glob("*") if has_manifest(run))
    if within and not has_manifest(folder):
        count = "1 run is" if len(within) == 1 else f"{len(within)} runs are"
        raise RunRefused(f"{folder} is not a run: it has no {FILE}; {count} in {folder / RUNS}: verify {within[0]}")


def _refuse_unused(options: dict[str, object]) -> None:
    """Refuse options of --replay where it is not given."""
    from vauban.errors import BadInput

    given = [name for name, value in options.items() if value is not None]
    if given:
        raise BadInput(
            f"--{given[0]} is for --replay, which is not given: add it to cast votes again, or leave --{given[0]} out"
        )


def _selected(run: Path, spec: str, replay: bool) -> Dataset | None:
    """The data set, as far as the run's selection needs it; None for the replay of a poisoning run, which reads it itself."""
    from vauban.data import load, load_some
    from vauban.runs.manifest import read_raw

    raw = read_raw(run)
    if replay and raw.get("kind") == "poisoning":
        return None
    data = raw.get("data")
    rule = data.get("selection") if isinstance(data, dict) else None
    every, limit = (rule.get("every") or 0, rule.get("limit")) if isinstance(rule, dict) else (0, None)
    seed = rule.get("shuffle") if isinstance(rule, dict) else None
    readable = all(type(number) is int and number >= 1 for number in (every, 1 if limit is None else limit))
    if not readable or not (seed is None or (type(seed) is int and seed >= 0)):
        return load(spec, stream=True)
    return load_some(spec, every, limit, shuffle=seed, stream=True)
