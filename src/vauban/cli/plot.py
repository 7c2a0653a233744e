"""vauban plot and vauban compare: several runs in one picture, and in one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vauban.cli import common
from vauban.cli.common import example

if TYPE_CHECKING:
    from vauban.report.lines import Line

_PICTURES = (".png", ".svg", ".csv", ".tex")

RunsArgument = Annotated[list[Path], typer.Argument(help="run folders, and folders of attacks")]
TopOption = Annotated[list[int] | None, typer.Option("-k", help="also: a line for each of these k (repeat for more)")]
VotesOption = Annotated[
    list[int] | None, typer.Option("-n", help="a line for each of these numbers of votes, looks of the run (repeat)")
]
AlphaOption = Annotated[list[float] | None, typer.Option(help="a line for each of these alpha (repeat)")]
BoundsOption = Annotated[
    list[str] | None, typer.Option(help="a line for each of these bounds: binocp, simuem (repeat)")
]
BoundOption = Annotated[
    list[str] | None,
    typer.Option(
        "--smoothing", "-s", help="the same views with another bound: laplace:sigma=0.5,bound=lecuyer (repeat)"
    ),
]
ThreatOption = Annotated[str | None, typer.Option(help="convert all claims to this threat: l1, l0, patch, …")]
LabelOption = Annotated[
    list[str] | None, typer.Option("--label", help="the name of each line, in order [made of what differs]")
]
BestOption = Annotated[bool, typer.Option("--best", help="also the largest of all lines at every radius")]


@example(
    "vauban plot runs/sigma-0.25 runs/sigma-0.5 runs/sigma-1 --best --out figures/sigma",
    "vauban plot runs/mnist -k 1 -k 2 -k 3 --out figures/top-k",
    "vauban plot runs/mnist -n 1000 -n 10000 --alpha 0.001 --alpha 0.05 --out figures/votes",
    "vauban plot runs/mnist attacks/mnist --out figures/attack",
    "vauban plot runs/mnist --histogram --out figures/radii",
)
def plot(
    runs: RunsArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="name of the pictures: .png, .svg, .csv and .tex are written")
    ],
    k: TopOption = None,
    n: VotesOption = None,
    alpha: AlphaOption = None,
    bounds: BoundsOption = None,
    smoothing: BoundOption = None,
    threat: ThreatOption = None,
    best: BestOption = False,
    histogram: Annotated[bool, typer.Option("--histogram", help="how many inputs have which radius")] = False,
    title: Annotated[str, typer.Option(help="title of the picture")] = "",
    label: LabelOption = None,
) -> None:
    """Draw certified accuracy against the radius for any number of runs, and write the same numbers as CSV and LaTeX.

    Lines for another k, n, alpha or bound are second claims from the same votes (see: vauban claim); attacks are upper bounds.
    """
    from vauban.errors import BadInput
    from vauban.report.plots import draw, draw_histogram, write_all

    if out.suffix not in _PICTURES and out.suffix[1:2].isalpha():
        raise BadInput(
            f"--out {out}: {', '.join(_PICTURES)} are written; give a name without {out.suffix}, such as {out.stem}"
        )
    lines = _lines(runs, k, n, alpha, bounds, smoothing, threat, label, best)
    drawn = draw_histogram(lines, title) if histogram else draw(lines, title)
    stem = out.with_suffix("") if out.suffix in _PICTURES else out
    for path in write_all(drawn, lines, stem):
        typer.echo(str(path))


@example(
    "vauban compare runs/sigma-0.25 runs/sigma-0.5 --radii 0,0.25,0.5,1",
    "vauban compare runs/dpa-1200 runs/dpa-3000 --json",
    "vauban compare runs/noise-0 runs/noise-1 runs/noise-2 runs/macer-0 runs/macer-1 runs/macer-2 --seeds 3",
)
def compare(
    runs: RunsArgument,
    k: TopOption = None,
    n: VotesOption = None,
    alpha: AlphaOption = None,
    bounds: BoundsOption = None,
    smoothing: BoundOption = None,
    threat: ThreatOption = None,
    best: BestOption = False,
    radii: Annotated[str | None, typer.Option(help="radii of the table, separated by commas")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="write the table, .csv or .tex")] = None,
    label: LabelOption = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="every so many runs in a row are of one network trained with different seeds: print means and intervals",
        ),
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Print accuracy, median and average radius and certified accuracy of several runs, and how far each is from the first.

    The standard error of a difference is over inputs, input by input where the runs have the same ones; it does not include
    how much another training would change. With --seeds, means over trainings and 95 % intervals (Student's), on these inputs.
    """
    if seeds is not None:
        lines = _lines(runs, k, n, alpha, bounds, smoothing, threat, None, best)
        _compare_trainings(lines, seeds, radii, label, out, json)
        return
    from vauban.report.comparing import as_json, compared, headers, shown_radii, table_rows
    from vauban.report.summary import parse_radii

    lines = _lines(runs, k, n, alpha, bounds, smoothing, threat, label, best)
    shown = shown_radii(lines, parse_radii(radii))
    rows = compared(lines, shown)
    if out is not None:
        _write(out, lines, shown)
    if json:
        common.print_json({"threat": lines[0].threat.name, "runs": as_json(rows, shown)})
        return
    threat_ = lines[0].threat
    common.print_table(headers(shown), table_rows(rows), title=f"{threat_.metric.rstrip(',')} ({threat_.unit})")
    if any(row.against for row in rows):
        typer.echo(
            "±: the standard error of a difference over inputs; what another training would change is not part of it"
        )
    if out is not None:
        typer.echo(f"table: {out}")


def _compare_trainings(
    lines: list[Line], seeds: int, radii: str | None, label: list[str] | None, out: Path | None, json: bool
) -> None:
    from vauban.errors import BadInput
    from vauban.report.comparing import shown_radii
    from vauban.report.summary import parse_radii
    from vauban.report.trainings import CONFIDENCE, as_json, headers, over_trainings, table_rows

    if out is not None:
        raise BadInput(f"--out {out} writes the table of single runs: leave --seeds out, or take the means from --json")
    shown = shown_radii(lines, parse_radii(radii))
    rows = over_trainings(lines, seeds, shown, label)
    threat = lines[0].threat
    if json:
        common.print_json({"threat": threat.name, "confidence": CONFIDENCE, "trainings": as_json(rows, shown)})
        return
    title = f"{threat.metric.rstrip(',')} ({threat.unit}); mean ± half the width of the {CONFIDENCE:.0%} interval over trainings"
    common.print_table(headers(shown), table_rows(rows), title=title)


def _lines(
    runs: list[Path],
    k: list[int] | None,
    n: list[int] | None,
    alpha: list[float] | None,
    bounds: list[str] | None,
    smoothing: list[str] | None,
    threat: str | None,
    label: list[str] | None,
    best: bool,
) -> list[Line]:
    from vauban.report.lines import best_of, read_lines

    asked: dict[str, list[Any] | None] = {"k": k, "n": n, "alpha": alpha, "bounds": bounds, "smoothing": smoothing}
    changes = {name: values or [] for name, values in asked.items()} | {"threat": [threat] if threat else []}
    lines = read_lines(runs, changes, label)
    return [*lines, best_of([line for line in lines if line.kind == "certified"])] if best else lines


def _write(out: Path, lines: list[Line], radii: list[float]) -> None:
    from vauban.errors import BadInput
    from vauban.files import replace_file
    from vauban.report.numbers import asked_radius
    from vauban.report.plots import latex

    if out.suffix == ".tex":
        replace_file(out, latex(lines, radii).encode())
    elif out.suffix == ".csv":
        rows = [
            ["run", *map(asked_radius, radii)],
            *([f'"{x.label}"', *(f"{x.at(r):.6f}" for r in radii)] for x in lines),
        ]
        replace_file(out, "\n".join([*(",".join(row) for row in rows), ""]).encode())
    else:
        raise BadInput(f"--out {out}: a name that ends in .csv or .tex is needed")
