"""Entries of learning curves: agents trained over a grid, weights chosen on seeds that are not reported, areas with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vauban.errors import BadInput
from vauban.reproduce.agents import train
from vauban.reproduce.entry import Entry
from vauban.reproduce.made_by import commands_of_agents, matches, options_text
from vauban.reproduce.naming import file_name
from vauban.reproduce.outcome import Outcome, write

if TYPE_CHECKING:
    from vauban.rl.curves import Curves
    from vauban.rl.recipes import Plan

FIRST_CHOOSING_SEED = 1_000
"""Seeds that choose begin here, so that none of them is ever reported."""


@dataclass(frozen=True)
class Candidate:
    """One value of an arm's sweep at a point of the grid: an algorithm with settings on an environment."""

    out: Path
    env: str
    point: str
    algo: str
    settings: Mapping[str, Any]
    label: str
    length: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What tells its folder apart; arms that train the same share it."""
        return file_name([self.algo, *(f"{key}-{value}" for key, value in sorted(self.settings.items()))])

    def folder(self, choosing: bool = False) -> Path:
        """The run folder of its reported seeds, or of those that choose."""
        return self.out / ("choosing" if choosing else "runs") / self.point / self.name

    def plan(self, together: bool) -> Plan:
        """What is trained."""
        from vauban.rl.recipes import plan

        given = self.length
        return plan(
            self.algo, self.env, dict(self.settings), given.get("steps"), given.get("every"), given.get("episodes"),
            str(given.get("precision", "fp32")) if together else "fp32", together, given.get("envs"),
        )  # fmt: skip


@dataclass(frozen=True)
class Training:
    """Seeds of a candidate, and whether they only choose."""

    candidate: Candidate
    seeds: tuple[int, ...]
    choosing: bool = False

    @property
    def folder(self) -> Path:
        return self.candidate.folder(self.choosing)

    @property
    def complete(self) -> bool:
        """Whether every seed is trained to its end."""
        from vauban.rl.curves import MANIFEST, curve_file, read_manifest
        from vauban.rl.training import is_complete

        if not (self.folder / MANIFEST).exists():
            return False
        steps = int(read_manifest(self.folder)["steps"])
        return all(is_complete(curve_file(self.folder, seed), steps) for seed in self.seeds)


@dataclass(frozen=True)
class Arm:
    """A line of the figure at a point of the grid: one candidate, or the best of several by seeds that are not reported."""

    label: str
    candidates: tuple[Candidate, ...]

    def chosen(self, seeds: Sequence[int]) -> Candidate | None:
        """The candidate with the largest mean area over `seeds`; None while one of them is not trained to its end."""
        from vauban.rl.curves import read_run

        if len(self.candidates) == 1:
            return self.candidates[0]
        if not all(Training(one, tuple(seeds), True).complete for one in self.candidates):
            return None
        return max(self.candidates, key=lambda one: float(read_run(one.folder(True)).only(seeds).areas.mean()))


def arms(entry: Entry, out: Path, only: Mapping[str, str]) -> dict[str, list[Arm]]:
    """The arms of every point of the grid that is asked for, by the point's name."""
    found = {}
    for point in entry.points():
        if matches(point, only):
            name = _name(point)
            found[name] = [
                arm for said in entry.rl["arm"] if _fits(said, point) for arm in _arms(entry, out, name, point, said)
            ]
    return found


def _name(point: Mapping[str, Any]) -> str:
    return file_name([f"{axis}-{value}" for axis, value in point.items()] or ["run"])


def _fits(said: Mapping[str, Any], point: Mapping[str, Any]) -> bool:
    return all(str(point.get(axis)) == str(value) for axis, value in said.get("at", {}).items())


def _arms(entry: Entry, out: Path, name: str, point: Mapping[str, Any], said: Mapping[str, Any]) -> list[Arm]:
    """An arm of the file: one for each value of its sweep, or with `choose` one among which to choose."""
    sweep = said.get("sweep", {})
    candidates = []
    for values in product(*sweep.values()):
        own = dict(zip(sweep, values, strict=True))
        settings = {**entry.rl.get("set", {}), **said.get("set", {}), **own}
        label = str(said["label"]).format(**{**point, **settings})
        env = str(entry.rl["env"]).format(**point)
        candidates.append(Candidate(out, env, name, said["algo"], settings, label, entry.rl))
    if said.get("choose"):
        chosen = dict.fromkeys(sweep, "chosen")
        return [Arm(str(said["label"]).format(**{**point, **said.get("set", {}), **chosen}), tuple(candidates))]
    return [Arm(one.label, (one,)) for one in candidates]


def seeds_of(entry: Entry, asked: int | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The seeds that are reported, and those that choose."""
    count, choosing = asked or int(entry.rl.get("seeds", 5)), int(entry.rl.get("choose_seeds", 3))
    if count > FIRST_CHOOSING_SEED:
        raise BadInput(
            f"--seeds {count}: seeds from {FIRST_CHOOSING_SEED} on choose and are not reported; give {FIRST_CHOOSING_SEED} or "
            "fewer"
        )
    return tuple(range(count)), tuple(range(FIRST_CHOOSING_SEED, FIRST_CHOOSING_SEED + choosing))


def train_all(entry: Entry, out: Path, options: Any, between: Callable[[], None] = lambda: None) -> None:
    """Train what is missing: first the arms that are fixed and the seeds that choose, then what was chosen. `between` the two it
    may stop: an interrupt can be lost in a callback of Python's own."""
    points, (seeds, choosing) = arms(entry, out, options.only), seeds_of(entry, options.rl_seeds)
    every = [arm for some in points.values() for arm in some]
    fixed = [Training(arm.candidates[0], seeds) for arm in every if len(arm.candidates) == 1]
    swept = [Training(one, choosing, True) for arm in every if len(arm.candidates) > 1 for one in arm.candidates]
    train([*fixed, *swept], options)
    between()
    chosen = [arm.chosen(choosing) for arm in every if len(arm.candidates) > 1]
    train([Training(one, seeds) for one in chosen if one is not None], options)


def finish(entry: Entry, out: Path, options: Any) -> Outcome:
    """Read what is trained, compare areas, draw one figure for each point of the grid, and write the page.

    Points of earlier calls are shown too; `missing` is about those that this call asks for.
    """
    seeds, choosing = seeds_of(entry, options.rl_seeds)
    outcome = Outcome(entry, out, quick=options.quick, options=options_text(options))
    outcome.missing = missing(entry, out, options)
    groups: dict[str, list[Curves]] = {}
    for name, some in arms(entry, out, {}).items():
        shown, _ = _read(some, seeds, choosing)
        outcome.learned += _rows(name, shown, choosing)
        try:
            outcome.pictures += [_draw(entry, out, name, shown)] if shown else []
        except ImportError as problem:  # areas need no Matplotlib
            options.say(f"no picture of {name}: {problem}")
        for arm, _, curves in shown:
            groups.setdefault(arm.label, []).append(curves)
    if len({row["point"] for row in outcome.learned}) > 1:
        outcome.learned += _pooled(groups)
    there = {*arms(entry, out, options.only), *(row["point"] for row in outcome.learned)}
    outcome.commands = commands_of_agents(entry, options, [point for point in entry.points() if _name(point) in there])
    write(outcome)
    return outcome


def missing(entry: Entry, out: Path, options: Any) -> list[str]:
    """The arms that are not trained to their end, of the points that are asked for."""
    found = {
        name: _read(some, *seeds_of(entry, options.rl_seeds))[1]
        for name, some in arms(entry, out, options.only).items()
    }
    return [f"{name}: {label}" for name, labels in found.items() for label in labels]


def _read(
    some: Sequence[Arm], seeds: tuple[int, ...], choosing: Sequence[int]
) -> tuple[list[tuple[Arm, Candidate, Curves]], list[str]]:
    """The curves of arms as far as they are trained, and the labels of arms that are not trained to their end."""
    from vauban.rl.curves import read_run

    shown, missing = [], []
    for arm in some:
        one = arm.chosen(choosing)
        if one is None or not Training(one, seeds).complete:
            missing.append(arm.label)
        if one is not None and one.folder().exists():
            with suppress(BadInput):  # no curve yet
                shown.append((arm, one, read_run(one.folder()).only(seeds)))
    return shown, missing


def _rows(name: str, shown: Sequence[tuple[Arm, Candidate, Curves]], choosing: Sequence[int]) -> list[dict[str, Any]]:
    """A line for each arm at a point, over the steps that all of them reached; the first is the one others are compared with."""
    from vauban.rl.statistics import difference

    if not shown:
        return []
    until = min(int(curves.steps[-1]) for _, _, curves in shown)
    cut = [(arm, one, curves.until(until)) for arm, one, curves in shown]
    first = cut[0][2].areas
    rows = []
    for arm, one, curves in cut:
        gain = difference([curves.areas], [first])
        rows.append({
            "point": name, "arm": arm.label, **_estimates([curves.areas]), "steps": until, "seeds": len(curves.seeds),
            "last": float(curves.values[:, -1].mean()), "seconds_per_seed": float(curves.seconds.mean()),
            "gain": None if curves is cut[0][2] else [gain.value, _plain(gain.low), _plain(gain.high)],
            "chosen": {} if len(arm.candidates) == 1 else {"by_seeds": list(choosing), "label": one.label, **one.settings},
        })  # fmt: skip
    return rows


def _pooled(groups: Mapping[str, Sequence[Curves]]) -> list[dict[str, Any]]:
    """A line over all environments for each arm that every one of them has: seeds are drawn within each environment."""
    most = max(len(some) for some in groups.values())
    return [
        {"point": "all", "arm": label, **_estimates([curves.areas for curves in some]), "steps": None,
         "seeds": sum(len(curves.seeds) for curves in some), "last": None, "gain": None, "chosen": {}}
        for label, some in groups.items() if len(some) == most and len({curves.what for curves in some}) == 1
    ]  # fmt: skip


def _estimates(areas: Sequence[Any]) -> dict[str, Any]:
    from vauban.rl.statistics import estimate, interquartile_mean

    mean, middle = estimate(areas), estimate(areas, interquartile_mean)
    return {
        "area": mean.value, "area_interval": [_plain(mean.low), _plain(mean.high)],
        "iqm": middle.value, "iqm_interval": [_plain(middle.low), _plain(middle.high)],
    }  # fmt: skip


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value


def _draw(entry: Entry, out: Path, name: str, shown: Sequence[tuple[Arm, Candidate, Curves]]) -> Path:
    from dataclasses import replace

    from vauban.rl.curves import draw
    from vauban.rl.evaluating import greedy_levels

    env = shown[0][1].env
    lines = {one.name: replace(curves, label=one.label) for _, one, curves in shown}  # an arm may have chosen another's
    levels = {}
    if entry.rl.get("greedy"):
        with suppress(BadInput):  # an environment without such an agent
            levels = greedy_levels([env])
    path = out / f"figure-{name}.png"
    draw(path, list(lines.values()), title=f"{entry.title}: {env}", levels=levels)
    return path
