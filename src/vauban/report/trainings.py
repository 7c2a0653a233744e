"""A table of several trainings: of runs that differ only in the seed of their network's training, mean and interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from vauban.certificates import Claims
from vauban.errors import BadInput
from vauban.report.comparing import standard_error
from vauban.report.lines import Line, labelled
from vauban.report.numbers import asked_radius

CONFIDENCE = 0.95

_COLUMNS: dict[str, Callable[[Claims], float]] = {
    "clean_accuracy": lambda claims: claims.clean_accuracy,
    "base_accuracy": lambda claims: claims.base_accuracy,
    "median_radius": lambda claims: claims.median_radius,
    "average_radius": lambda claims: claims.average_radius,
}
_RADII = ("median_radius", "average_radius")


@dataclass(frozen=True)
class Spread:
    """A quantity over s trainings: its `values` [s], their mean, and half the width of Student's interval for the mean of all
    trainings; NaN where a value is."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return standard_error(np.array(self.values))

    @property
    def half_width(self) -> float:
        return _half_width(self.error, len(self.values) - 1)

    def minus(self, other: Spread) -> tuple[float, float]:
        """The difference of the means and half the width of its interval, by Welch's approximation."""
        error = math.hypot(self.error, other.error)
        parts = [(one.error**4, len(one.values) - 1) for one in (self, other)]
        terms = sum(fourth / freedom for fourth, freedom in parts)
        freedom = error**4 / terms if terms > 0 else 1.0
        return self.mean - other.mean, _half_width(error, freedom)


def _half_width(error: float, freedom: float) -> float:
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom) * error)


@dataclass(frozen=True)
class TrainedSeveralTimes:
    """A row of the table: the quantities by name, the certified accuracy at each radius, and the runs they are of."""

    label: str
    runs: tuple[str, ...]
    quantities: dict[str, Spread]
    certified: tuple[Spread, ...]


def over_trainings(
    lines: Sequence[Line], seeds: int, radii: Sequence[float], labels: Sequence[str] | None
) -> list[TrainedSeveralTimes]:
    """One row for every `seeds` lines in turn, which must be of one run each and differ in nothing but their model's weights."""
    if seeds < 2:
        raise BadInput(
            f"--seeds {seeds}: a mean over trainings needs 2 or more; leave --seeds out to compare single runs"
        )
    if left := len(lines) % seeds:
        raise BadInput(
            f"--seeds {seeds} with {len(lines)} runs: each way of training needs {seeds} of them, one after the other, and the "
            f"last has {left}; give {seeds - left} more, or another number of --seeds"
        )
    groups = [list(lines[i : i + seeds]) for i in range(0, len(lines), seeds)]
    for group in groups:
        _refuse_unlike(group)
    named = labelled([group[0] for group in groups], labels)
    return [
        TrainedSeveralTimes(
            first.label,
            tuple(line.facts["folder"] for line in group),
            {name: Spread(tuple(measure(_claims(line)) for line in group)) for name, measure in _COLUMNS.items()},
            tuple(Spread(tuple(line.at(r) for line in group)) for r in radii),
        )
        for first, group in zip(named, groups, strict=True)
    ]


def _claims(line: Line) -> Claims:
    if line.claims is None:
        raise BadInput(f"{line.label} is no run: --seeds takes the mean over runs only; leave attacks and --best out")
    return line.claims


def _refuse_unlike(group: Sequence[Line]) -> None:
    """Refuse runs of one group that differ in more than their model, or do not differ in it."""
    first, names = _claims(group[0]), " and ".join(line.facts.get("folder", line.label) for line in group)
    for line in group[1:]:
        known = {name for facts in (line.facts, group[0].facts) for name in facts} - {"folder", "model", "votes"}
        other = sorted(name for name in known if line.facts.get(name) != group[0].facts.get(name))
        other += [] if np.array_equal(_claims(line).index, first.index) else ["inputs"]
        other += [] if _settings(_claims(line)) == _settings(first) else ["settings"]
        if other:
            raise BadInput(
                f"{names} differ in {', '.join(dict.fromkeys(other))}: --seeds takes the mean over runs that differ in the seed "
                "of the training only; give those of one way of training in a row"
            )
    models = [line.facts["model"] for line in group if "model" in line.facts]
    if len(set(models)) < len(models):
        raise BadInput(
            f"of {names} two are of the same model: give runs of networks that were trained with different seeds"
        )


def _settings(claims: Claims) -> Any:
    """The settings of the run that claims are of, None where they are of none."""
    return getattr(getattr(getattr(claims, "record", None), "manifest", None), "settings", None)


def headers(radii: Sequence[float]) -> list[str]:
    """The titles of the columns of `table_rows`."""
    return ["trainings", "most voted", "on views", "median", "average", *(f"at {asked_radius(r)}" for r in radii)]


def table_rows(rows: Sequence[TrainedSeveralTimes]) -> list[list[str]]:
    """The table as text: mean ± half the width of the interval, shares in percent; below each row but the first, differences."""
    lines = []
    for row in rows:
        cells = [
            _text(spread.mean, spread.half_width, 1 if name in _RADII else 100)
            for name, spread in row.quantities.items()
        ]
        shares = [_text(spread.mean, spread.half_width, 100) for spread in row.certified]
        lines.append([f"{row.label} ({len(row.runs)})", *cells, *shares])
        if row is not rows[0]:
            gaps = [mine.minus(its) for mine, its in zip(row.certified, rows[0].certified, strict=True)]
            lines.append(["  against the first", "", "", "", "", *(_text(*gap, 100, "+") for gap in gaps)])
    return lines


def _text(mean: float, half: float, factor: int, sign: str = "") -> str:
    if math.isnan(mean):
        return "none"
    digits = 2 if factor == 100 else 4
    return f"{factor * mean:{sign}.{digits}f} ± {factor * half:.{digits}f}"


def as_json(rows: Sequence[TrainedSeveralTimes], radii: Sequence[float]) -> list[dict[str, Any]]:
    """The table as plain values."""
    return [
        {
            "label": row.label,
            "runs": list(row.runs),
            **{name: _plain(spread) for name, spread in row.quantities.items()},
            "certified": [{"radius": r, **_plain(spread)} for r, spread in zip(radii, row.certified, strict=True)],
            "against_first": None
            if row is rows[0]
            else [
                {"radius": r, "difference": gap, "half_width": half}
                for r, (gap, half) in zip(
                    radii, (a.minus(b) for a, b in zip(row.certified, rows[0].certified, strict=True)), strict=True
                )
            ],
        }
        for row in rows
    ]


def _plain(spread: Spread) -> dict[str, Any]:
    values = [None if math.isnan(value) else value for value in spread.values]
    known = None not in values
    return {
        "values": values,
        "mean": spread.mean if known else None,
        "half_width": spread.half_width if known else None,
    }
