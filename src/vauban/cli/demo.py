"""vauban demo: certifies and verifies MNIST digits with the packaged model in about a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vauban.cli import common
from vauban.cli.common import example
from vauban.cli.show import draw, show_certificates


@example("vauban demo")
def demo(
    out: Annotated[Path, common.folder_option("run folder")] = Path("runs/demo"),
    json: common.JsonOption = False,
) -> None:
    """Certify 200 MNIST test digits with the packaged model, verify the run and draw its curve."""
    from vauban.cli.build import classifier_and_data
    from vauban.runs.run import Run
    from vauban.runs.second_claims import derived

    smoothed, digits = classifier_and_data(
        model=None,
        weights=None,
        data="mnist:split=test",
        smoothing="gaussian:sigma=0.5",
        every=50,
        limit=200,
        device="cpu",
    )
    certs = smoothed.certify(
        digits,
        k=1,
        n=10_000,
        alpha=0.001,
        out=out,
        progress=not json,
        picture=lambda made: draw([made, derived(made.record, {"k": 3}, None, False)]),
    )
    run = Run.open(out)
    verdict = run.verify()
    show_certificates(out, [certs, run.certificates(k=3)], None, json)
    if not json:
        typer.echo(f"run:   {out}, {verdict.inputs} claims verified from {verdict.votes:,} votes")
