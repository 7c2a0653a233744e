"""vauban convert: results between a run folder and the files of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vauban.cli import common
from vauban.cli.common import example

_SHOWN = (0.0, 0.25, 0.5, 1.0)  # radii at which the accuracy that a file states is printed


@example(
    "vauban convert runs/mnist results.tsv                                   (Cohen et al.'s table)",
    "vauban convert runs/mnist counts.txt                                    (Certify_Topk's counts)",
    "vauban convert runs/mnist claims.parquet",
    "vauban convert results.tsv claims.csv",
    "vauban convert checkpoints/cifar_split_derandomized_0.5 counts.txt --smoothing splitting:sigma=0.5",
    "vauban convert evaluations/cifar.pth votes.npz                          (DPA's votes; then vauban claim votes.npz …)",
)
def convert(
    source: Annotated[Path, typer.Argument(help="a run folder, or a file or folder of results")],
    out: Annotated[
        Path, typer.Argument(help="where to write; its ending says what: .csv .parquet .tsv .txt .pth .npz")
    ],
    to: Annotated[
        str | None, typer.Option("--to", help="csv, parquet, cohen, topk, dssn, rs4a, dpa or votes [by the ending]")
    ] = None,
    from_: Annotated[str | None, typer.Option("--from", help="layout of the source [recognised]")] = None,
    threat: Annotated[
        str | None,
        typer.Option(help="what the radii of the source are distances in, where it does not say: l1, l2, linf"),
    ] = None,
    smoothing: Annotated[
        str | None,
        typer.Option("--smoothing", "-s", help="of a DSSN folder: splitting:sigma=0.5, which gives its counts"),
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Write results in another layout: a run for other tools, or their results for Vauban.

    Radii of other tools are copied, not proven: only counts and votes can be claimed again (vauban claim).
    """
    from vauban.errors import BadInput
    from vauban.formats import choice
    from vauban.report.numbers import percent
    from vauban.runs.manifest import has_manifest

    target = to or choice.by_suffix(out)
    of_run = has_manifest(source)
    if of_run:
        given = [name for name, value in (("--from", from_), ("--threat", threat), ("--smoothing", smoothing)) if value]
        if given:
            raise BadInput(f"{given[0]} is for files of other tools, and {source} is a run folder: leave it out")
        results = choice.results_of_run(source, target)
    else:
        results = choice.read(source, from_, threat=threat, smoothing=smoothing)
    notes = [*results.notes, *choice.write(out, results, target)]
    stated = not of_run and results.radius is not None
    if stated:
        notes.append(f"the radii are what {source} states: nothing was derived or verified")
    accuracies = {r: results.accuracy(r) for r in _SHOWN} if stated and results.truth is not None else {}
    if json:
        curve = [{"radius": r, "accuracy": share} for r, share in accuracies.items()]
        common.print_json(
            {"written": str(out), "layout": target, "inputs": len(results), "stated": curve, "notes": notes}
        )
        return
    typer.echo(f"{len(results)} inputs written to {out} ({target})")
    if accuracies:
        shown = ", ".join(f"{percent(share)} at {r:g}" for r, share in accuracies.items())
        typer.echo(f"certified accuracy by {source}: {shown}")
    for note in notes:
        typer.echo(f"note: {note}")
