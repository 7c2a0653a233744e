"""Prints certificates as a table or as JSON, and draws their curve for a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from vauban.cli import common

if TYPE_CHECKING:
    from vauban.certificates import Certificates


def draw(curves: Sequence[Certificates]) -> bytes | None:
    """The picture of a run, which is sealed with it; None, and a word on why, where it cannot be drawn or has no true labels."""
    from vauban.errors import MissingExtra
    from vauban.report.curve import png
    from vauban.report.summary import title_of

    if curves[0].truth is None:
        return None
    try:
        return png(curves, title=title_of(curves[0]))
    except (MissingExtra, OSError) as problem:
        typer.echo(f"no curve: {problem}", err=True)
        return None


def show_certificates(folder: Path, curves: Sequence[Certificates], radii: list[float] | None, json: bool) -> None:
    """Print the summary of a run; `curves` after the first are for other k."""
    from vauban.report.summary import headers, nice_radii, rows, title_of
    from vauban.runs.store import PICTURE

    certs = curves[0]
    if certs.truth is None:
        _show_unlabelled(folder, certs, json)
        return
    title = title_of(certs)
    picture = str(folder / PICTURE) if (folder / PICTURE).exists() else None
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


def show_announcement(folder: Path, certs: Certificates, json: bool) -> None:
    """Print what an announced run must publish before its nonce exists, and how it goes on."""
    manifest = certs.record.manifest
    announced, source = manifest.identity, manifest.seed.nonce_from
    if json:
        common.print_json({"run": str(folder), "announced": announced, "nonce_from": source})
        return
    typer.echo(f"announced: {announced}\nnonce from: {source}")
    typer.echo(
        f"No vote is cast. Publish the hash and {folder}/manifest.json before that value exists, keep {folder}/seed secret, and "
        "then give the same command with --nonce VALUE in place of --announce and --nonce-from."
    )
