"""A table of several runs: accuracy, median and average radius, certified accuracy at some radii, and how far each is from the
first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.certificates import Claims
from vauban.report.lines import Line
from vauban.report.numbers import asked_radius, mean_radius, percent, short_median
from vauban.report.summary import number_or_none, round_numbers


@dataclass(frozen=True)
class ComparedRun:
    """A row of the table. `certified`: the certified accuracy at each radius; `against`: its difference from the first run's at
    the same radius, and the standard error of that difference, None for the first run and for lines of attacks."""

    label: str
    clean: float | None
    base: float | None
    median: float | None
    average: float | None
    certified: tuple[float, ...]
    against: tuple[tuple[float, float], ...] | None


def shown_radii(lines: Sequence[Line], asked: Sequence[float] | None) -> list[float]:
    """The radii asked for, or round ones up to the largest of all lines."""
    return list(asked) if asked else round_numbers(max(float(x.corners[-1]) for x in lines), lines[0].threat.integer)


def compared(lines: Sequence[Line], radii: Sequence[float]) -> list[ComparedRun]:
    """The rows of the table of these lines."""
    first, rows = lines[0].claims, []
    for line in lines:
        claims = line.claims
        rows.append(
            ComparedRun(
                line.label,
                None if claims is None else claims.clean_accuracy,
                None if claims is None else claims.base_accuracy,
                None if claims is None else number_or_none(claims.median_radius),
                None if claims is None else number_or_none(claims.average_radius),
                tuple(line.at(r) for r in radii),
                None
                if line is lines[0] or claims is None or first is None
                else tuple(difference(first, claims, r) for r in radii),
            )
        )
    return rows


def difference(first: Claims, other: Claims, r: float) -> tuple[float, float]:
    """How much larger the certified accuracy of `other` is at radius r, and its standard error over inputs.

    On the same inputs, differences are taken input by input; otherwise the inputs count as independent. The spread of
    trainings is not part of it.
    """
    one, two = first.certified(r), other.certified(r)
    gap = float(two.mean()) - float(one.mean())
    if np.array_equal(first.index, other.index) and np.array_equal(first.truth, other.truth):  # type: ignore[arg-type]
        return gap, standard_error(two.astype(float) - one)
    return gap, math.hypot(standard_error(one.astype(float)), standard_error(two.astype(float)))


def standard_error(values: NDArray[np.float64]) -> float:
    """The standard error of the mean of values [m]; 0 for one value."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0


def headers(radii: Sequence[float]) -> list[str]:
    """The titles of the columns of `table_rows`."""
    return ["run", "most voted", "on views", "median", "average", *(f"at {asked_radius(r)}" for r in radii)]


def table_rows(rows: Sequence[ComparedRun]) -> list[list[str]]:
    """The table as text; below each run but the first, its differences from the first in points, with their standard error."""
    lines = []
    for row in rows:
        shares = ["" if share is None else percent(share) for share in (row.clean, row.base)]
        none = "" if row.clean is None else "none"
        median = none if row.median is None else short_median(row.median)
        average = none if row.average is None else mean_radius(row.average)
        lines.append([row.label, *shares, median, average, *map(percent, row.certified)])
        if row.against is not None:
            gaps = [f"{100 * gap:+.2f} ± {100 * error:.2f}" for gap, error in row.against]
            lines.append(["  against the first", "", "", "", "", *gaps])
    return lines


def as_json(rows: Sequence[ComparedRun], radii: Sequence[float]) -> list[dict[str, Any]]:
    """The table as plain values."""
    return [
        {
            "run": row.label,
            "clean_accuracy": row.clean,
            "base_accuracy": row.base,
            "median_radius": row.median,
            "average_radius": row.average,
            "certified": [{"radius": r, "accuracy": a} for r, a in zip(radii, row.certified, strict=True)],
            "against_first": None
            if row.against is None
            else [
                {"radius": r, "difference": gap, "standard_error": error}
                for r, (gap, error) in zip(radii, row.against, strict=True)
            ],
        }
        for row in rows
    ]
