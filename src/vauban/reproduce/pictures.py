"""The pictures of an entry: curves of its runs with published numbers as crosses, and sweeps over an axis of its grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vauban.report.lines import Line, best_of, line_of_claims
from vauban.report.plots import COLOURS, draw, draw_histogram, write_all
from vauban.reproduce.comparing import Compared, Opened, finished
from vauban.reproduce.entry import CLAIM_KEYS, Entry, Picture
from vauban.reproduce.steps import Step

_MOST_LINES = 24
_DASHES = ("-", "--", ":", "-.")


def draw_all(entry: Entry, steps: Sequence[Step], rows: Sequence[Compared], opened: Opened, out: Path) -> list[Path]:
    """Draw every picture of an entry for which there are runs; returns the files."""
    written = []
    pictures = entry.pictures or (Picture("figure", lines=(), best=len(entry.points()) > 1),)
    for picture in pictures:
        lines = _lines(picture, [step for step in steps if step.part == "test"], opened)
        if not lines:
            continue
        title = picture.title or entry.title
        points = _points(entry, lines[0]) if picture.published and not picture.histogram else []
        drawn = draw_histogram(lines, title) if picture.histogram else draw(lines, title, points)
        written += write_all(drawn, lines, out / picture.name)
    written += draw_sweeps(rows, entry.title, out)
    return written


def _lines(picture: Picture, steps: Sequence[Step], opened: Opened) -> list[Line]:
    """The lines of a picture: each says which runs it is of, and what is claimed from their votes."""
    found: list[Line] = []
    for number, said in enumerate(picture.lines or ({},)):
        changes = {key: said[key] for key in CLAIM_KEYS if key in said}
        fitting = [
            s for s in finished(steps) if all(str(s.point.get(a)) == str(v) for a, v in said.items() if a in s.point)
        ]
        own = [_line(step, changes, opened, number) for step in _by_numbers(fitting)[:_MOST_LINES]]
        if said.get("best") and own:
            own = [replace(best_of(own), label=_label(said, {}))]
        elif "label" in said and len(own) == 1:
            own = [replace(own[0], label=said["label"])]
        found += own
    if len(picture.lines) <= 1:
        found = [replace(line, group=number) for number, line in enumerate(found)]
    named = _told_apart(found)
    certified = [line for line in named if line.kind == "certified"]
    return [*named, best_of(certified, "best of these")] if picture.best and len(certified) > 1 else named


def _by_numbers(steps: Sequence[Step]) -> list[Step]:
    """The steps by the numbers of their points, so that lines of neighbouring values have neighbouring colours and labels; an
    entry's grid is in the order of making. Texts stay in that order."""
    return sorted(steps, key=lambda step: [v if isinstance(v, int | float) else 0 for v in step.point.values()])


def _line(step: Step, changes: Mapping[str, Any], opened: Opened, group: int) -> Line:
    claims = opened.claims(step, changes)
    seed = {"seed": step.seed} if step.seed else {}
    label = _label({**step.point, **seed, **changes}, {}) or step.entry.name
    return replace(line_of_claims(claims, {}, group), label=label)


def _label(said: Mapping[str, Any], more: Mapping[str, Any]) -> str:
    if "label" in said:
        return str(said["label"])
    return ", ".join(f"{key} = {value}" for key, value in {**said, **more}.items() if key != "best")


def _told_apart(lines: Sequence[Line]) -> list[Line]:
    """The lines with a number behind a label that another one has too."""
    labels = [line.label for line in lines]
    return [
        replace(line, label=f"{line.label} ({labels[: i + 1].count(line.label)})")
        if labels.count(line.label) > 1
        else line
        for i, line in enumerate(lines)
    ]


def _points(entry: Entry, line: Line) -> list[tuple[str, list[float], list[float]]]:
    """The published certified accuracies in this threat, one series for each table, claim and training."""
    series = []
    for one in entry.published:
        if (
            one.what != "certified"
            or one.part != "test"
            or one.claim.get("threat", line.threat.name) != line.threat.name
        ):
            continue
        if one.over not in (None, "radius") or any(y is None for y in one.y):
            continue
        radii = [radius for _, radius, _ in one.rows()]
        told = ", ".join(f"{key} = {value}" for key, value in one.claim.items() if key != "threat")
        label = f"published{f', {told}' if told else ''}{f', {one.who}' if one.who else ''}"
        series.append((label, radii, [float(y) / 100 for y in one.y if y is not None]))
    return series


def draw_sweeps(rows: Sequence[Compared], title: str, out: Path) -> list[Path]:
    """For each axis that published numbers are printed along, ours and theirs against it; one panel for each quantity."""
    written = []
    for axis in dict.fromkeys(row.axis for row in rows if row.axis not in ("", "radius")):
        own = [row for row in rows if row.axis == axis]
        if not any(row.ours is not None for row in own):
            continue
        from matplotlib.figure import Figure

        names = list(dict.fromkeys(row.what for row in own))
        drawn = Figure(figsize=(5 * len(names), 4), dpi=150)
        for axes, name in zip(drawn.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            _panel(axes, [row for row in own if row.what == name], axis)
        drawn.suptitle(title, fontsize=10)
        drawn.tight_layout()
        path = out / f"sweep-{axis}.png"
        drawn.savefig(path)
        written.append(path)
    return written


def _panel(axes: Any, rows: Sequence[Compared], axis: str) -> None:
    """A line of published numbers and one of ours for each setting of the other axes, along `axis`."""
    numbers = all(isinstance(row.x, int | float) for row in rows)
    others = list(dict.fromkeys(_without(row, axis) for row in rows))
    for colour, attribute, marker in ((COLOURS[1], "published", "x"), (COLOURS[0], "ours", "o")):
        for number, other in enumerate(others):
            shown = [row for row in rows if getattr(row, attribute) is not None and _without(row, axis) == other]
            if numbers:
                shown = sorted(shown, key=lambda row: row.x)
            if not shown:
                continue
            x = [row.x if numbers else str(row.x) for row in shown]
            y = [getattr(row, attribute) for row in shown]
            errors = [row.error or 0.0 for row in shown] if attribute == "ours" else None
            look = {
                "color": colour,
                "ls": _DASHES[number % len(_DASHES)],
                "lw": 1,
                "marker": marker,
                "ms": 5,
                "capsize": 2,
            }
            label = f"{attribute}, {other}" if len(others) > 1 else attribute
            axes.errorbar(x, y, yerr=errors, label=label, **look)
    percent = "" if rows[0].quantity == "median" else " (%)"
    axes.set(xlabel=axis, ylabel=f"{rows[0].what}{percent}")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=7 if len(others) > 1 else None)


def _without(row: Compared, axis: str) -> str:
    """What a row is about, without the value on this axis."""
    return ", ".join(part for part in row.at.split(", ") if part != f"{axis} = {row.x}")
