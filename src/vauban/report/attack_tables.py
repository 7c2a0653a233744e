"""The table of an attack: certified accuracy and accuracy under attack at round radii, and the gap between them."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from vauban.report.numbers import asked_radius, percent, short_distance
from vauban.report.summary import round_numbers

if TYPE_CHECKING:
    from vauban.attacks.results import Attacked


def nice_radii(attacked: Attacked) -> list[float]:
    """Round numbers from 0 to the largest radius or distance, in at most 8 steps."""
    finite = attacked.distance[np.isfinite(attacked.distance)]
    largest = max(float(np.nanmax(attacked.radius, initial=0.0)), float(finite.max(initial=0.0)))
    return round_numbers(largest, attacked.threat.integer)


def headers(attacked: Attacked) -> list[str]:
    """The titles of the columns."""
    first = f"top {attacked.k} of {len(attacked)} inputs"
    under = f"under attack ({attacked.how_many})" if attacked.how_many else "under attack"
    return [first, under] if attacked.certs is None else [first, "certified", under]


def rows(attacked: Attacked, summary: dict[str, Any]) -> list[list[str]]:
    """The rows: one for each radius, then what was found."""
    both = attacked.certs is not None
    lines = []
    for line in summary["curve"]:
        proven = [percent(line["certified"])] if both else []
        lines.append([f"at radius {asked_radius(line['radius'])}", *proven, _under(line["under_attack"])])
    blank = [""] if both else []
    median = summary["median_distance"]
    what = "inputs with a confirmed other answer" + (" or abstention" if summary["abstentions"] else "")
    lines.append([what, *blank, f"{summary['found']} of {summary['attacked']}"])
    if summary["abstentions"]:
        lines.append(["of these abstentions", *blank, str(summary["abstentions"])])
    if summary["wrong_already"]:
        lines.append(["of these wrong without any change", *blank, str(summary["wrong_already"])])
    if summary["only_abstentions"]:
        lines.append(["found, but fresh votes only abstain", *blank, str(summary["only_abstentions"])])
    lines.append(
        ["median distance where a change was found", *blank, "none" if median is None else short_distance(median)]
    )
    if both:
        gap = summary["median_gap"]
        lines.append(["median gap, distance less radius", "", "none" if gap is None else short_distance(gap)])
    lines.append(["views", *blank, f"{summary['views']:,}"])
    return lines


def _under(fraction: float | None) -> str:
    return "none" if fraction is None else percent_up(fraction)


def percent_up(fraction: float) -> str:
    """A fraction in percent, rounded up: an upper bound.

    >>> percent_up(1 / 3), percent_up(0.5)
    ('33.34 %', '50.00 %')
    """
    return f"{Decimal(repr(100 * fraction)).quantize(Decimal('0.01'), ROUND_CEILING)} %"
