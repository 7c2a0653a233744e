"""Figures that no run folder is behind: made, and written with the numbers that they show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import MissingExtra
from vauban.files import replace_file


def new_figure(panels: int = 1) -> tuple[Any, Any]:
    """A figure with one or several panels side by side, and its axes."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report", "drawing a figure") from None
    drawn = Figure(figsize=(6.5 if panels == 1 else 10, 4.4), dpi=150)
    axes = drawn.subplots(1, panels)
    for one in [axes] if panels == 1 else axes:
        one.grid(alpha=0.25)
    return drawn, axes


def written(figure: Any, stem: Path, columns: Sequence[str], table: NDArray[np.float64]) -> list[Path]:
    """Write a figure as PNG and SVG and its numbers as CSV; returns the paths."""
    from matplotlib import rc_context

    figure.tight_layout()
    png, svg, csv = (stem.with_name(f"{stem.name}{kind}") for kind in (".png", ".svg", ".csv"))
    figure.savefig(png)
    with rc_context({"svg.hashsalt": "vauban"}):
        figure.savefig(svg, metadata={"Date": None})
    lines = [",".join(columns), *(",".join(f"{value:.9g}" for value in row) for row in table)]
    replace_file(csv, "\n".join([*lines, ""]).encode())
    return [png, svg, csv]
