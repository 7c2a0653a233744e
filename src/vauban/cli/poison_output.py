"""Prints the results of vauban poison, and shows progress and warnings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vauban.cli import common
from vauban.specs import Spec

if TYPE_CHECKING:
    from vauban.poisoning.progress import ProgressCallback, ProgressReporter
    from vauban.poisoning.votes.certificates import PoisoningCertificates


def show_certificates(
    certs: PoisoningCertificates, title: str, radii: list[float] | None, json: bool, more: dict[str, Any] | None = None
) -> None:
    """Print certificates as a table, or as JSON with `more` entries."""
    from vauban.report.poisoning import headers, rows

    summary = certs.summary(radii)
    if json:
        common.print_json({**(more or {}), **summary})
        return
    common.print_table(headers(summary), rows(summary), title=title)
    typer.echo(f"radius: {certs.threat.metric} ({certs.threat.unit})")


def show_trained(out: Path, manifest: dict[str, Any], data: str, json: bool) -> None:
    """Print what was trained, and the next command."""
    from vauban.data.registry import with_split

    split = manifest["partition"]
    if json:
        common.print_json(
            {"out": str(out), "partition": split["spec"]} | {key: split[key] for key in ("models", "empty", "failed")}
        )
        return
    sizes = f", {split['smallest']} to {split['largest']} samples each" if "smallest" in split else ""
    typer.echo(f"{out}: {split['models']:,} base classifiers on {split['spec']}{sizes}")
    spec = with_split(data, "test")
    test = Spec(spec.name, {**spec.params, "split": "test"}) if "split" in spec.params else spec
    typer.echo(f"next: vauban poison certify --ensemble {out} --data {test} --out RUN")


def progress_bars(out: Path, quiet: bool) -> ProgressReporter:
    """Progress bars for work on the folder `out`; a resumed training says how much it found there."""

    @contextmanager
    def progress(label: str, total: int, unit: str, done: int = 0) -> Iterator[ProgressCallback]:
        if done and not quiet:
            typer.echo(f"{out} holds {done:,} of {total:,} base classifiers; going on", err=True)
        with common.progress(label, total - done, unit, quiet) as on_progress:
            yield on_progress

    return progress


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print each warning once, as a note."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("once")
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"note: {message}", err=True)
        yield
