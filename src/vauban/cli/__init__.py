"""The command line: thin; it parses, calls and prints. Heavy imports wait until a command needs them."""

from __future__ import annotations

import typer

from vauban.cli import bench, certify, claim, demo, listings, plan, poison, predict, rl, train, verify

app = typer.Typer(
    name="vauban",
    help="Proves how much an attacker must change before a classifier's answer can change.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (
    train.train,
    certify.certify,
    predict.predict,
    plan.plan,
    claim.claim,
    verify.verify,
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
