"""The commands that make what a folder of results holds, for its page."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from vauban.files import read_json
from vauban.reproduce.steps import USED

if TYPE_CHECKING:
    from vauban.reproduce.entry import Entry
    from vauban.reproduce.running import Options
    from vauban.reproduce.steps import Step

Point = Mapping[str, Any]


def options_text(options: Options) -> str:
    """The options on which every result depends, as they are written."""
    seeds = options.rl_seeds or (options.seeds if options.seeds > 1 else None)
    return shlex.join([*_fixed(options), *(["--seeds", str(seeds)] if seeds else [])])


def in_place_of(entry: Entry, options: Options) -> str:
    """What the options of the command replace in an entry of runs, in sentences; empty where they replace nothing."""
    if entry.kind != "runs":
        return ""
    epochs = None if options.printed else entry.train.get("settings", {}).get("epochs")
    own, said = options.settings.get("epochs"), entry.certify.get("inputs") or "all"
    found = []
    if options.votes not in (None, entry.certify.get("n")):
        found.append(f"n = {options.votes:,} votes an input, in place of the entry's {entry.certify['n']:,}.")
    if options.inputs not in (None, said):
        found.append(f"The inputs {options.inputs or 'all'}, in place of the entry's {said}.")
    if own not in (None, epochs):
        whose = "recipe's" if epochs is None else f"entry's {epochs}"
        found.append(f"{own:g} epochs of training, in place of the {whose}.")
    return " ".join(found)


def commands_of_runs(entry: Entry, options: Options, steps: Collection[Step]) -> list[str]:
    """The commands that make these runs; runs on test inputs that are chosen come with those that choose."""
    part = "validation" if entry.choose else "test"
    made = [step for step in steps if step.part == part]
    commands = []
    for only, seeds in covering(entry.points(), [(step.point, step.seed) for step in made]):
        words = [*_only(only), *(["--seeds", str(seeds)] if seeds > 1 else [])]
        for step in made:
            if step.used is not None and not step.takes_shared and step.seed < seeds and matches(step.point, only):
                words += ["--use", f"{step.name}=FOLDER/{read_json(step.out / USED)[step.name]}"]
        shared = any(step.takes_shared and matches(step.point, only) for step in made)
        commands.append(_command(entry, options, words, entry.votes_of if shared else ""))
    return commands


def commands_of_agents(entry: Entry, options: Options, points: Sequence[Point]) -> list[str]:
    """The commands that train the agents at these points of the grid."""
    seeds = ["--seeds", str(options.rl_seeds)] if options.rl_seeds else []
    found = covering(entry.points(), [(point, 0) for point in points])
    return [_command(entry, options, [*_only(only), *seeds]) for only, _ in found]


def covering(points: Sequence[Point], made: Sequence[tuple[Point, int]]) -> list[tuple[dict[str, str], int]]:
    """Restrictions of the grid, each with a number of seeds, that give what is made, points with seeds, and nothing else.

    Each is the one that gives most of what is left; one of fewer axes where two give as much.

    >>> grid = [{"a": a, "b": b} for a in (1, 2) for b in (1, 2)]
    >>> covering(grid, [(point, 0) for point in grid])
    [({}, 1)]
    >>> covering(grid, [(grid[0], 0), (grid[1], 0), (grid[1], 1)])
    [({'a': '1'}, 1), ({'a': '1', 'b': '2'}, 2)]
    """
    wanted = {(_key(point), seed) for point, seed in made}
    left, found = set(wanted), []
    tried = {_key(only): only for point, _ in made for only in _restrictions(point)}
    gives = {}
    for name, only in tried.items():
        keys = [_key(point) for point in points if matches(point, only)]
        seeds = next(n for n in range(len(wanted) + 1) if any((key, n) not in wanted for key in keys))
        gives[name] = {(key, seed) for key in keys for seed in range(seeds)}, seeds
    while left:
        name = max(tried, key=lambda one: (len(gives[one][0] & left), -len(tried[one])))
        covered, seeds = gives[name]
        if not covered & left:  # a seed without those before it, whose runs were removed
            key, seed = min(left, key=lambda one: (str(one[0]), -one[1]))
            name, covered, seeds = key, {(key, n) for n in range(seed + 1)}, seed + 1
        found.append((tried[name], seeds))
        left -= covered
    return found


def matches(point: Point, only: Mapping[str, str]) -> bool:
    """Whether a point of the grid is one of those that --only asks for."""
    return all(str(point.get(axis)) == value for axis, value in only.items())


def _restrictions(point: Point) -> Iterator[dict[str, str]]:
    said = [(axis, str(value)) for axis, value in point.items()]
    return (dict(some) for count in range(len(said) + 1) for some in combinations(said, count))


def _key(point: Point) -> tuple[tuple[str, str], ...]:
    return tuple((axis, str(value)) for axis, value in point.items())


def _only(only: Mapping[str, str]) -> list[str]:
    return [word for axis, value in only.items() for word in ("--only", f"{axis}={value}")]


def _fixed(options: Options) -> list[str]:
    said = [f"--{name}" for name in ("quick", "printed") if getattr(options, name)]
    said += [word for key, value in options.settings.items() for word in (f"--{key}", f"{value:g}")]
    said += ["--inputs", options.inputs] if options.inputs is not None else []
    said += ["--votes", str(options.votes)] if options.votes is not None else []
    return said + (["--steps", str(options.rl_steps)] if options.rl_steps else [])


def _command(entry: Entry, options: Options, more: Sequence[str], votes_of: str = "") -> str:
    """The command that makes an entry; `votes_of`: with the one whose votes it takes, both in one folder."""
    folder = [] if options.folder is None else ["--data-folder", str(options.folder)]
    names = [*([votes_of] if votes_of else []), options.given or entry.name]
    words = ["vauban", "reproduce", *names, *_fixed(options), *folder, *more]
    return f"{shlex.join(words)} --out FOLDER"
