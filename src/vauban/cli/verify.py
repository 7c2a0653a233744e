"""vauban verify: recomputes every claim of a run and stops at the first contradiction."""

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
    """Recompute every claim from the votes; check hashes, counts and manifest. Needs no model.

    Exit codes: 0 all claims hold, 1 something is wrong, 2 not a run, 3 the run is not finished.
    """
    from vauban.runs.verify import verify_run

    verdict = verify_run(run)
    if json:
        origin = (
            None if verdict.origin is None else {"package": verdict.origin.package, "version": verdict.origin.version}
        )
        found = {"run": str(run), "inputs": verdict.inputs, "votes": verdict.votes, "claim": verdict.claim}
        common.print_json(found | {"law_from": origin, "optional": verdict.optional, "extensions": verdict.extensions})
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
    if verdict.optional:
        typer.echo(f"Also recorded: {', '.join(verdict.optional)}")
