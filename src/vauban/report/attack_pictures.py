"""Pictures of attacks: certified accuracy and accuracy under attack, and a gallery of the nearest adversarial inputs."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput, MissingExtra
from vauban.report.curve import save_figure
from vauban.report.numbers import short_radius

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vauban.attacks.results import Attacked


def curves(attacked: Attacked, path: str | Path | BytesIO | None = None, title: str = "") -> Figure:
    """Accuracy against the radius: proven below, under attack above; what is true lies between the two, where all inputs were
    attacked."""
    figure_type, ticks = _matplotlib()
    distances = attacked.distance[np.isfinite(attacked.distance)]
    largest = max(float(np.nanmax(attacked.radius, initial=0.0)), float(distances.max(initial=0.0)))
    drawn = figure_type(figsize=(7, 4.2), dpi=150)
    axes = drawn.subplots()
    end = largest * 1.05 or 1.0
    under = _steps(distances, end, attacked.accuracy_under_attack)
    label = f"under attack ({attacked.how_many})" if attacked.how_many else "under attack"
    axes.step(*under, where="pre", lw=1.8, color="tab:red", label=label)
    if attacked.certs is not None:
        known = attacked.radius[~np.isnan(attacked.radius)]
        proven = _steps(known, end, attacked.certified_accuracy)
        axes.step(*proven, where="pre", lw=1.8, color="tab:blue", label="certified")
        radii = np.unique(np.concatenate([under[0], proven[0]]))
        if not attacked.how_many:  # otherwise the two are about different inputs
            axes.fill_between(
                radii,
                [100 * attacked.certified_accuracy(r) for r in radii],
                [100 * attacked.accuracy_under_attack(r) for r in radii],
                step="pre",
                color="0.5",
                alpha=0.15,
                lw=0,
            )
    threat = attacked.threat
    axes.set(
        xlabel=f"radius: {threat.metric.rstrip(',')} ({threat.unit})",
        ylabel="accuracy (%)" if attacked.truth is not None else "inputs that keep their label (%)",
        ylim=(0, 100),
        xlim=(0, end),
    )
    if threat.integer:
        axes.xaxis.set_major_locator(ticks(integer=True))
    axes.set_title(title, parse_math=False)
    axes.grid(alpha=0.25)
    axes.legend(title=f"these {len(attacked)} inputs", frameon=False)
    drawn.tight_layout()
    _save(drawn, path)
    return drawn


def gallery(attacked: Attacked, path: str | Path | BytesIO | None = None, most: int = 8) -> Figure:
    """The nearest adversarial pictures that were no errors already: original, adversarial, and their difference."""
    figure_type, _ = _matplotlib()
    near = [i for i in np.argsort(attacked.distance) if 0 < attacked.distance[i] < np.inf][:most]
    if not near:
        raise BadInput("no attack succeeded on an input that was right: there is nothing to show")
    if attacked.originals.ndim != 4 or attacked.originals.shape[1] not in (1, 3):
        raise BadInput(f"inputs of shape {attacked.originals.shape[1:]} are no pictures of one or three channels")
    drawn = figure_type(figsize=(1.5 * len(near) + 0.6, 4.9), dpi=120)
    axes = drawn.subplots(3, len(near), squeeze=False)
    for column, i in enumerate(near):
        found = attacked.results[i]
        assert found is not None
        assert found.x is not None
        before, after = _unit(attacked.originals[i]), _unit(found.x)
        change = (after - before).mean(axis=2)
        limit = float(np.abs(change).max()) or 1.0
        axes[0, column].imshow(before.squeeze(), cmap="gray", vmin=0, vmax=1)
        axes[1, column].imshow(after.squeeze(), cmap="gray", vmin=0, vmax=1)
        axes[2, column].imshow(change, cmap="RdBu_r", vmin=-limit, vmax=limit)
        answer = " ".join(map(str, found.answer))
        axes[0, column].set_title(f"input {attacked.index[i]}: {attacked.label[i]}", fontsize=8)
        axes[1, column].set_title(f"now {answer}, at {found.distance:.4g}", fontsize=8)
        proven = attacked.radius[i]
        axes[2, column].set_title(
            "not certified" if np.isnan(proven) else f"certified {short_radius(proven)}", fontsize=8
        )
        for row in range(3):
            axes[row, column].set_axis_off()
    drawn.supxlabel(
        "last row: the change, red where a number became larger, blue where smaller; mean of the channels", fontsize=8
    )
    drawn.tight_layout()
    _save(drawn, path)
    return drawn


def _save(drawn: Figure, path: str | Path | BytesIO | None) -> None:
    if isinstance(path, BytesIO):
        drawn.savefig(path, format="png")
    elif path is not None:
        save_figure(drawn, path)


def _steps(corners: NDArray[np.float64], end: float, accuracy: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Radii and percentages of a curve that falls after each corner; the last point is the end of the axis."""
    radii = np.unique(np.concatenate([[0.0], corners, np.nextafter(corners, np.inf), [end]]))
    return radii, 100 * np.array([accuracy(float(r)) for r in radii])


def _unit(picture: NDArray[Any]) -> NDArray[np.float64]:
    """A picture [c, h, w] as [h, w, c] in [0, 1]."""
    scaled = picture / 255 if picture.dtype == np.uint8 else picture.astype(float)
    return np.moveaxis(scaled, 0, 2)


def _matplotlib() -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        raise MissingExtra("matplotlib", "report", "drawing attacks") from None
    return Figure, MaxNLocator
