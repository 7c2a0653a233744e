"""Prints certificates as a table or as JSON, and draws their curve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from vauban.cli import common

if TYPE_CHECKING:
    from vauban.certificates import Certificates

CURVE = "curve.png"


def show_certificates(folder: Path, curves: Sequence[Certificates], radii: list[float] | None, json: bool) -> None:
    """Print the summary of a run and draw its curve in the folder; `curves` after the first are for other k."""
    from vauban.errors import MissingExtra
    from vauban.report.curve import figure
    from vauban.report.summary import headers, nice_radii, rows, title_of

    certs = curves[0]
    if certs.truth is None:
        _show_unlabelled(folder, certs, json)
        return
    title = title_of(certs)
    picture: str | None = str(folder / CURVE)
    try:
        figure(curves, folder / CURVE, title=title)
    except (MissingExtra, OSError) as problem:
        picture = None
        (folder / CURVE).unlink(missing_ok=True)
        typer.echo(f"no curve: {problem}", err=True)
    summaries = [c.summary(nice_radii(certs) if radii is None else radii) for c in curves]
    if json:
        common.print_json({"run": str(folder), "curve": picture, **summaries[0], "top_k": summaries[1:]})
        return
    for summary in summaries:
        statistics = "" if summary["exact"] else f", alpha {summary['alpha']}, {summary['bounds']}"
        common.print_table(headers(summary), rows(summary), title=title + statistics)
        print_notes(summary["notes"])
    if picture:
        typer.echo(f"curve: {picture}")


def print_notes(notes: Sequence[str]) -> None:
    """Print what a reader must know besides the claims."""
    for note in notes:
        typer.echo(f"note: {note}")


def _show_unlabelled(folder: Path, certs: Certificates, json: bool) -> None:
    decided = int((~certs.abstained).sum())
    if json:
        common.print_json({"run": str(folder), "inputs": len(certs), "decided": decided})
    else:
        typer.echo(
            f"{decided} of {len(certs)} inputs certified for the label their votes chose; radii in {folder}/claims.csv"
        )
