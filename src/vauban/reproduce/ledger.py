"""The table "published against Vauban" over all entries, from stored results, written into pages between marks."""

from __future__ import annotations

import os.path
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vauban.errors import BadInput
from vauban.files import read_json, replace_file
from vauban.report.numbers import asked_radius
from vauban.reproduce.comparing import Compared, Opened, cells, compare
from vauban.reproduce.entry import Entry, Published, shipped
from vauban.reproduce.outcome import PAGE, RESULTS

SECTIONS = {
    "Gaussian noise, L2 and top k": ("gaussian-cifar10", "gaussian-imagenet"),
    "Ablation, L0 and top k": (
        "ablation-cifar10-top-k",
        "ablation-cifar10-retained",
        "ablation-imagenet-top-k",
        "gaussian-cifar10-as-l0",
        "discrete-cifar10",
    ),
    "Laplace noise, L1": (
        "laplace-regions",
        "laplace-binary",
        "laplace-rops",
        "laplace-cifar10-type1",
        "laplace-cifar10-type2",
        "gaussian-cifar10-as-l1",
    ),
    "Thesis, chapter 2: ablation": (
        "ablation-delta",
        "ablation-mnist",
        "ablation-mnist-sweep",
        "ablation-cifar10",
        "ablation-cifar10-resnet50",
        "ablation-imagenet",
        "discrete-mnist",
        "ablation-null-mnist",
        "ablation-null-cifar10",
        "attack-pointwise-mnist",
    ),
    "Thesis, chapter 3: splitting, L1": (
        "splitting-cifar10-lattice",
        "splitting-cifar10-sampled",
        "splitting-cifar10-offsets",
        "uniform-cifar10",
        "uniform-cifar10-stability",
        "splitting-imagenet",
    ),
    "Thesis, chapter 4: fractional Lp and exact L0": (
        "fractional-designs",
        "fractional-half-cifar10-lattice",
        "fractional-half-cifar10-large-lattice",
        "fractional-third-cifar10-lattice",
        "fractional-half-cifar10-forms",
        "fractional-baseline-cifar10",
        "fractional-imagenet",
        "sparse-cifar10-pixel",
        "sparse-cifar10-feature",
    ),
    "Thesis, chapter 5: Wasserstein": (
        "flow-mnist",
        "laplace-wasserstein-mnist",
        "flow-cifar10",
        "attack-wasserstein-mnist",
    ),
    "Thesis, chapter 6: patches": (
        "band-mnist",
        "band-mnist-margin",
        "band-mnist-sizes",
        "block-mnist",
        "row-mnist",
        "multi-band-mnist",
        "multi-block-mnist",
        "band-sampled-mnist",
        "ablation-as-patch-mnist",
        "band-cifar10",
        "band-cifar10-sizes",
        "block-cifar10",
        "band-sampled-cifar10",
        "ablation-as-patch-cifar10",
        "band-imagenet",
        "attack-patches-cifar10",
    ),
    "Thesis, chapter 7: poisoning": (
        "dpa-mnist",
        "ss-dpa-mnist",
        "label-flips-mnist",
        "repeated-samples-mnist",
        "dpa-cifar10",
        "dpa-cifar10-kernel",
        "ss-dpa-cifar10",
        "dpa-gtsrb",
        "ss-dpa-gtsrb",
        "ss-dpa-mnist-hash",
        "ss-dpa-cifar10-hash",
        "ss-dpa-gtsrb-hash",
        "dpa-mnist-seeds",
        "ss-dpa-mnist-seeds",
        "dpa-cifar10-seeds",
        "ss-dpa-cifar10-seeds",
        "dpa-gtsrb-seeds",
        "ss-dpa-gtsrb-seeds",
    ),
    "Thesis, chapter 8: goals": (
        "thesis-8.2",
        "thesis-8.3",
        "thesis-8.4",
        "thesis-g.1",
        "thesis-g.2",
        "thesis-g.5",
        "thesis-g.5-reach",
        "thesis-g.6",
        "thesis-g.7",
        "thesis-g.10",
        "thesis-g.11",
        "thesis-g.13",
    ),
}
"""Which entries stand together; one that is named nowhere here comes last, under "Others"."""

HEADLINES = (
    "gaussian-cifar10",
    "ablation-cifar10-top-k",
    "ablation-mnist",
    "ablation-cifar10",
    "splitting-cifar10-lattice",
    "fractional-half-cifar10-lattice",
    "fractional-half-cifar10-large-lattice",
    "flow-mnist",
    "flow-cifar10",
    "band-mnist",
    "band-cifar10",
    "dpa-mnist",
    "ss-dpa-mnist",
    "dpa-cifar10-kernel",
)
"""Entries of the short table: the main row of each chapter and data set."""

NOT_MADE = "not made yet"
_HEAD = ("| entry | what | published | ours | difference |", "| --- | --- | --- | --- | --- |")
_MARKS = re.compile(r"(<!-- published: (all|made|short) -->\n).*?(<!-- published: end -->)", re.DOTALL)


@dataclass(frozen=True)
class Line:
    """One line of the table. `made`: whether ours is there."""

    what: str
    published: str
    ours: str
    difference: str
    made: bool


def results_of(entry: Entry, folder: Path) -> dict[str, Any] | None:
    """What `vauban reproduce` stored for an entry in a folder of results, None where it did not; quick versions do not count."""
    file = folder / entry.name / RESULTS
    if not file.is_file():
        return None
    found: dict[str, Any] = read_json(file)
    if found.get("quick"):
        return None
    wanted = sum(len(one.y) for one in entry.published)
    if entry.kind != "analytic" and len(found["compared"]) != wanted:
        raise BadInput(
            f"{file} compares {len(found['compared'])} numbers and the entry has {wanted}: run vauban reproduce "
            f"{entry.name} --out {file.parent} again, which keeps its runs"
        )
    return found


def lines_of(entry: Entry, found: Mapping[str, Any] | None) -> tuple[list[Line], int]:
    """The lines of an entry, and how many published numbers they leave out.

    One line for each [[published]] of test inputs: along a radius all of its numbers, along an axis of the grid those that are
    made, or else the one of the first point.
    """
    if entry.kind == "analytic":
        rows = [_row(said) for said in found["compared"]] if found else []
        return [_line([row], row.what) for row in rows] or [Line("figure from formulas", "", NOT_MADE, "", False)], 0
    rows = [_row(said) for said in found["compared"]] if found else compare(entry, [], Opened())
    lines, first, shown = [], 0, 0
    for one in entry.published:
        own = rows[first : first + len(one.y)]
        first += len(own)
        kept = _kept(entry, one, own)
        if kept:
            lines.append(_line(kept, _named(one, kept)))
            shown += len(kept)
    if not entry.published:
        made = bool(found and found["pictures"])
        lines.append(Line("curves; the paper prints no numbers", "", "figure" if made else NOT_MADE, "", made))
    return lines, len(rows) - shown


def short_lines(entry: Entry, found: Mapping[str, Any]) -> list[Line]:
    """Of accuracy, median radius and certified accuracy each the [[published]] of test inputs that is made, its first and last
    number; of several about the same claim the one whose last number is largest."""
    rows, first, lines = [_row(said) for said in found["compared"]], 0, dict[str, tuple[Published, float, Line]]()
    for one in entry.published:
        done = [row for row in rows[first : first + len(one.y)] if row.done]
        first += len(one.y)
        if done and one.part == "test" and one.what in ("predicted", "median", "certified"):
            ends = done if len(done) == 1 else [done[0], done[-1]]
            line, last = _line(ends, _named(one, ends, " … "), " … "), ends[-1].published or 0.0
            before = lines.get(one.what)
            if before is None or (one.claim == before[0].claim and one.at == before[0].at and last > before[1]):
                lines[one.what] = (one, last, line)
    return [line for _, _, line in lines.values()]


def _row(said: Mapping[str, Any]) -> Compared:
    return Compared(**{key: value for key, value in said.items() if key != "difference"})


def _kept(entry: Entry, one: Published, rows: Sequence[Compared]) -> list[Compared]:
    """The numbers of one [[published]] that have a place in the table."""
    done = [row for row in rows if row.done]
    if done:
        return list(rows) if one.over == "radius" else done
    part = "test" if any(other.part == "test" for other in entry.published) else "validation"
    if one.part != part or any(_first_named(entry, axis) != str(value) for axis, value in one.at.items()):
        return []
    axis = one.over if one.over != "radius" else None
    return [row for row in rows if axis is None or str(row.x) == str(entry.grid[axis][0])]


def _first_named(entry: Entry, axis: str) -> str:
    """The first value of an axis that a published number is at, in the order of the grid."""
    named = {str(one.at[axis]) for one in entry.published if axis in one.at}
    return next((str(value) for value in entry.grid[axis] if str(value) in named), "")


def _named(one: Published, rows: Sequence[Compared], between: str = " / ") -> str:
    """What a line is about, with its radii or the values of its axis."""
    said = one.setting(one.at)
    if one.over == "radius":
        said.append("radius " + between.join(asked_radius(row.radius) for row in rows))
    else:
        said += [f"{one.over} = {between.join(str(row.x) for row in rows)}"] if one.over else []
        said += [f"radius {asked_radius(one.radius)}"] if one.what == "certified" else []
    said += ["validation"] if one.part != "test" else []
    return ", ".join([rows[0].what, *said])


def _line(rows: Sequence[Compared], what: str, between: str = " / ") -> Line:
    texts = [cells(row) for row in rows]
    made = any(row.done for row in rows)
    columns = [between.join(text[place] or "-" for text in texts) for place in range(3)]
    if not made:
        return Line(what, columns[0], NOT_MADE, "", False)
    return Line(what, columns[0], columns[1], "" if columns[2] == "-" else columns[2], True)


def table(folder: Path, which: str = "all", link: str = "") -> str:
    """The table as Markdown. `which`: "all", "made" for the entries with results, or "short" for a few lines of each headline;
    `link`: from the page to `folder`."""
    entries = shipped()
    if which == "short":
        return "\n".join([_summary(entries.values(), folder), "", *_HEAD, *_short_rows(entries, folder, link), ""])
    named = {name for names in SECTIONS.values() for name in names}
    sections = {**SECTIONS, "Others": tuple(name for name in entries if name not in named)}
    parts: list[str] = []
    for title, names in sections.items():
        body = list(_rows_of([entries[name] for name in names], folder, which, link))
        if body:
            parts += [f"**{title}**", "", *_HEAD, *body, ""]
    return "\n".join([_summary(entries.values(), folder), "", *parts])


def _short_rows(entries: Mapping[str, Entry], folder: Path, link: str) -> Iterator[str]:
    for name in HEADLINES:
        found, title = results_of(entries[name], folder), f"[{name}]({link}{name}/{PAGE})"
        for line in short_lines(entries[name], found) if found else []:
            yield f"| {title} | {line.what} | {line.published} | {line.ours} | {line.difference} |"
            title = ""


def _rows_of(entries: Sequence[Entry], folder: Path, which: str, link: str) -> Iterator[str]:
    for entry in entries:
        found = results_of(entry, folder)
        if which == "made" and found is None:
            continue
        lines, left = lines_of(entry, found)
        if which == "made":
            lines = [line for line in lines if line.made]
        name = f"[{entry.name}]({link}{entry.name}/{PAGE})" if found else entry.name
        for number, line in enumerate(lines):
            more = f"; {left} more in the entry" if left and number == len(lines) - 1 else ""
            ours = line.ours if line.made else f"{line.ours}{_in_part(entry, link)}"
            shown = [name if number == 0 else "", f"{line.what}{more}", line.published, ours, line.difference]
            yield "| " + " | ".join(shown) + " |"


def _in_part(entry: Entry, link: str) -> str:
    """A link to the page of results on which a part of an entry is measured otherwise."""
    page = posixpath.normpath(f"{link}../{entry.elsewhere}")
    return f", in part: [{Path(entry.elsewhere).parent}]({page})" if entry.elsewhere else ""


def _summary(entries: Any, folder: Path) -> str:
    """How many numbers are made, and how many of those are not below the published one."""
    kept = [(entry, found) for entry in entries if (found := results_of(entry, folder))]
    rows = [_row(said) for entry, found in kept if entry.kind != "analytic" for said in found["compared"]]
    done = [row for row in rows if row.done and row.published is not None and row.part == "test"]
    reached = sum((row.ours or 0) >= row.published for row in done if row.published is not None)
    every = sum(
        1 for entry in entries for one in entry.published for y in one.y if y is not None and one.part == "test"
    )
    return (
        f"{len(kept)} of {len(entries)} entries have results. Of {every:,} published numbers about test inputs {len(done)} are "
        f"made, {reached} of them at the published number or above."
    )


def written(page: str, folder: Path, link: str) -> str:
    """A page with the table put between its marks anew; a page without marks is refused."""
    if not _MARKS.search(page):
        raise BadInput(
            "the page has no place for the table: write the lines <!-- published: all --> and <!-- published: end --> there"
        )
    return _MARKS.sub(lambda found: f"{found[1]}{table(folder, found[2], link)}\n{found[3]}", page)


def write(page: Path, folder: Path) -> None:
    """Write the table into a page."""
    replace_file(page, written(page.read_text(encoding="utf-8"), folder, link_from(page, folder)).encode())


def link_from(page: Path, folder: Path) -> str:
    """The path from a page to a folder, as links on the page are written."""
    return Path(os.path.relpath(folder.resolve(), page.resolve().parent)).as_posix() + "/"
