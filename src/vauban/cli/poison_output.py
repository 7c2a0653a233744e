"""Prints the results of vauban poison, and shows progress and warnings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from vauban.cli import common
from vauban.specs import Spec

if TYPE_CHECKING:
    from vauban.poisoning.progress import ProgressCallback, ProgressReporter
    from vauban.poisoning.training_plan import TrainingPlan
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
    split = manifest["partition"]
    if json:
        common.print_json(
            {"out": str(out), "partition": split["spec"]} | {key: split[key] for key in ("models", "empty", "failed")}
        )
        return
    sizes = f", {split['smallest']} to {split['largest']} samples each" if "smallest" in split else ""
    typer.echo(f"{out}: {split['models']:,} base classifiers on {split['spec']}{sizes}")
    test = quote(str(_test_set(data)))
    typer.echo(f"next: vauban poison certify --ensemble {quote(str(out))} --data {test} --out RUN")


def show_plan(plan: TrainingPlan, json: bool) -> None:
    """Print what a training would take."""
    if json:
        common.print_json({**vars(plan), "memory": plan.memory})
        return
    typer.echo(
        f"{plan.models:,} base classifiers on {plan.smallest:,} to {plan.largest:,} samples each, {plan.empty:,} on none"
    )
    typer.echo(
        f"training: about {common.duration(plan.seconds)} here, by {plan.tried} base classifiers that were trained and timed"
    )
    if plan.weights is not None and plan.memory is not None:
        typer.echo(
            f"disk: {plan.weights / 2**20:,.1f} MiB; memory: about {plan.memory / 2**20:,.1f} MiB beside Python and torch"
        )


def _test_set(data: str) -> Spec:
    """The test set that belongs to a training set: its test split, or the file named test where it is named train.

    Where the training set is a whole file, its test split is among the training samples.
    """
    from vauban.data.registry import with_split

    spec = with_split(data, "test")
    whole = spec.params.get("split") == "all" and Path(spec.params.get("path", "")).suffix
    if "split" in spec.params and not whole:
        return Spec(spec.name, {**spec.params, "split": "test"})
    if (path := Path(spec.params.get("path", ""))).suffix:
        beside = path.with_name(path.name.replace("train", "test"))
        named = beside if beside != path and beside.expanduser().is_file() else Path(f"TEST{path.suffix}")
        return Spec(spec.name, {**spec.params, "path": str(named)})
    return spec


def progress_bars(out: Path, quiet: bool) -> ProgressReporter:
    """Progress bars for work on the folder `out`; a resumed training says how much it found there, a finished run that it is."""

    @contextmanager
    def progress(label: str, total: int, unit: str, done: int = 0) -> Iterator[ProgressCallback]:
        if done == total > 0 and label == "voting":
            typer.echo(f"{out} is finished: its stored votes are used, and no base classifier votes again", err=True)
        elif done and not quiet:
            typer.echo(f"{out} holds {done:,} of {total:,} base classifiers; going on", err=True)
        with common.progress(label, total - done, unit, quiet) as on_progress:
            yield on_progress

    return progress


@contextmanager
def note_after(seconds: float, text: str) -> Iterator[None]:
    """Print a note on stderr if the work takes longer than so many seconds."""
    from threading import Timer

    timer = Timer(seconds, typer.echo, (text,), {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print each warning once, as a note."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("once")
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"note: {message}", err=True)
        yield
