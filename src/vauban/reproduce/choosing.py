"""The choice of the run on test inputs by those on validation inputs: made once in a folder, kept, and said."""

from __future__ import annotations

import json
import re
from pathlib import Path

from vauban.files import in_turn, read_json, write_json
from vauban.reproduce import steps as doing
from vauban.reproduce.comparing import Opened, finished, measured
from vauban.reproduce.entry import Entry
from vauban.reproduce.outcome import PAGE
from vauban.reproduce.steps import Step

CHOSEN = "chosen.json"


def choose(entry: Entry, out: Path, seeds: int) -> list[Step]:
    """The runs on test inputs of the point that is best on validation inputs; the first choice of a folder is kept."""
    with in_turn(out / CHOSEN):
        if not (out / CHOSEN).exists():
            with in_turn(out / PAGE):  # others may pack what is read here
                scores = scores_of(entry, out, seeds, Opened())
            best = max(scores, key=lambda point: scores[point])
            for point in entry.points():
                if Step(entry, out, point).run.exists() and json.dumps(point) != best:  # an earlier version used it
                    best = json.dumps(point)
                    scores = {best: scores.get(best, 0.0)}
            write_json(out / CHOSEN, {"point": json.loads(best), "among": scores})
    return chosen_steps(entry, out, seeds)


def scores_of(entry: Entry, out: Path, seeds: int, opened: Opened) -> dict[str, float]:
    """What every point that is finished on validation inputs has there, by the point as JSON; the mean over seeds."""
    how, found = entry.choose, dict[str, list[float]]()
    every = [Step(entry, out, point, seed, "validation") for point in entry.points() for seed in seeds_made(out, seeds)]
    for step in finished(every):
        value, _ = measured(opened.claims(step, {}), how.get("what", "certified"), float(how.get("radius", 0)))
        found.setdefault(json.dumps(dict(step.point)), []).append(value or 0.0)
    return {point: sum(values) / len(values) for point, values in found.items()}


def chosen_steps(entry: Entry, out: Path, seeds: int) -> list[Step]:
    """The runs on test inputs of the point that was chosen; none before that."""
    if not entry.choose or not (out / CHOSEN).exists():
        return []
    return [Step(entry, out, read_json(out / CHOSEN)["point"], seed) for seed in range(seeds)]


def how_chosen(entry: Entry, out: Path, seeds: int, opened: Opened) -> str:
    """A sentence on the choice of the run on test inputs; empty where there is none."""
    if not entry.choose or not (out / CHOSEN).exists():
        return ""
    said, scores = read_json(out / CHOSEN), scores_of(entry, out, seeds, opened)
    among, own = said["among"], said["among"].get(json.dumps(said["point"]), 0.0)
    runs = "one run" if len(among) == 1 else f"{len(among)} runs"
    text = f"The run on test inputs was chosen by validation inputs alone, among {runs}"
    later = {point: score for point, score in scores.items() if point not in among}
    if not later:
        return f"{text}."
    better = [Step(entry, out, json.loads(point)).name for point, score in later.items() if score > own]
    text += f"; {len(later)} more made there later"
    return (
        f"{text}, of which {', '.join(better)} would have been chosen before it." if better else f"{text}, none better."
    )


def seeds_made(out: Path, least: int) -> range:
    """The first `least` seeds, and all up to the last of which there is a run."""
    names = " ".join(path.name for path in (out / doing.RUNS).glob("*"))
    return range(max([least, *(int(seed) + 1 for seed in re.findall(r"seed-(\d+)", names))]))
