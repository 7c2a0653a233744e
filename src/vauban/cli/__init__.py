"""The command line: parses options, calls the library and prints results; heavy imports wait until a command needs them."""

from __future__ import annotations

from typing import Annotated

import typer

from vauban import __version__
from vauban.cli import (
    attack,
    baseline,
    bench,
    certify,
    claim,
    common,
    convert,
    demo,
    listings,
    plan,
    plot,
    poison,
    predict,
    report,
    reproduce,
    rl,
    serve,
    train,
    verify,
)

app = typer.Typer(
    name="vauban",
    help="Proves how much an attacker must change before a classifier's answer can change.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(given: bool) -> None:
    if given:
        typer.echo(f"vauban {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and exit")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="VAUBAN_DEBUG", help="show the traceback of every error")
    ] = False,
) -> None:
    """Proves how much an attacker must change before a classifier's answer can change."""
    common.debug.set(debug)


for command in (
    train.train,
    certify.certify,
    predict.predict,
    plan.plan,
    claim.claim,
    convert.convert,
    verify.verify,
    attack.attack,
    baseline.baseline,
    report.report,
    plot.plot,
    plot.compare,
    reproduce.reproduce,
    serve.serve,
    listings.data,
    listings.models,
    demo.demo,
):
    app.command()(command)
app.add_typer(bench.app, name="bench")
app.add_typer(poison.app, name="poison")
app.add_typer(rl.app, name="rl")


def main() -> None:
    """Run the command line."""
    app()
