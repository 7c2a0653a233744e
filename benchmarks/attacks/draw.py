"""Pictures and tables from what figures.py wrote: python benchmarks/attacks/draw.py FOLDER [--out FOLDER]."""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Curves:
    """A picture of accuracy under attack: its file, title and axis, of each part its label, and the sizes its table names."""

    name: str
    title: str
    axis: str
    parts: dict[str, str]
    sizes: tuple[float, ...]


ROUNDING = 2e-7
"""Of distances between 8-bit pictures as float32 numbers."""
WASSERSTEIN = "1-Wasserstein distance, ground metric l2"
LINF = "L-infinity distance"
COLUMNS = "columns of 4, threshold 0.3"
CURVES = {
    "figure-6.7": Curves(
        "figure-6.7b",
        "MNIST under L-infinity attacks",
        LINF,
        {"mnist-band-linf": COLUMNS, "mnist-undefended-linf": "undefended"},
        (4 / 255, 8 / 255, 16 / 255),
    ),
    "figure-6.7-cifar": Curves(
        "figure-6.7b-cifar",
        "CIFAR-10 under L-infinity attacks (Figure 6.7 b)",
        LINF,
        {"cifar-band-linf": COLUMNS, "cifar-undefended-linf": "undefended"},
        (1 / 255, 4 / 255, 8 / 255),
    ),
    "figure-5.5": Curves(
        "figure-5.5",
        "MNIST under Wasserstein attacks (Figures 5.5 and D.1)",
        WASSERSTEIN,
        {
            "smoothed": "flow smoothing, sigma 0.01",
            "wasserstein-adversarial": "adversarially trained, Wasserstein",
            "linf-adversarial": "adversarially trained, L-infinity",
            "linf-provable": "provably L-infinity-robust, 0.1 (interval bounds)",
            "undefended": "undefended",
            "binarised": "binarised",
        },
        (0.05, 0.1, 0.2, 0.5, 1.0),
    ),
    "figure-5.6": Curves(
        "figure-5.6",
        "CIFAR-10 under Wasserstein attacks (Figure 5.6)",
        WASSERSTEIN,
        {
            "cifar-smoothed": "flow smoothing, sigma 0.0002",
            "cifar-undefended": "undefended",
            "cifar-adversarial": "adversarially trained, Wasserstein 0.02",
        },
        (0.001, 0.005, 0.01, 0.02),
    ),
    "undefended": Curves(
        "undefended",
        "An undefended network of CIFAR-10 under attack (Teng et al., Figure 6)",
        "distance",
        {"l1": "L1", "l2": "L2"},
        (0.1, 0.25, 0.5, 1.0, 2.0),
    ),
}


def main() -> None:
    """Draw and print everything that is there."""
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("folder", type=Path)
    read.add_argument("--out", type=Path)
    given = read.parse_args()
    out = given.out or given.folder
    out.mkdir(parents=True, exist_ok=True)
    for piece, picture in CURVES.items():
        found = {part: said for part in picture.parts if (said := read_part(given.folder, piece, part)) is not None}
        if found:
            found = {part: on_common(said, common(found.values())) for part, said in found.items()}
            draw(out / f"{picture.name}.png", picture, found)
            print(*curve_rows(picture, found), sep="\n", end="\n\n")
    for lines in (alarm_rows(given.folder), ablation_rows(given.folder), patch_rows(given.folder)):
        print(*lines, sep="\n", end="\n\n")


def read_part(folder: Path, piece: str, part: str) -> dict[str, Any] | None:
    """What a part wrote; None if it did not."""
    file = folder / piece / f"{part}.json"
    return json.loads(file.read_text()) if file.exists() else None


def common(parts: Iterable[dict[str, Any]]) -> set[int]:
    """The inputs that were attacked in every part: halves of a test set may differ in difficulty."""
    tried = [{i for i, done in zip(said["index"], said["tried"], strict=True) if done} for said in parts]
    return set.intersection(*tried)


def on_common(said: dict[str, Any], those: set[int]) -> dict[str, Any]:
    """What a part found on these inputs: how many, the median distance, and the curve."""
    rows = zip(said["index"], said["label"], said["truth"], said["distance"], strict=True)
    far = [(label == truth, math.inf if d is None else d) for i, label, truth, d in rows if i in those]
    curve = [
        {
            "radius": point["radius"],
            "under_attack": sum(right and d > point["radius"] + ROUNDING for right, d in far) / len(far),
        }
        for point in said["curve"]
    ]
    middle = statistics.median(d if right else 0.0 for right, d in far)
    return {"attacked": len(far), "median_distance": None if math.isinf(middle) else middle, "curve": curve}


def draw(path: Path, picture: Curves, found: dict[str, dict[str, Any]]) -> None:
    """Accuracy under attack of several classifiers against the size of the attack."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), dpi=150)
    axes = figure.subplots()
    for part, said in found.items():
        points = said["curve"]
        label = f"{picture.parts[part]} ({said['attacked']} pictures)"
        axes.plot([p["radius"] for p in points], [100 * p["under_attack"] for p in points], label=label)
    axes.set(xlabel=picture.axis, ylabel="accuracy under attack, %", title=picture.title, ylim=(0, 100), xlim=0)
    axes.legend()
    axes.grid(alpha=0.25)
    figure.tight_layout()
    figure.savefig(path)
    print(f"{path}: {', '.join(found)}")


def curve_rows(picture: Curves, found: dict[str, dict[str, Any]]) -> list[str]:
    """One line for each classifier: pictures, median distance, and accuracy under attack at some sizes."""
    rows = []
    for part, said in found.items():
        points = said["curve"]
        at = [
            max((p for p in points if p["radius"] <= size + 1e-9), key=lambda p: p["radius"]) for size in picture.sizes
        ]
        shares = [f"{100 * p['under_attack']:.1f} %" for p in at]
        right = f"{100 * points[0]['under_attack']:.1f} %"
        rows.append([picture.parts[part], said["attacked"], number(said["median_distance"]), right, *shares])
    sizes = " | ".join(f"at {size:.3g}" for size in picture.sizes)
    return table(f"classifier | attacked | median distance | not attacked | {sizes}", rows)


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
            clean, five = (point["under_attack"] for point in said["curve"])
            certified = [
                label == truth and radius is not None and radius >= 5
                for label, truth, radius, tried in zip(
                    said["label"], said["truth"], said["radius"], said["tried"], strict=True
                )
                if tried
            ]
            share = [f"{100 * value:.1f} %" for value in (clean, five, sum(certified) / len(certified))]
            rows.append([file.stem.removesuffix("-patch"), said["attacked"], *share])
    return table("classifier | attacked | right | under a 5 x 5 patch | certified at 5", rows)


def number(value: float | None) -> str:
    """Four digits, or none."""
    return "none" if value is None else f"{value:.4g}"


if __name__ == "__main__":
    main()
