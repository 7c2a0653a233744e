"""How the claims of a run are shown: a table and a curve for people, JSON for machines."""

from __future__ import annotations

from pathlib import Path

import typer

from vauban.cli import common

CURVE = "curve.png"


def show_run(folder: Path, radii: list[float] | None, json: bool, other_k: tuple[int, ...] = ()) -> None:
    """Print what a run proves and draw its curve; `other_k` adds top-k claims derived from the same votes."""
    from vauban.errors import MissingExtra
    from vauban.report.curve import draw
    from vauban.report.summary import headers, nice_radii, rows
    from vauban.runs.derive import certificates, read_votes

    votes = read_votes(folder)
    certs, _ = certificates(votes)
    manifest = votes.manifest
    if certs.truth is None:
        _show_unlabelled(folder, certs, json)
        return
    curves = [certs, *(certificates(votes, k=k)[0] for k in other_k)]
    title = f"{manifest['data']['spec']}, {manifest['smoothing']}, {certs.votes_per_input:,.0f} votes an input"
    title += ", exact" if certs.exact else f", {stop}" if (stop := manifest["statistics"].get("stop")) else ""
    picture: str | None = str(folder / CURVE)
    try:
        draw(folder / CURVE, curves, title=title)
    except (MissingExtra, OSError) as problem:
        picture = None
        (folder / CURVE).unlink(missing_ok=True)
        typer.echo(f"no curve: {problem}", err=True)
    summaries = [c.summary(nice_radii(curves[0]) if radii is None else radii) for c in curves]
    if json:
        common.print_json({"run": str(folder), "curve": picture, **summaries[0], "top_k": summaries[1:]})
        return
    for summary in summaries:
        statistics = "" if summary["exact"] else f", alpha {summary['alpha']:g}, {summary['bounds']}"
        common.print_table(headers(summary), rows(summary), title=title + statistics)
    if picture:
        typer.echo(f"curve: {picture}")


def _show_unlabelled(folder: Path, certs: object, json: bool) -> None:
    from vauban.claims import Certificates

    assert isinstance(certs, Certificates)
    decided = int((~certs.abstained).sum())
    if json:
        common.print_json({"run": str(folder), "inputs": len(certs), "decided": decided})
    else:
        typer.echo(
            f"{decided} of {len(certs)} inputs certified for the label their votes chose; radii in {folder}/claims.csv"
        )
