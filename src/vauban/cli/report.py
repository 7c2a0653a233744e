"""vauban report: one HTML file that shows runs and recomputes their claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vauban.cli import common
from vauban.cli.common import example


@example(
    "vauban report runs/mnist --out report.html",
    "vauban report runs/mnist --attack attacks/mnist --title 'Digits, Gaussian noise' --out report.html",
    "vauban report runs/sigma-0.25 runs/sigma-0.5 runs/sigma-1 --out comparison.html",
)
def report(
    runs: Annotated[list[Path], typer.Argument(help="run folders, of vauban certify or vauban poison certify")],
    out: Annotated[Path, typer.Option("--out", "-o", help="the HTML file to write")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="title of the page [of one run: its data and smoothing]")] = None,
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="data set of the inputs' pictures [the one each run names]")
    ] = None,
    attacks: Annotated[
        list[Path] | None,
        typer.Option("--attack", "-a", help="folder of vauban attack on one of the runs; repeat for more"),
    ] = None,
    views: Annotated[
        int, typer.Option(min=0, max=16, help="views of each of the first 50 inputs; 0 needs no torch")
    ] = 3,
    json: common.JsonOption = False,
) -> None:
    """Write a page that shows runs to people: curve, radius slider, gallery, what is claimed and presupposed, hashes.

    It is one file without any network access. Its button recomputes every claim in the browser from the votes inside it.
    Each run is verified first; one that claims more than its votes prove is refused.
    """
    from vauban.cli.build import check_out
    from vauban.errors import BadInput
    from vauban.page.report import write_report
    from vauban.runs.run import Run

    if out.is_dir():
        raise BadInput(f"--out {out} is a folder: the name of an HTML file is needed, such as {out}/report.html")
    check_out(out)
    opened = [Run.open(run) for run in runs]
    path = write_report(opened, out, title=title, data=data, attacks=attacks or (), views=views)
    size = path.stat().st_size
    if json:
        common.print_json({"report": str(path), "bytes": size, "runs": len(opened)})
    else:
        typer.echo(f"report: {path}, {size / 1e6:.1f} MB, {sum(map(len, opened))} inputs")
