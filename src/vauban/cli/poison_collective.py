"""vauban poison collective: how many answers one poisoning can change in all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vauban.cli import common
from vauban.cli.common import example
from vauban.errors import BadInput


@example(
    "vauban poison collective runs/dpa --budget 100,200,400",
    "vauban poison collective runs/dpa --budget 100 -k 2 --solver-seconds 60",
)
def collective(
    run: Annotated[Path, typer.Argument(help="run folder of vauban poison certify --keep-votes")],
    budget: Annotated[str, typer.Option("--budget", "-b", help="sizes of the poisoning, separated by commas")],
    k: Annotated[int | None, typer.Option("-k", help="labels among the top k [as the run]", show_default=False)] = None,
    of: Annotated[
        str | None,
        typer.Option(help="correct: correctly answered inputs; answers: all that are not abstained [correct]"),
    ] = None,
    solver_seconds: Annotated[
        float, typer.Option(min=0, help="seconds a budget for an integer programme, which may prove less change")
    ] = 0.0,
    json: common.JsonOption = False,
) -> None:
    """Bound how many labels one and the same poisoning can change, from the votes in a run folder.

    A certificate says that no poisoning within the radius changes that input's label. One poisoning cannot reach every input
    at its worst, so fewer labels change in all than have a smaller radius. The claims for all budgets hold at once.
    """
    from vauban.poisoning.votes.collective import PROOFS
    from vauban.poisoning.votes.poisoning_run import PoisoningRun
    from vauban.runs.run import Run

    budgets = _budgets(budget)
    opened = Run.open(run)
    if not isinstance(opened, PoisoningRun):
        raise BadInput(f"{run} is a smoothing run: votes on partitions of a training set are needed here")
    claims = [opened.collective(size, k=k, of=of, solver_seconds=solver_seconds) for size in budgets]
    if json:
        common.print_json({"run": str(run), "claims": [claim.summary() for claim in claims]})
        return
    first = claims[0]
    rows = [
        [f"{claim.budget:,}", f"{claim.claimed - claim.one_by_one:,}", f"{claim.kept:,}", claim.proof]
        for claim in claims
    ]
    which = "correct answers" if first.of == "correct" else "answers"
    title = f"{opened.title}: {first.claimed:,} {which} of {first.inputs:,} inputs"
    common.print_table(["budget", "kept, one by one", "kept, one poisoning", "proof"], rows, title=title)
    typer.echo(claims[-1].claim)
    for proof in dict.fromkeys(claim.proof for claim in claims):
        typer.echo(f"{proof}: {PROOFS[proof]}")
    if opened.votes.ballots is None:
        typer.echo(
            "note: this run keeps counts, which do not say which base classifier voted for what; a run of vauban poison certify "
            "--keep-votes can prove more"
        )


def _budgets(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) >= 1 for part in parts):
        raise BadInput(f"--budget {text}: whole numbers from 1 are needed, separated by commas, for example 100,200")
    return [int(part) for part in parts]
