"""Plots certified accuracy against radius, with the lower bound that is proven for the whole data set as a band."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vauban.certificates import Claims
from vauban.errors import BadInput, MissingExtra
from vauban.files import make_folder_of, replace_file
from vauban.report.numbers import confidence
from vauban.report.wording import threat_of
from vauban.validation import path_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def png(curves: Sequence[Claims], *, title: str = "") -> bytes:
    """The picture of `figure` as a PNG."""
    drawn = BytesIO()
    figure(curves, drawn, title=title)
    return drawn.getvalue()


def figure(
    curves: Sequence[Claims], path: str | Path | BytesIO | None = None, *, title: str = "", rho: float = 1e-3
) -> Figure:
    """A Matplotlib figure with one curve per set of certificates (one k each, usually) and its lower bound as a band.

    It belongs to no window and does not change Matplotlib's backend; with `path` it is also written there.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        raise MissingExtra("matplotlib", "report", "drawing a curve") from None
    largest = max(float(np.nanmax(c.radius, initial=0.0)) for c in curves)
    drawn = Figure(figsize=(7, 4.2), dpi=150)
    axes = drawn.subplots()
    for certs in curves:
        corners = np.unique(np.concatenate([[0.0], certs.radius[certs.certified()]]))
        accuracy = np.array([certs.accuracy(r) for r in corners])
        proven = np.array([certs.accuracy_claim(r, rho) for r in corners])
        # Between two radii that occur, the accuracy is that of the larger one; beyond the last it is zero.
        radii = np.append(corners, [corners[-1], largest * 1.03])
        accuracy, proven = np.append(accuracy, [0, 0]), np.append(proven, [0, 0])
        (line,) = axes.step(radii, 100 * accuracy, where="pre", lw=1.8, label=f"top {certs.k}")
        if not certs.exact:
            axes.fill_between(radii, 100 * proven, 100 * accuracy, step="pre", color=line.get_color(), alpha=0.18, lw=0)
    threat = threat_of(curves[0])
    axes.set(
        xlabel=_wrapped(f"certified radius: {threat.metric.rstrip(',')} ({threat.unit})", 85, 3),
        ylabel="certified accuracy (%)",
        ylim=(0, 100),
        xlim=(0, largest * 1.03 or 1),
    )
    if threat.integer:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.text(0.5, 0.5, why_empty(curves), transform=axes.transAxes, ha="center", va="center", parse_math=False)
    axes.set_title(_wrapped(title, 65, 3), parse_math=False)
    axes.grid(alpha=0.25)
    inputs = f"these {len(curves[0])} inputs"
    note = (
        f"exact, for {inputs}" if curves[0].exact else f"band: proven for {inputs}\nwith confidence {confidence(rho)}"
    )
    axes.legend(title=note, frameon=False)
    drawn.tight_layout()
    if isinstance(path, BytesIO):
        drawn.savefig(path)
    elif path is not None:
        save_figure(drawn, path)
    return drawn


def save_figure(drawn: Figure, path: str | Path) -> None:
    """Write a figure in the form that the ending of the name says; its folder is created where it is missing."""
    from matplotlib import rc_context

    place = path_of("path", path)
    known, kind, content = drawn.canvas.get_supported_filetypes(), place.suffix.lower()[1:], BytesIO()
    if kind not in known:
        raise BadInput(f"{place} cannot be written: end the name with .png, .svg or .pdf")
    with rc_context({"svg.hashsalt": "vauban"}):  # the same picture is the same file
        drawn.savefig(content, format=kind, metadata={"Date": None} if kind == "svg" else None)
    make_folder_of(place)
    replace_file(place, content.getvalue())


def _wrapped(text: str, width: int, lines: int) -> str:
    """The text in lines that fit the picture: specifications of more than 45 characters are cut, and what needs more lines."""
    short = [word if len(word) <= 45 else f"{word[:43]}…{',' * word.endswith(',')}" for word in text.split(" ")]
    return "\n".join(textwrap.wrap(" ".join(short), width, max_lines=lines, placeholder="…"))


def why_empty(curves: Sequence[Claims]) -> str:
    """Why there is no curve to see, in words; empty if there is one."""
    certified = max(int(certs.certified().sum()) for certs in curves)
    if not certified:
        return "no input is certified for its true label"
    if all(certs.radius[certs.certified()].max(initial=0.0) == 0 for certs in curves):
        return f"{certified} of {len(curves[0])} inputs are certified,\nall at radius 0"
    return ""
