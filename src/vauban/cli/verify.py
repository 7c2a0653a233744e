"""vauban verify: recompute every claim of a run and stop at the first lie."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vauban.cli import common
from vauban.cli.common import example


@example("vauban verify runs/mnist")
def verify(
    run: Annotated[Path, typer.Argument(help="run folder")],
    json: common.JsonOption = False,
) -> None:
    """Recompute every claim from the tallies; check hashes, counts and manifest. Needs no model.

    Exit codes: 0 all holds, 1 a lie was found, 2 not a run, 3 the run is not finished.
    """
    from vauban.verify import verify_run

    verdict = verify_run(run)
    if json:
        common.print_json({"run": str(run), "inputs": verdict.inputs, "votes": verdict.votes, "claim": verdict.claim})
    else:
        typer.echo(
            f"{run}: {verdict.inputs} claims recomputed from {verdict.votes:,} votes; all hold.\n{verdict.claim}"
        )
