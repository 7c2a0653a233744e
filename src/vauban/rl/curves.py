"""Learning curves: one CSV file for each seed, read as arrays and plotted as mean and spread over seeds."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vauban.errors import BadInput, MissingExtra
from vauban.rl.statistics import estimate, interquartile_mean

MANIFEST = "run.json"
COLUMNS = ("steps", "success", "reward", "seconds")


@dataclass(frozen=True)
class Curves:
    """The curves of one run: `values` (seeds, evaluations) at `steps` (evaluations,).

    label: name in tables and plots.
    seconds: training time of each seed, (seeds,).
    what: the column of the curve files that `values` holds, "success" or "reward".
    """

    label: str
    env: str
    seeds: list[int]
    steps: np.ndarray
    values: np.ndarray
    seconds: np.ndarray
    what: str

    @property
    def areas(self) -> np.ndarray:
        """The area under each seed's curve over the number of steps (seeds,): its mean height, by the trapezoid rule."""
        if len(self.steps) == 1:
            return self.values[:, 0]
        return np.asarray(np.trapezoid(self.values, self.steps, axis=1) / (self.steps[-1] - self.steps[0]))

    def only(self, seeds: Sequence[int]) -> Curves:
        """The same curves of these seeds alone, as far as they are there."""
        rows = [number for number, seed in enumerate(self.seeds) if seed in set(seeds)]
        if not rows:
            raise BadInput(f"seeds={list(seeds)}: {self.label} has {self.seeds}")
        return replace(self, seeds=[self.seeds[i] for i in rows], values=self.values[rows], seconds=self.seconds[rows])

    def until(self, steps: int) -> Curves:
        """The same curves up to the last evaluation within `steps`, to compare runs of different length."""
        count = int((self.steps <= steps).sum())
        if not count:
            raise BadInput(f"until={steps}: the first evaluation of {self.label} is at step {self.steps[0]:,.0f}")
        return replace(self, steps=self.steps[:count], values=self.values[:, :count])

    def summary(self) -> dict[str, Any]:
        """A line of the table of areas; the spread is the standard deviation over seeds, 0 for one seed.

        Intervals, None for one seed, and `iqm`, the interquartile mean: `vauban.rl.statistics`.
        """
        areas, several = self.areas, len(self.seeds) > 1
        mean, middle = estimate([areas]), estimate([areas], interquartile_mean)
        return {
            "run": self.label,
            "env": self.env,
            "what": self.what,
            "seeds": len(self.seeds),
            "steps": int(self.steps[-1]),
            "area": float(areas.mean()),
            "spread": float(areas.std(ddof=1)) if several else 0.0,
            "interval": [mean.low, mean.high] if several else None,
            "iqm": middle.value,
            "iqm_interval": [middle.low, middle.high] if several else None,
            "last": float(self.values[:, -1].mean()),
            "seconds": float(self.seconds.mean()),
        }


def curve_file(folder: Path, seed: int) -> Path:
    """The path of a seed's curve."""
    return folder / f"seed-{seed}.csv"


def read_rows(path: Path) -> list[dict[str, float]]:
    """The lines of one curve, without a last line that a killed process left unfinished."""
    malformed = BadInput(f"{path} is no learning curve: lines of numbers under {','.join(COLUMNS)} are needed")
    try:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
    except (ValueError, csv.Error):
        raise malformed from None
    numbers = []
    for i, row in enumerate(rows):
        try:
            numbers.append({key: float(row[key]) for key in COLUMNS})
        except (KeyError, TypeError, ValueError):
            if i + 1 < len(rows):
                raise malformed from None
    return numbers


def read_manifest(folder: Path) -> dict[str, Any]:
    """The contents of a run folder's `run.json`."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        manifest = None
    if not isinstance(manifest, dict) or not {"label", "env", "score", "algo"} <= set(manifest):
        raise BadInput(f"{folder} is no run of vauban rl train: it has no readable {MANIFEST}")
    return manifest


def read_run(folder: Path) -> Curves:
    """All curves of a run folder, at the steps at which every seed was evaluated."""
    manifest = read_manifest(folder)
    files = sorted(folder.glob("seed-*.csv"), key=lambda path: int(path.stem.split("-")[1]))
    seeds = {int(path.stem.split("-")[1]): read_rows(path) for path in files}
    seeds = {seed: rows for seed, rows in seeds.items() if rows}
    if not seeds:
        raise BadInput(f"{folder} holds no curve yet: let vauban rl train reach its first evaluation")
    steps = sorted(set.intersection(*({row["steps"] for row in rows} for rows in seeds.values())))
    if not steps:
        raise BadInput(f"{folder} holds no evaluation at the same step of all seeds: let vauban rl train go on")
    at = {seed: {row["steps"]: row for row in rows} for seed, rows in seeds.items()}
    what = manifest["score"]
    return Curves(
        manifest["label"],
        manifest["env"],
        list(seeds),
        np.array(steps),
        np.array([[rows[step][what] for step in steps] for rows in at.values()]),
        np.array([rows[steps[-1]]["seconds"] for rows in at.values()]),
        what,
    )


def draw(path: Path, runs: Sequence[Curves], *, title: str, levels: dict[str, float] | None = None) -> None:
    """Write a plot: mean over seeds as a line, one standard deviation as a band [Levine2023, Figures 8.2 and 8.4]."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise MissingExtra("matplotlib", "report", "drawing a curve") from None
    figure, axes = pyplot.subplots(figsize=(7, 4.2), dpi=150)
    for run in runs:
        mean, spread = run.values.mean(0), run.values.std(0, ddof=min(1, len(run.seeds) - 1))
        count = f"{len(run.seeds)} seed{'s' if len(run.seeds) > 1 else ''}"
        (line,) = axes.plot(run.steps, mean, lw=1.8, label=f"{run.label} ({count})")
        axes.fill_between(run.steps, mean - spread, mean + spread, color=line.get_color(), alpha=0.18, lw=0)
    for name, level in (levels or {}).items():
        axes.axhline(level, color="0.4", ls="--", lw=1.2, label=name)
    success = all(run.what == "success" for run in runs)
    axes.set(xlabel="environment steps", ylabel="success rate" if success else "goals reached per episode")
    if success:
        axes.set_ylim(-0.02, 1.02)
    axes.set_title(title, parse_math=False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
