"""vauban demo: real digits, a real model, real certificates, in about a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vauban.cli import common
from vauban.cli.certify import certify_into
from vauban.cli.common import example
from vauban.cli.show import show_run


@example("vauban demo")
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="run folder")] = Path("runs/demo"),
    json: common.JsonOption = False,
) -> None:
    """Certify 200 MNIST test digits with the packaged model, verify the run and draw its curve."""
    from vauban.cli.asked import assemble
    from vauban.runs.certify import Settings
    from vauban.verify import verify_run

    asked = assemble(
        model=None,
        weights=None,
        data="mnist:split=test",
        smoothing="gaussian:sigma=0.5",
        every=50,
        limit=200,
        device="cpu",
    )
    certify_into(out, asked, Settings(k=1, n=10_000, alpha=0.001), seed=None, quiet=json)
    verdict = verify_run(out)
    show_run(out, None, json, other_k=(3,))
    if not json:
        typer.echo(f"run:   {out}, {verdict.inputs} claims verified from {verdict.votes:,} votes")
