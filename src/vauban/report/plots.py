"""Pictures of several runs: certified accuracy against the radius, accuracy under attack, histograms of radii; and the same
numbers as CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput, MissingExtra
from vauban.files import make_folder_of, replace_file
from vauban.report.curve import save_figure, why_empty
from vauban.report.lines import Line, best_of, read_lines
from vauban.report.numbers import asked_radius, confidence, floor_text, percent
from vauban.report.summary import round_numbers
from vauban.validation import path_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8C564B")
"""Colours of lines in their order: the same in every picture, and told apart by colour-blind readers."""

_DASHES = ("-", "--", "-.", ":")
_MOST_CORNERS = 400  # of a line that is drawn or written; leaving corners out never raises a certified accuracy
_MOST_BANDS = 3
_BINS = 30
_WIDEST = 90  # characters of a line below the axis


def plot(
    *runs: Any,
    path: str | Path | None = None,
    k: Sequence[int] = (),
    n: Sequence[int] = (),
    alpha: Sequence[float] = (),
    bounds: Sequence[str] = (),
    smoothing: Sequence[str] = (),
    threat: str | None = None,
    best: bool = False,
    histogram: bool = False,
    labels: Sequence[str] | None = None,
    title: str = "",
) -> Figure:
    """A Matplotlib figure of certified accuracy against the radius, with one line for each run and each change.

    `runs`: run folders, opened runs, certificates, folders of attacks (accuracy under attack, dotted). `k`, `n`, `alpha`,
    `bounds`, `smoothing`: claims to derive from the votes of every run, each combination a line; `threat`: convert all of them.
    `best`: also the largest of all lines at every radius; choosing among runs by their result needs other inputs than those
    the result is stated for. `histogram`: how many inputs have which radius, in place of curves. `labels`: one for each line,
    in place of those made of what differs. `path`: where it is written; the ending says how (.png, .svg, .pdf, .csv, .tex).
    """
    changes: dict[str, Sequence[Any]] = {"k": k, "n": n, "alpha": alpha, "bounds": bounds, "smoothing": smoothing}
    lines = read_lines(runs, changes | {"threat": [] if threat is None else [threat]}, labels)
    if best:
        lines.append(best_of([line for line in lines if line.kind == "certified"]))
    drawn = draw_histogram(lines, title) if histogram else draw(lines, title)
    if path is not None:
        write(drawn, lines, path_of("path", path))
    return drawn


def draw(
    lines: Sequence[Line], title: str = "", points: Sequence[tuple[str, Sequence[float], Sequence[float]]] = ()
) -> Figure:
    """A figure of these lines; `points`: published numbers as (label, radii, accuracies), drawn as crosses."""
    figure_type, ticks = _matplotlib()
    threat, end = lines[0].threat, _end(lines, [r for _, radii, _ in points for r in radii])
    drawn = figure_type(figsize=(7.5, 4.6), dpi=150)
    axes = drawn.subplots()
    colour = _colours(lines)
    bands = len(lines) <= _MOST_BANDS
    for line in lines:
        steps, accuracy = _steps(line, end)
        width = 6 if line.kind == "best" else 1.6
        axes.step(steps, 100 * accuracy, where="pre", lw=width, label=line.label, **_style(line, lines, colour))
        if bands and line.kind == "certified" and line.claims is not None and not line.claims.exact:
            _band(axes, line, end, colour(line))
    for number, (label, radii, values) in enumerate(points):
        shade = "black" if len(points) == 1 else COLOURS[number % len(COLOURS)]
        axes.plot(radii, [100 * v for v in values], "x", color=shade, ms=7, mew=1.8, label=label, zorder=5)
    claims = [line.claims for line in lines if line.claims is not None]
    if claims and not points and all(line.corners[-1] == 0 and not line.beyond for line in lines):
        why = why_empty(claims)
        axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", parse_math=False)
    _describe_axes(axes, threat, end, ticks, title)
    axes.set(ylabel=_ylabel(lines), ylim=(0, 100))
    note = _note(lines, bands)
    axes.legend(title=note, frameon=False, fontsize=8, title_fontsize=8, ncols=1 if len(lines) <= 12 else 2)
    drawn.tight_layout()
    return drawn


def draw_histogram(lines: Sequence[Line], title: str = "") -> Figure:
    """A figure of how many inputs, out of all, are certified with which radius; the others have none."""
    figure_type, ticks = _matplotlib()
    shown = [line for line in lines if line.claims is not None]
    if not shown:
        raise BadInput("there are no certificates to count: name run folders; attacks have no radii")
    threat, end = shown[0].threat, _end(shown, [])
    width = max(1.0, np.ceil(end / _BINS)) if threat.integer else end / _BINS
    edges = np.arange(0, end + width, width) - (0.5 if threat.integer else 0)
    drawn = figure_type(figsize=(7.5, 4.6), dpi=150)
    axes, colour = drawn.subplots(), _colours(shown)
    for line in shown:
        assert line.claims is not None
        share = 100 * np.histogram(line.radii, edges)[0] / len(line.claims)
        none = 100 * (1 - len(line.radii) / len(line.claims))
        axes.stairs(share, edges, color=colour(line), lw=1.6, label=f"{line.label} ({none:.1f} % of inputs have none)")
    _describe_axes(axes, threat, end, ticks, title)
    axes.set(ylabel="inputs (%)")
    axes.legend(frameon=False, fontsize=8)
    drawn.tight_layout()
    return drawn


def write(drawn: Figure, lines: Sequence[Line], path: Path) -> None:
    """Write a figure, or the numbers behind it, in the form that the ending of `path` names."""
    kind = path.suffix.lower()
    if kind in (".csv", ".tex"):
        make_folder_of(path)
    if kind == ".csv":
        replace_file(path, csv_text(lines).encode())
    elif kind == ".tex":
        replace_file(path, latex(lines).encode())
    elif kind in (".png", ".svg", ".pdf"):
        save_figure(drawn, path)
    else:
        raise BadInput(f"{path} cannot be written: end the name with .png, .svg, .pdf, .csv or .tex")


def write_all(drawn: Figure, lines: Sequence[Line], stem: Path) -> list[Path]:
    """Write the figure as PNG and SVG, and its numbers as CSV and LaTeX, under one name; returns the paths."""
    written = [stem.with_name(stem.name + kind) for kind in (".png", ".svg", ".csv", ".tex")]
    for path in written:
        write(drawn, lines, path)
    return written


def csv_text(lines: Sequence[Line]) -> str:
    """The lines as CSV: up to each radius, and above the one before it, the accuracy is that of its row."""
    rows = ["line,kind,radius,accuracy"]
    for line in lines:
        quoted = '"' + line.label.replace('"', '""') + '"'
        corners, accuracy = _thinned(line)
        rows += [
            f"{quoted},{line.kind},{_plain(float(r))},{_plain(float(a) + 1e-12)}"
            for r, a in zip(corners, accuracy, strict=True)
        ]
    return "\n".join([*rows, ""])


def _plain(value: float) -> str:
    """A number rounded down, without the zeros at its end."""
    return floor_text(value).rstrip("0").rstrip(".")


def latex(lines: Sequence[Line], radii: Sequence[float] | None = None) -> str:
    """The accuracy of every line at round radii as a LaTeX table (booktabs)."""
    shown = round_numbers(_end(lines, []) / 1.03, lines[0].threat.integer) if radii is None else list(radii)
    head = " & ".join(["", *(f"${asked_radius(r)}$" for r in shown)])
    body = [" & ".join([_escaped(line.label), *(percent(line.at(r))[:-2] for r in shown)]) + r" \\" for line in lines]
    return "\n".join(
        [
            f"% accuracy in percent against the radius: {_escaped(lines[0].threat.metric.rstrip(','))}",
            rf"\begin{{tabular}}{{l{'r' * len(shown)}}}",
            r"\toprule",
            head + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _escaped(text: str) -> str:
    for plain, written in (("\\", r"\textbackslash "), ("_", r"\_"), ("%", r"\%"), ("&", r"\&"), ("#", r"\#")):
        text = text.replace(plain, written)
    return text


def _end(lines: Sequence[Line], more: Sequence[float]) -> float:
    """Where the axis of radii ends: a little after the last finite corner."""
    return 1.03 * max([float(line.corners[-1]) for line in lines] + [float(r) for r in more]) or 1.0


def _thinned(line: Line) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corners and accuracies, at most `_MOST_CORNERS`; between two that are kept the accuracy is that of the larger radius, which
    is too low for a certificate and never too high. Lines of attacks, which are upper bounds, are kept whole."""
    if line.kind == "attack" or len(line.corners) <= _MOST_CORNERS:
        return line.corners, line.accuracy
    kept = np.unique(np.linspace(0, len(line.corners) - 1, _MOST_CORNERS).astype(np.int64))
    return line.corners[kept], line.accuracy[kept]


def _steps(line: Line, end: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    corners, accuracy = _thinned(line)
    return np.append(corners, [corners[-1], end]), np.append(accuracy, [line.beyond, line.beyond])


def _band(axes: Any, line: Line, end: float, colour: Any) -> None:
    """The lower bound that is proven for the inputs of a sampled run, as a band below its line."""
    assert line.claims is not None
    corners, accuracy = _thinned(line)
    proven = np.array([line.claims.accuracy_claim(float(r)) for r in corners])
    radii = np.append(corners, [corners[-1], end])
    low, high = np.append(proven, [0, 0]), np.append(accuracy, [line.beyond, line.beyond])
    axes.fill_between(radii, 100 * low, 100 * high, step="pre", color=colour, alpha=0.18, lw=0)


def _colours(lines: Sequence[Line]) -> Callable[[Line], Any]:
    """One colour for each run; for each line, if all are of one run; from a scale where there are too many for eight colours."""
    groups = list(dict.fromkeys(line.group for line in lines if line.kind != "best"))
    by_line = len(groups) == 1
    count = len(lines) if by_line else len(groups)

    def colour(line: Line) -> Any:
        if line.kind == "best":
            return "0.8"
        if line.kind == "attack" and by_line:
            return COLOURS[0]
        number = lines.index(line) if by_line else groups.index(line.group)
        if count <= len(COLOURS):
            return COLOURS[number]
        from matplotlib import colormaps

        return colormaps["viridis"](number / count)

    return colour


def _style(line: Line, lines: Sequence[Line], colour: Callable[[Line], Any]) -> dict[str, Any]:
    """Colour, and a dash that tells the lines of one run apart where several runs are drawn; attacks are dotted."""
    if line.kind in ("attack", "best"):
        return {
            "color": colour(line),
            "ls": ":" if line.kind == "attack" else "-",
            "zorder": 1 if line.kind == "best" else 2,
        }
    several = len({other.group for other in lines if other.kind == "certified"}) > 1
    own = [other for other in lines if other.group == line.group and other.kind == "certified"]
    return {"color": colour(line), "ls": _DASHES[own.index(line) % len(_DASHES)] if several else "-"}


def _describe_axes(axes: Any, threat: Any, end: float, ticks: Any, title: str) -> None:
    said = f"radius: {threat.metric.rstrip(',')} ({threat.unit})"
    axes.set(xlabel="\n".join(wrap(said, _WIDEST)), xlim=(0, end))
    if threat.integer:
        axes.xaxis.set_major_locator(ticks(integer=True))
    axes.set_title(title, parse_math=False, fontsize=10)
    axes.grid(alpha=0.25)


def _ylabel(lines: Sequence[Line]) -> str:
    return "accuracy (%)" if any(line.kind == "attack" for line in lines) else "certified accuracy (%)"


def _note(lines: Sequence[Line], bands: bool) -> str:
    """What a legend says of its lines: on which inputs, and what the bands are."""
    claims = [line.claims for line in lines if line.claims is not None]
    sizes = sorted({len(some) for some in claims})
    inputs = "" if len(sizes) != 1 else f"these {sizes[0]:,} inputs"
    sampled = any(not some.exact for some in claims)
    return (
        f"band: proven for {inputs or 'these inputs'}\nwith confidence {confidence(1e-3)}"
        if bands and sampled
        else inputs
    )


def _matplotlib() -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        raise MissingExtra("matplotlib", "report", "drawing a picture") from None
    return Figure, MaxNLocator
