"""A summary of poisoning certificates as the lines of a table."""

from __future__ import annotations

from typing import Any

from vauban.report.numbers import percent, percent_up
from vauban.report.summary import average_text


def headers(summary: dict[str, Any]) -> list[str]:
    """The columns of `rows`."""
    return [
        f"top {summary['k']} of {summary['inputs']} inputs, {summary['models']:,} models, {summary['aggregate']}",
        "exact",
    ]


def rows(summary: dict[str, Any]) -> list[list[str]]:
    """A summary (`PoisoningCertificates.summary`) as lines of a table; without true labels, how many inputs are abstained."""
    if "certified" not in summary:
        return [["abstained", percent_up(summary["abstained"])]]
    median = summary["median_radius"]
    return [
        ["base classifiers, one by one", percent(summary["base_accuracy"])],
        ["clean accuracy", percent(summary["clean_accuracy"])],
        *([f"certified at radius {row['radius']:,}", percent(row["accuracy"])] for row in summary["certified"]),
        ["median radius", "none" if median is None else f"{median:,}"],
        ["average radius", average_text(summary["average_radius"])],
    ]
