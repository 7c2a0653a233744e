"""Refuses entries with keys that none has, with values of another kind, or with parts that do not fit together."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import TYPE_CHECKING, Any

from vauban.errors import BadInput
from vauban.validation import is_whole

if TYPE_CHECKING:
    from vauban.reproduce.entry import Entry

RL_KEYS = {"env", "seeds", "choose_seeds", "steps", "every", "episodes", "envs", "precision", "greedy", "set", "arm"}
ARM_KEYS = {"label", "algo", "set", "sweep", "choose", "at"}


def refuse_unknown(where: str, said: Any, known: set[str]) -> None:
    """Refuse what is no table, and a table with a key that is not known."""
    refuse_unlike_a_table(where, said)
    for key in said:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            raise BadInput(f"{where}: {key} is no key of an entry{meant}; known: {', '.join(sorted(known))}")


def refuse_unlike_a_table(where: str, said: Any) -> None:
    """Refuse what is no table, such as a number."""
    if not isinstance(said, Mapping):
        raise BadInput(f"{where}: {said!r} is no table: keys with values are needed, or leave it out")


def refuse_other_texts(name: str, said: Mapping[str, Any]) -> None:
    """Refuse what is no text where one is needed."""
    for key in ("data", "smoothing", "analytic", "needs", "note", "elsewhere"):
        if not isinstance(said.get(key, ""), str):
            raise BadInput(f"{name}, {key} = {said[key]!r}: a text is needed, in quotation marks")


def refuse_other_n(where: str, said: Mapping[str, Any]) -> None:
    """Refuse a number of votes that is no whole number."""
    if "n" in said and not is_whole(said["n"]):
        raise BadInput(f"{where}, n = {said['n']!r}: a whole number of votes is needed, such as n = 1000")


def listed(where: str, said: Any) -> Sequence[Any]:
    """The tables of a list; anything but a list is refused."""
    if not isinstance(said, list):
        raise BadInput(f"{where}: {said!r} is no list of tables, which begin with [[…]]: give such, or leave it out")
    return said


def _check_rl(entry: Entry) -> None:
    """Refuse an entry of agents without an environment or arms, and arms that name what is not there."""
    if "env" not in entry.rl or not entry.rl.get("arm"):
        raise BadInput(f"{entry.name}: [rl] needs env and one [[rl.arm]] or more")
    refuse_unknown(f"{entry.name}, [quick.rl]", entry.quick.get("rl", {}), RL_KEYS - {"env", "arm"})
    for arm in entry.rl["arm"]:
        refuse_unknown(f"{entry.name}, [[rl.arm]]", arm, ARM_KEYS)
        if not {"label", "algo"} <= set(arm):
            raise BadInput(f"{entry.name}, [[rl.arm]]: label and algo are needed")
        if arm.get("choose") and not arm.get("sweep"):
            raise BadInput(f"{entry.name}, {arm['label']}: choose needs a sweep to choose among")
        unknown = [axis for axis in arm.get("at", {}) if axis not in entry.grid]
        if unknown:
            raise BadInput(f"{entry.name}, {arm['label']}: at names {unknown[0]!r}, which is no axis of [grid]")


def _check_commands(entry: Entry) -> None:
    """Refuse commands that are none of Vauban, or name what cannot be filled in."""
    for key, known in (("prepare", {"out"}), ("commands", {"out", "run", "seed", *entry.grid})):
        for text in getattr(entry, key):
            if not isinstance(text, str):
                raise BadInput(f"{entry.name}, {key}: {text!r} is no text: a list of commands is needed")
            try:
                words, names = (
                    shlex.split(text),
                    {name for _, name, _, _ in Formatter().parse(text) if name is not None},
                )
            except ValueError as problem:
                raise BadInput(f"{entry.name}, {key}: {text!r} cannot be read ({problem})") from None
            if words[:1] != ["vauban"]:
                raise BadInput(f"{entry.name}, {key}: {text!r} is no command of Vauban: it begins with vauban")
            if names - known:
                filled = " ".join(f"{{{name}}}" for name in sorted(known))
                raise BadInput(f"{entry.name}, {key}: {{{min(names - known)}}} is not filled in, only {filled}")


def _check_last(entry: Entry) -> None:
    """Refuse an entry that keeps counts at n alone where votes may stop before n, or that claims something at another n."""
    n, stop = entry.certify.get("n"), entry.certify.get("stop", "fixed")
    if n is None or stop != "fixed":
        raise BadInput(f'{entry.name}, keep = "last": a fixed n is needed: give n and no stop, or leave keep out')
    other = next(iter(entry.claimed_votes() - {n}), None)
    if other is not None:
        raise BadInput(
            f'{entry.name}, keep = "last": no counts are kept at n = {other}, which it asks for: leave keep out'
        )


def _check_together(entry: Entry) -> None:
    """Refuse axes whose values are trained together where they are none, or where the network or its recipe depends on them."""
    given = entry.train.get("together", [])
    axes = list(given) if isinstance(given, list | dict) else [given]
    listed = all(isinstance(values, list) and values for values in given.values()) if isinstance(given, dict) else True
    if not isinstance(given, list | dict) or not set(map(str, axes)) <= set(entry.grid) or not listed:
        raise BadInput(
            f"{entry.name}: together = {given!r}: a list of axes of [grid] is needed, out of {', '.join(entry.grid) or 'none'}, "
            "or a table of them with the values of each"
        )
    for axis, values in entry.together.items():
        left = [value for value in entry.grid[axis] if value not in values]
        if left:
            raise BadInput(
                f"{entry.name}: together trains for {axis} = {', '.join(map(str, values))}, and the grid has {left[0]}: name its "
                "values too"
            )
    said = [entry.train.get("model", ""), *entry.train.get("settings", {}).values()]
    for axis in axes:
        if any(f"{{{axis}}}" in str(value) for value in said):
            raise BadInput(
                f"{entry.name}: together names {axis}, and the model or a setting of [train] depends on it: one network serves "
                "all of its values, so name one"
            )


def check(entry: Entry) -> None:
    """Refuse an entry whose parts do not fit together."""
    _check_commands(entry)
    if entry.prepare and not entry.commands:
        raise BadInput(
            f"{entry.name}: prepare belongs to an entry that is made by commands: give these, or leave it out"
        )
    if entry.kind == "rl":
        _check_rl(entry)
    if entry.kind == "runs":
        if not entry.data or not entry.smoothing:
            raise BadInput(
                f'{entry.name}: data and smoothing are needed, such as data = "mnist"; or analytic, or commands'
            )
        if "printed_model" in entry.train and "printed" not in entry.train:
            raise BadInput(f"{entry.name}: printed_model belongs to a printed recipe: give printed, or leave it out")
        held = entry.train.get("hold_out", 10)
        if not isinstance(held, int) or held < 2:
            raise BadInput(
                f"{entry.name}: hold_out = {held!r}: a whole number of 2 or more is needed, 10 for every 10th input"
            )
        _check_together(entry)
        missing = set(re.findall(r"{(\w+)}", entry.smoothing)) - set(entry.grid)
        if missing:
            raise BadInput(
                f"{entry.name}: smoothing names {{{min(missing)}}}, which is no axis of [grid]: add its values"
            )
        if entry.certify.get("keep") == "last":
            _check_last(entry)
    for one in entry.published:
        axes = [one.over] if one.over not in (None, "radius") else []
        unknown = [axis for axis in [*axes, *one.at] if axis not in entry.grid]
        if unknown and entry.kind != "analytic":
            raise BadInput(f"{entry.name}: published numbers speak of {unknown[0]!r}, which is no axis of [grid]")
