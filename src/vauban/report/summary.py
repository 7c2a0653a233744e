"""Summaries of certificates: the radii to show, and the rows of a table."""

from __future__ import annotations

import sys
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vauban.certificates import Certificates, Claims
from vauban.errors import BadInput
from vauban.report.numbers import asked_radius, confidence, mean_radius, percent, percent_up, short_median


def parse_radii(text: str | None) -> list[float] | None:
    """Read radii separated by commas."""
    if text is None:
        return None
    try:
        radii = [float(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"--radii {text}: numbers separated by commas are needed, for example 0,0.25,0.5") from None
    if any(not 0 <= r < float("inf") for r in radii):
        raise BadInput(f"--radii {text}: radii are at least 0")
    return radii


def nice_radii(certs: Claims, most: int = 8) -> list[float]:
    """Round numbers from 0 to the largest certified radius, in at most `most` steps."""
    return round_numbers(float(np.nanmax(certs.radius, initial=0.0)), certs.threat.integer, most)


def round_numbers(largest: float, whole: bool, most: int = 8) -> list[float]:
    """0 and the multiples of a round step up to `largest`, at most `most` of them; an infinite one counts as the largest float.

    >>> round_numbers(1.3, whole=False), round_numbers(2.7e30, whole=True)
    ([0.0, 0.25, 0.5, 0.75, 1.0, 1.25], [0.0, 5e+29, 1e+30, 1.5e+30, 2e+30, 2.5e+30])
    """
    finite, digits = min(largest, sys.float_info.max), ("1", "2", "5") if whole else ("1", "2.5", "5")
    powers = range(0 if whole else -6, sys.float_info.max_10_exp)
    steps = (Decimal(f"{digit}e{power}") for power in powers for digit in digits)
    step = next(s for s in steps if finite / float(s) <= most)
    return [float(i * step) for i in range(int(finite / float(step)) + 1)]


def summarised(certs: Certificates, radii: ArrayLike, rho: float, method: str) -> dict[str, Any]:
    """Everything a table shows of certificates, as plain numbers: `Certificates.summary`."""
    margin = certs.by_margin()
    return {
        "inputs": len(certs),
        "k": certs.k,
        "alpha": certs.alpha,
        "bounds": certs.bounds,
        "threat": certs.threat.name,
        "exact": certs.exact,
        "labels": "given" if certs.record is None else certs.record.method.settings.label,
        "votes_per_input": certs.votes_per_input,
        "base_accuracy": certs.base_accuracy,
        "clean_accuracy": certs.clean_accuracy,
        "undecided": certs.undecided,
        "certified_elsewhere": certs.certified_elsewhere,
        "median_radius": number_or_none(certs.median_radius),
        "average_radius": number_or_none(certs.average_radius),
        "rho": rho,
        "dataset_claim": method,
        "certified": [
            {"radius": float(r), "accuracy": certs.accuracy(r), "at_least": certs.accuracy_claim(r, rho, method)}
            | ({} if margin is None else {"by_margin": margin.accuracy(r)})
            for r in np.asarray(radii, dtype=float)
        ],
        "notes": list(certs.notes),
    }


def number_or_none(value: float) -> float | None:
    """The number, None for NaN."""
    return None if np.isnan(value) else value


def average_text(value: float | None) -> str:
    """An average radius in a table."""
    return "none: a radius is infinite" if value is None else mean_radius(value)


def title_of(certs: Certificates) -> str:
    """One line that describes certificates: data set, smoothing, votes."""
    record = certs.record
    about = f"{certs.law.spec}" if record is None else f"{record.manifest.data.spec}, {record.manifest.smoothing}"
    title = f"{about}, {certs.votes_per_input:,.0f} votes per input"
    stop = None if record is None else record.manifest.settings.stop
    title += ", exact" if certs.exact else "" if stop in (None, "fixed") else f", {stop}"
    if record is None or record.manifest.compute.backend is None:
        return title
    return f"{title}, {record.manifest.compute.precision} by {record.manifest.backend}"


def headers(summary: dict[str, Any]) -> list[str]:
    """The column titles of `rows`; exact claims have no column for a confidence bound."""
    columns = [f"top {summary['k']} of {summary['inputs']} inputs"]
    if not summary["exact"]:
        return [*columns, "these", f"proven at {confidence(summary['rho'])}"]
    return [*columns, "exact", "by the papers' margin"] if _two_bounds(summary) else [*columns, "exact"]


def _two_bounds(summary: dict[str, Any]) -> bool:
    return any("by_margin" in line for line in summary["certified"])


def _without_radius(summary: dict[str, Any]) -> str:
    """What inputs without a radius are called: not undecided where labels are given, since votes may be clearly for another."""
    if summary["exact"]:
        return "not in the top k"
    return "not certified" if summary["labels"] == "given" else "undecided"


def rows(summary: dict[str, Any]) -> list[list[str]]:
    """The table rows of a `Certificates.summary`: name, value on these inputs, and proven bound (or the margin's value)."""
    median = summary["median_radius"]
    lines = [
        ["base classifier on views", percent(summary["base_accuracy"]), ""],
        ["clean accuracy (most voted)", percent(summary["clean_accuracy"]), ""],
        [_without_radius(summary), percent_up(summary["undecided"]), ""],
    ]
    if summary["certified_elsewhere"]:
        lines.append(["certified for another label", percent_up(summary["certified_elsewhere"]), ""])
    for line in summary["certified"]:
        beside = line.get("by_margin", line["at_least"])
        lines.append(
            [f"certified at radius {asked_radius(line['radius'])}", percent(line["accuracy"]), percent(beside)]
        )
    lines.append(["median radius", "none" if median is None else short_median(median), ""])
    lines.append(["average radius", average_text(summary["average_radius"]), ""])
    return lines if not summary["exact"] or _two_bounds(summary) else [line[:2] for line in lines]
