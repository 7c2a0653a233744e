"""Pictures and tables from what figures.py wrote: python benchmarks/attacks/draw.py FOLDER [--out FOLDER]."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CURVES = {
    "figure-6.7": ("figure-6.7b", "L-infinity distance", ("mnist-band-linf", "mnist-undefended-linf")),
    "figure-6.7-cifar": ("figure-6.7b-cifar", "L-infinity distance", ("cifar-band-linf", "cifar-undefended-linf")),
    "figure-5.5": (
        "figure-5.5",
        "1-Wasserstein distance, ground metric l2",
        ("smoothed", "undefended", "binarised", "linf-adversarial", "wasserstein-adversarial"),
    ),
    "figure-5.6": (
        "figure-5.6",
        "1-Wasserstein distance, ground metric l2",
        ("cifar-smoothed", "cifar-undefended"),
    ),
    "undefended": ("undefended", "distance", ("l1", "l2")),
}
"""Of each piece the picture, its axis and its parts."""


def main() -> None:
    """Draw and print everything that is there."""
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("folder", type=Path)
    read.add_argument("--out", type=Path)
    given = read.parse_args()
    out = given.out or given.folder
    out.mkdir(parents=True, exist_ok=True)
    for piece, (name, axis, parts) in CURVES.items():
        found = {part: said for part in parts if (said := read_part(given.folder, piece, part)) is not None}
        if found:
            curves(out / f"{name}.png", axis, found)
    for lines in (alarm_rows(given.folder), ablation_rows(given.folder), patch_rows(given.folder)):
        print(*lines, sep="\n", end="\n\n")


def read_part(folder: Path, piece: str, part: str) -> dict[str, Any] | None:
    """What a part wrote; None if it did not."""
    file = folder / piece / f"{part}.json"
    return json.loads(file.read_text()) if file.exists() else None


def curves(path: Path, axis: str, found: dict[str, dict[str, Any]]) -> None:
    """Accuracy under attack of several classifiers against the size of the attack."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), dpi=150)
    axes = figure.subplots()
    for part, said in found.items():
        points = said["curve"]
        axes.plot(
            [p["radius"] for p in points], [p["under_attack"] for p in points], label=f"{part} ({said['attacked']})"
        )
    axes.set_xlabel(axis)
    axes.set_ylabel("accuracy under attack")
    axes.legend()
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.25)
    figure.tight_layout()
    figure.savefig(path)
    print(f"{path}: {', '.join(found)}")


def table(header: str, rows: Iterable[Iterable[Any]]) -> list[str]:
    """Lines of a Markdown table."""
    columns = header.split("|")
    start = ["| " + " | ".join(column.strip() for column in columns) + " |", "|" + " --- |" * len(columns)]
    return start + ["| " + " | ".join(map(str, row)) + " |" for row in rows]


def alarm_rows(folder: Path) -> list[str]:
    """One line for each law."""
    rows = []
    for file in sorted((folder / "alarms").glob("*.json")):
        said = json.loads(file.read_text())
        kind = "exact" if said["exact"] else "sampled"
        law, views = f"`{said['law']}`", f"{said['views']:,}"
        gap = [number(said[key]) for key in ("median_radius", "median_distance", "median_gap")]
        done = f"{said['attacked']} of {said['inputs']}"
        rows.append([law, kind, done, said["found"], *gap, views, number(said["seconds"]), len(said["alarms"])])
    header = "law | kind | attacked | found | median radius | median attack | median gap | views | seconds | alarms"
    return table(header, rows)


def ablation_rows(folder: Path) -> list[str]:
    """Table 2.2: the search and the literal protocol."""
    rows = []
    for piece, part in (("table-2.2", "search"), ("table-2.2-literal", "literal")):
        said = read_part(folder, piece, part)
        if said is not None:
            inputs = said.get("attacked", len(said["distance"]))
            votes = said.get("views", said.get("votes", 0))
            rows.append(
                [part, inputs, number(said.get("median_certified")), number(said["median_attack"]), f"{votes:,}"]
            )
    return table("protocol | pictures | median certified | median attack | votes", rows)


def patch_rows(folder: Path) -> list[str]:
    """Figure 6.7 (a): accuracy under a 5 x 5 patch."""
    rows = []
    for piece in ("figure-6.7", "figure-6.7-cifar"):
        for file in sorted((folder / piece).glob("*-patch.json")):
            said = json.loads(file.read_text())
            clean, five = said["curve"]
            share = [
                f"{100 * value:.1f} %" for value in (clean["under_attack"], five["under_attack"], five["certified"])
            ]
            rows.append([file.stem.removesuffix("-patch"), said["attacked"], *share])
    return table("classifier | attacked | right | under a 5 x 5 patch | certified at 5", rows)


def number(value: float | None) -> str:
    """Four digits, or none."""
    return "none" if value is None else f"{value:.4g}"


if __name__ == "__main__":
    main()
