"""Entries: one TOML file for each experiment, read and checked."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from vauban.errors import BadInput
from vauban.reproduce.checking import (
    RL_KEYS,
    check,
    listed,
    refuse_other_n,
    refuse_other_texts,
    refuse_unknown,
    refuse_unlike_a_table,
)
from vauban.reproduce.sharing import with_votes_of
from vauban.specs import Spec

WHAT = ("certified", "median", "predicted", "clean", "base", "attack-median", "under-attack")
"""Quantities that are compared: certified accuracy at a radius, median radius, accuracy with abstentions as errors, accuracy of
the most voted label, accuracy of the base classifier on views; of attacks their median distance and the accuracy under them."""

CLAIM_KEYS = ("k", "n", "alpha", "bounds", "threat", "smoothing", "aggregate", "mass", "labels")
"""What a claim can be derived for from votes that are there; mass = "inputs" takes the masses of the run's inputs, and
labels = "given" the true labels where the run's own claims are about labels that votes chose."""

_BEGIN_KEYS = {"recipe", "smoothing", "settings"}
_TRAIN_KEYS = {
    "printed",
    "printed_model",
    "model",
    "validate",
    "hold_out",
    "every",
    "limit",
    "data",
    "begin",
    "together",
    *_BEGIN_KEYS,
}
_CERTIFY_KEYS = {
    "inputs",
    "k",
    "n",
    "n0",
    "alpha",
    "bounds",
    "label",
    "stop",
    "precision",
    "data",
    "keep",
    "rows",
    "compile",
}
_CHOOSE_KEYS = {"inputs", "what", "radius", "k"}
_QUICK_KEYS = {"grid", "settings", "inputs", "n", "n0", "limit", "model", "smoothing", "rl"}


@dataclass(frozen=True)
class Published:
    """Numbers as they are printed. `over`: "radius" or an axis of the grid, whose values are `x`; without it `y` is one number.

    `at`: values of the grid's axes; where several runs fit, the best one counts, as where a paper reports the best of a sweep.
    `y`: percentages, or radii for "median". `inputs`: on how many inputs, for their standard error. `part`: "validation" compares
    the runs that choose among the grid.
    """

    source: str
    what: str
    y: tuple[float | None, ...]
    x: tuple[Any, ...] = ()
    over: str | None = None
    at: Mapping[str, Any] = field(default_factory=dict)
    radius: float = 0.0
    claim: Mapping[str, Any] = field(default_factory=dict)
    inputs: int | None = None
    part: str = "test"
    who: str = ""

    def setting(self, at: Mapping[str, Any]) -> list[str]:
        """What is compared, in words: values of axes, and what is claimed; an entry's note says whose labels."""
        return [f"{key} = {value}" for key, value in {**at, **self.claim}.items() if key != "labels"]

    def rows(self) -> Iterator[tuple[float | None, float, dict[str, Any]]]:
        """Every number with its radius and the values of axes that it is about."""
        for x, y in zip(self.x or (None,), self.y, strict=True):
            if self.over == "radius":
                yield y, float(x), dict(self.at)
            else:
                yield y, self.radius, {**self.at, **({} if self.over is None else {self.over: x})}


@dataclass(frozen=True)
class Picture:
    """A figure: one line for each of `lines`, which fix axes of the grid and what is claimed; or one for each run."""

    name: str
    title: str = ""
    lines: tuple[Mapping[str, Any], ...] = ()
    best: bool = False
    published: bool = True
    histogram: bool = False


@dataclass(frozen=True)
class Entry:
    """One experiment. `name`: its file's name. docs/reproduce.md explains every key."""

    name: str
    title: str
    source: str
    data: str = ""
    smoothing: str = ""
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    certify: Mapping[str, Any] = field(default_factory=dict)
    choose: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)
    rl: Mapping[str, Any] = field(default_factory=dict)
    prepare: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    analytic: str = ""
    needs: str = ""
    note: str = ""
    elsewhere: str = ""
    votes_of: str = ""
    published: tuple[Published, ...] = ()
    pictures: tuple[Picture, ...] = ()

    @property
    def kind(self) -> str:
        """How it is made: "analytic" (formulas only), "commands" (other commands of Vauban), "rl" (agents), or "runs"."""
        return "analytic" if self.analytic else "commands" if self.commands else "rl" if self.rl else "runs"

    @property
    def is_mnist(self) -> bool:
        """Whether it is small enough for a quick version on a CPU."""
        return self.kind == "runs" and Spec.parse(self.data).name == "mnist"

    @property
    def has_quick(self) -> bool:
        """Whether there is a quick version of it."""
        return self.is_mnist or (self.kind == "rl" and "rl" in self.quick)

    def points(self) -> list[dict[str, Any]]:
        """The combinations of the grid's values, in order: the first are the headline."""
        return [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]

    def located(self, folder: str | Path | None) -> Entry:
        """The same experiment with its data in this folder; without one, in a folder imagenet here."""
        there = str(folder or "imagenet")
        train, certify = ({**part} for part in (self.train, self.certify))
        for part in (train, certify):
            if "data" in part:
                part["data"] = str(part["data"]).replace("{folder}", there)
        return replace(self, data=self.data.replace("{folder}", there), train=train, certify=certify)

    def quickened(self) -> Entry:
        """The same experiment in about ten minutes on a CPU: fewer epochs, inputs and votes, and the first points of the grid."""
        if not self.has_quick:
            raise BadInput(
                f"{self.name} has no quick version: only entries on mnist and some of agents have one; leave --quick out"
            )
        given = self.quick
        grid = {axis: list(values)[:1] for axis, values in self.grid.items()} | dict(given.get("grid", {}))
        if self.kind == "rl":
            return replace(self, grid=grid, rl={**self.rl, **given["rl"]})
        settings = {**self.train.get("settings", {}), "epochs": 3, **given.get("settings", {})}
        train = {**self.train, "settings": settings, "limit": given.get("limit", 20_000)}
        for key in ("begin", "together"):
            train.pop(key, None)
        train |= {key: given[key] for key in ("model",) if key in given}
        certify = {**self.certify, "inputs": given.get("inputs", "::100")}
        sampled = "n" in self.certify
        certify |= {"n": given.get("n", 1_000)} if sampled else {}
        certify |= {"n0": given.get("n0", 100)} if "n0" in self.certify else {}
        choose = {**self.choose, "inputs": "50::100"} if self.choose else {}
        return replace(
            self,
            grid=grid,
            train=train,
            certify=certify,
            choose=choose,
            smoothing=given.get("smoothing", self.smoothing),
        )

    @property
    def together(self) -> dict[str, Sequence[Any]]:
        """The values of axes that one network is trained for: those named, or all of the grid."""
        given = self.train.get("together", [])
        return dict(given) if isinstance(given, Mapping) else {axis: self.grid[axis] for axis in given}

    def claimed_votes(self) -> set[int]:
        """The numbers of votes for which its published numbers and pictures name claims."""
        said = [*(one.claim for one in self.published), *(line for one in self.pictures for line in one.lines)]
        return {one["n"] for one in said if "n" in one}

    def with_votes(self, n: int) -> Entry:
        """The same experiment with n counted votes for each input, without what it says of numbers of votes that are no looks."""
        if self.kind != "runs" or "n" not in self.certify:
            raise BadInput(f"--votes {n}: [certify] of {self.name} has no n that it could replace: leave it out")
        made = replace(self, certify={**self.certify, "n": n})
        looks = _looks(made.certify)
        published = tuple(one for one in self.published if one.claim.get("n", n) in looks)
        shown = [
            replace(one, lines=tuple(line for line in one.lines if line.get("n", n) in looks)) for one in self.pictures
        ]
        pictures = tuple(new for new, old in zip(shown, self.pictures, strict=True) if new.lines or not old.lines)
        return replace(made, published=published, pictures=pictures)


def _looks(certify: Mapping[str, Any]) -> list[int]:
    """The numbers of votes at which runs with these settings keep counts."""
    from vauban.methods import CertifySettings

    return CertifySettings(n=certify["n"], keep=certify.get("keep")).looks()


def shipped() -> dict[str, Entry]:
    """The entries that come with Vauban, by name."""
    folder = files("vauban.reproduce") / "entries"
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".toml"))
    return {name[:-5]: parse(name[:-5], (folder / name).read_text(encoding="utf-8")) for name in names}


def find(name: str) -> Entry:
    """The shipped entry of this name, or the one in the file of this name."""
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise BadInput(f"{name} does not exist: give a .toml file, or a name out of vauban reproduce --list")
        return parse(path.stem, path.read_text(encoding="utf-8"))
    known = shipped()
    if name not in known:
        near = difflib.get_close_matches(name, known, 3)
        meant = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise BadInput(f"{name!r} is no entry{meant}: vauban reproduce --list shows all, and a .toml file is one too")
    return known[name]


def parse(name: str, text: str) -> Entry:
    """Read an entry; every key is checked, so that a misspelt one is not ignored."""
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise BadInput(f"{name}: this is no TOML ({problem})") from None
    said = with_votes_of(name, said)
    known = {one.name for one in fields(Entry)} - {"name", "pictures"} | {"picture"}
    refuse_unknown(name, said, known)
    for key in ("title", "source"):
        if not isinstance(said.get(key), str):
            raise BadInput(f"{name}: {key} is missing: an entry needs a title and the source of what it reproduces")
    for key, keys in (
        ("train", _TRAIN_KEYS),
        ("certify", _CERTIFY_KEYS),
        ("choose", _CHOOSE_KEYS),
        ("quick", _QUICK_KEYS),
        ("rl", RL_KEYS),
    ):
        refuse_unknown(f"{name}, [{key}]", said.get(key, {}), keys)
    for key in ("certify", "quick"):
        refuse_other_n(f"{name}, [{key}]", said.get(key, {}))
    refuse_other_texts(name, said)
    grid = said.get("grid", {})
    refuse_unlike_a_table(f"{name}, [grid]", grid)
    for axis, values in grid.items():
        if not isinstance(values, list):
            raise BadInput(f"{name}, [grid], {axis} = {values!r}: a list of values is needed")
    for key in ("prepare", "commands"):
        if not isinstance(said.get(key, []), list):
            raise BadInput(f'{name}, {key} = {said[key]!r}: a list of commands is needed, ["vauban …"]')
    refuse_unknown(f"{name}, [train.begin]", said.get("train", {}).get("begin", {}), _BEGIN_KEYS)
    entry = Entry(
        name,
        **{key: value for key, value in said.items() if key not in ("published", "picture", "prepare", "commands")},
        prepare=tuple(said.get("prepare", ())),
        commands=tuple(said.get("commands", ())),
        published=tuple(_published(name, one) for one in listed(f"{name}, published", said.get("published", []))),
        pictures=tuple(
            _picture(name, number, one)
            for number, one in enumerate(listed(f"{name}, picture", said.get("picture", [])), start=1)
        ),
    )
    check(entry)
    return entry


def read_only(texts: Sequence[str], entry: Entry) -> dict[str, str]:
    """Restrictions of the grid, each AXIS=VALUE."""
    found = {}
    for text in texts:
        axis, equals, value = text.partition("=")
        if not equals or axis not in entry.grid:
            raise BadInput(
                f"--only {text}: AXIS=VALUE is needed, with an axis out of {', '.join(entry.grid) or 'none'}"
            )
        if value not in map(str, entry.grid[axis]):
            raise BadInput(f"--only {text}: {entry.name} has {axis} = {', '.join(map(str, entry.grid[axis]))}")
        found[axis] = value
    return found


def _published(name: str, said: Mapping[str, Any]) -> Published:
    where = f"{name}, [[published]]"
    refuse_unknown(
        where, said, {"source", "what", "x", "y", "over", "at", "radius", "inputs", "part", "who", *CLAIM_KEYS}
    )
    refuse_other_n(where, said)
    y = said.get("y")
    values = tuple(y) if isinstance(y, list) else (y,)
    if said.get("what") not in WHAT:
        raise BadInput(f"{where}: what = {said.get('what')!r}; one of {', '.join(WHAT)} is needed")
    if "x" in said and len(said["x"]) != len(values):
        raise BadInput(f"{where}: {len(said['x'])} values x and {len(values)} values y: one y for each x is needed")
    if not said.get("source"):
        raise BadInput(f"{where}: source is missing: say in which table or section of which paper the numbers are")
    plain = {
        key: said[key] for key in ("source", "what", "over", "at", "radius", "inputs", "part", "who") if key in said
    }
    claim = {key: said[key] for key in CLAIM_KEYS if key in said}
    shown = tuple(None if value in (None, "none") else float(value) for value in values)
    return Published(**plain, y=shown, x=tuple(said.get("x", ())), claim=claim)


def _picture(name: str, number: int, said: Mapping[str, Any]) -> Picture:
    where = f"{name}, [[picture]]"
    refuse_unknown(where, said, {one.name for one in fields(Picture)})
    lines = tuple(listed(f"{where}, lines", said.get("lines", [])))
    for line in lines:
        refuse_unlike_a_table(f"{where}, lines", line)
        refuse_other_n(f"{where}, lines", line)
    values = dict(said) | {"lines": lines}
    return Picture(**{"name": f"figure-{number}", **values})
