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
    from vauban.replay import Replay


@example(
    "vauban verify runs/mnist",
    "vauban verify runs/mnist --data mnist:split=test",
    "vauban verify runs/announced --announced HASH --nonce NONCE --replay --all",
    "vauban verify runs/mnist --replay --model model.safetensors --data mnist:split=test --inputs 20",
)
def verify(
    run: Annotated[Path, typer.Argument(help="run folder")],
    replay: Annotated[
        bool, typer.Option("--replay", help="cast the votes of some inputs again, with --model and --data, and compare")
    ] = False,
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
    inputs: Annotated[int, typer.Option(min=1, help="with --replay: how many inputs, drawn at random here")] = 20,
    all_inputs: Annotated[bool, typer.Option("--all", help="with --replay: every input")] = False,
    device: common.DeviceOption = "auto",
    json: common.JsonOption = False,
) -> None:
    """Recompute every claim from the votes; check hashes, counts and manifest. Needs no model.

    This proves that the claims follow from the votes in the folder. --data also checks how the inputs were selected, --announced
    and --nonce that this is the run that was announced, --replay checks votes against the model.
    Exit codes: 0 all claims hold, 1 something is wrong, 2 not a run, 3 the run is not finished.
    """
    from vauban.runs.verify import verify_run

    given = None if data is None else _selected(run, data)
    verdict = verify_run(run, announced=announced, nonce=nonce, data=given)
    replayed = _replay(run, model, weights, data, None if all_inputs else inputs, device, json) if replay else None
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
    typer.echo(f"{run}: {verdict.inputs} claims recomputed from {verdict.votes:,} votes; all hold.\n{verdict.claim}")
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
        typer.echo(f"Also recorded: {', '.join(verdict.optional)}")
    if replayed is not None:
        _show_replay(replayed)
    if verdict.selection is not None:
        typer.echo(f"The inputs are {verdict.selection}.")
    if announced is not None:
        typer.echo(f"This is the run that was announced as {announced}, with the nonce {nonce}.")
    typer.echo("What the folder cannot prove by itself:")
    for line in verdict.unproven[1 if replayed is not None else 0 :]:
        typer.echo(f"  {line}")
    if verdict.underived:
        typer.echo("What does not follow from the votes:")
    for line in verdict.underived:
        typer.echo(f"  {line}")


def _selected(run: Path, spec: str) -> Dataset:
    """The data set, as far as the run's selection needs it."""
    from vauban.data import load, load_some
    from vauban.runs.manifest import read_raw

    data = read_raw(run).get("data")
    rule = data.get("selection") if isinstance(data, dict) else None
    every, limit = (rule.get("every") or 0, rule.get("limit")) if isinstance(rule, dict) else (0, None)
    readable = all(type(number) is int and number >= 1 for number in (every, 1 if limit is None else limit))
    return load_some(spec, every, limit) if readable else load(spec)


def _show_replay(replayed: Replay) -> None:
    rounding = replayed.rounding
    typer.echo(
        f"Replayed: all {replayed.votes:,} votes of {len(replayed.replayed)} of {replayed.inputs} inputs are those in the "
        f"folder{'' if rounding is None else ', but for near ties'}. If votes of more than {replayed.altered} inputs had been "
        "altered, this would have failed with probability 0.99 or more; of an input that was not drawn it says nothing."
    )
    if rounding is None:
        return
    typer.echo(
        f"This machine has another arithmetic than the run's: scores of {rounding.views} probe views differ by up to "
        f"{rounding.difference:.2g}. A vote may differ where the best scores are less than {rounding.margin:.2g} apart, ten "
        f"times twice that: {replayed.near:,} of {replayed.votes:,} votes; {replayed.differing:,} do. The factor ten is a "
        "heuristic, not a bound, and votes at such views could have been altered without being found: a machine like the run's "
        "would find them."
    )


def _replay(
    run: Path,
    model: str | None,
    weights: str | None,
    data: str | None,
    inputs: int | None,
    device: str,
    quiet: bool,
) -> Replay:
    from vauban.data import load
    from vauban.errors import BadInput
    from vauban.models import load as load_model
    from vauban.models import packaged
    from vauban.replay import replay
    from vauban.runs import manifest as manifests

    spec = data or manifests.read(run).data.spec
    where = common.pick_device(device)
    chosen = model or packaged(spec)
    if chosen is None:
        raise BadInput("--replay needs the model of the run: give --model")
    return replay(run, load_model(chosen, weights, where), load(spec), inputs=inputs, device=where, progress=not quiet)
