"""What `vauban verify --replay` does and prints, for smoothing and for poisoning runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vauban.cli import common
from vauban.errors import BadInput

if TYPE_CHECKING:
    from vauban.poisoning.part_replay import PartsReplay
    from vauban.replay import Replay


_DRAWN = 20  # inputs or parts, unless a number is given


def replay(
    run: Path,
    *,
    smoothing: dict[str, Any],
    poisoning: dict[str, Any],
    everything: bool,
    data: str | None,
    device: str,
    quiet: bool,
) -> Replay | PartsReplay:
    """Replay a run of either kind, or `everything` of it; options of the other kind are refused."""
    from vauban.runs.manifest import read_raw

    kind = read_raw(run).get("kind", "smoothing")
    foreign = smoothing if kind == "poisoning" else poisoning
    given = [f"--{name}" for name, value in foreign.items() if value is not None]
    if given:
        raise BadInput(f"{given[0]} is not for a {kind} run: see vauban verify --help for what --replay takes")
    where = common.pick_device(device)
    if kind == "poisoning":
        from vauban.cli.poison_output import progress_bars
        from vauban.poisoning.part_replay import replay_parts

        poisoning["parts"] = None if everything else poisoning["parts"] or _DRAWN
        return replay_parts(run, data=data, device=where, progress=progress_bars(run, quiet), **poisoning)
    smoothing["inputs"] = None if everything else smoothing["inputs"] or _DRAWN
    return _replay_inputs(run, data=data, device=where, quiet=quiet, **smoothing)


def _replay_inputs(
    run: Path, *, model: str | None, weights: str | None, inputs: int | None, data: str | None, device: str, quiet: bool
) -> Replay:
    from vauban.data import load
    from vauban.replay import replay
    from vauban.runs import manifest as manifests

    manifest = manifests.read(run)
    spec = common.run_data(run, manifest.data, data)
    _, loaded = common.run_model(run, manifest.model, model, weights, device)
    try:
        whole = load(spec, stream=True)
    except BadInput as problem:
        if data is not None:
            raise
        raise BadInput(f"the data of the run cannot be read: {problem}. Where it lies now is said by --data") from None
    return replay(run, loaded, whole, inputs=inputs, device=device, progress=not quiet)


def show(replayed: Replay | PartsReplay) -> None:
    """Print what a replay found, and what it leaves open."""
    from vauban.replay import Replay

    if isinstance(replayed, Replay):
        _show_inputs(replayed)
    else:
        _show_parts(replayed)


def _show_inputs(replayed: Replay) -> None:
    rounding = replayed.rounding
    but, beyond = ("", "") if rounding is None else (", but for near ties", " elsewhere than there")
    drawn = len(replayed.replayed)
    some = (
        f" If votes of more than {replayed.altered} inputs had been altered{beyond}, this would have failed with probability "
        "0.99 or more; of an input that was not drawn it says nothing."
    )
    typer.echo(
        f"Replayed: all {replayed.votes:,} votes of {drawn} of {replayed.inputs} inputs are those in the folder{but}."
        f"{some if drawn < replayed.inputs else ''}"
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


def _show_parts(replayed: PartsReplay) -> None:
    typer.echo(
        f"Replayed: {len(replayed.replayed)} of {replayed.models} base classifiers, trained again on their parts, cast the "
        f"{replayed.votes:,} votes of the run. If more than {replayed.altered} had been altered, this would have failed with "
        "probability 0.99 or more."
    )
    if replayed.altered:
        radii = sorted(radius for radius in replayed.radii if radius is not None)
        median = f", the median radius among them being {radii[len(radii) // 2]}" if radii else ""
        typer.echo(
            f"Each altered one could take 2 from every margin. If {replayed.altered} were, {replayed.remaining} of "
            f"{replayed.claims} claims would remain{median}; with --parts larger, more do."
        )
    if replayed.features_trusted:
        typer.echo("The features that all parts share were taken from the ensemble as they are, not learned again.")
