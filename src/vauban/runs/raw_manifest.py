"""The JSON of a manifest, of whatever kind: canonical form and identity, reading and writing, known fields, differences."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from vauban.errors import BadInput, Lie, RunRefused, VaubanError
from vauban.files import replace_file
from vauban.threats import Threat

SCHEMA = 2
FILE = "manifest.json"
KINDS = ("smoothing", "poisoning")
UNDERSTOOD: frozenset[str] = frozenset()
"""Optional fields that a manifest may require its reader to understand and that this version understands."""
RESUMED_ANYWAY = ("data.spec", "versions")
"""Fields in which a run and the call that resumes it may differ."""

_SPREAD_NUMBERS = re.compile(r"\[[\s\d,-]+\]")

M = TypeVar("M")


class AnyManifest:
    """Base of manifests: `schema`, and `raw`, the JSON as it was read, which the identity hashes."""

    known: ClassVar[Mapping[str, Any]]
    """The fields of the specification; those of a section are a mapping."""
    schema: int
    raw: dict[str, Any]

    @cached_property
    def identity(self) -> str:
        """A hash of the whole manifest as it was read; votes and seal are bound to it."""
        return identity(self.raw)

    @property
    def optional(self) -> dict[str, Any]:
        """Fields beyond those of the specification, by their path."""
        return dict(_unknown(self.raw, self.known))


def known_fields(*names: str, **sections: type) -> dict[str, Any]:
    """What `AnyManifest.known` holds: plain fields, and sections with the fields of a dataclass; every kind has some of both."""
    common = dict.fromkeys(("schema", "kind", "claim", "versions", "requires"), True)
    threat = dict.fromkeys(("name", "metric", "unit", "ball"), True)
    own = {name: {one.name: True for one in fields(kind)} for name, kind in sections.items()}
    return {**common, **dict.fromkeys(names, True), "threat": threat, **own}


def identity(raw: Mapping[str, Any]) -> str:
    """The sha256 of the canonical JSON of a manifest."""
    return hashlib.sha256(canonical(raw).encode()).hexdigest()


def canonical(value: Any) -> str:
    """Canonical JSON: keys sorted, no white space, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def threat_entries(threat: Threat) -> dict[str, str]:
    """The manifest's description of a threat."""
    return {key: getattr(threat, key) for key in ("name", "metric", "unit", "ball")}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write indented JSON atomically, with lists of numbers on one line."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    replace_file(path, (_SPREAD_NUMBERS.sub(lambda spread: "".join(spread[0].split()), text) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; duplicate keys are refused."""

    def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key occurs twice")
        return found

    try:
        value = json.loads(path.read_bytes(), object_pairs_hook=without_duplicates)
        if not isinstance(value, dict):
            raise ValueError("it is not an object")
    except (OSError, ValueError, RecursionError) as problem:
        raise Lie(f"{path} cannot be read ({problem})") from None
    return value


def read_raw(folder: Path) -> dict[str, Any]:
    """The JSON of a run's manifest; a schema that this version does not read is refused."""
    path = folder / FILE
    if not path.is_file():
        raise RunRefused(f"{folder} is not a run: it has no {FILE}")
    raw = read_json(path)
    if raw.get("schema") not in (1, SCHEMA) or isinstance(raw["schema"], bool):
        raise RunRefused(f"{path} has schema {raw.get('schema')}; this version of Vauban reads schemas 1 and {SCHEMA}")
    return raw


def parsed(folder: Path, raw: dict[str, Any], parse: Callable[[dict[str, Any]], M]) -> M:
    """What `parse` makes of the JSON of a manifest; what no run could have written is a `Lie`."""
    with refused_as_lies(f"{folder / FILE} is malformed:"):
        return parse(raw)


@contextmanager
def refused_as_lies(says: str) -> Iterator[None]:
    """Raise as `Lie`, after the words `says`, what goes wrong inside because files are not what a run left."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError, OSError) as problem:
        if isinstance(problem, VaubanError) and not isinstance(problem, BadInput):
            raise
        raise Lie(f"{says} {problem}") from None


def check_kind(raw: Mapping[str, Any], kind: str) -> None:
    """Refuse a manifest of another kind, and one that requires a field which this version does not know."""
    unknown = sorted(set(raw.get("requires", [])) - UNDERSTOOD)
    if unknown:
        raise RunRefused(
            f"the run requires a reader that understands {', '.join(unknown)}: use a newer version of Vauban"
        )
    if raw["kind"] != kind:
        raise RunRefused(f"the run is of kind {raw['kind']!r}, not of {kind}")


def section(kind: type[M], values: Mapping[str, Any]) -> M:
    """A section from those of its fields that this version knows."""
    return kind(**{one.name: values[one.name] for one in fields(kind) if one.name in values})  # type: ignore[arg-type]


def check_inputs(num_classes: int, index: list[int], label: list[int] | None) -> None:
    """Refuse classes, indices and true labels of inputs that no run could have."""
    if any(type(number) is not int for number in [num_classes, *index, *(label or [])]):
        raise ValueError("the number of classes, indices and labels, which must be whole numbers")
    if num_classes < 2:
        raise ValueError(f"the number of classes, {num_classes}")
    if len(set(index)) != len(index) or not index:
        raise ValueError("the indices, which must differ")
    if label is not None and len(label) != len(index):
        raise ValueError("the number of labels")
    if any(not 0 <= one < num_classes for one in label or []):
        raise ValueError("the labels, some of which are outside the classes")


def refuse_other(folder: Path, present: AnyManifest, made: Mapping[str, Any]) -> None:
    """Refuse to resume a run whose manifest differs from the JSON `made` anew, or which Vauban 0.1 wrote."""
    if present.schema == 1:
        raise RunRefused(
            f"{folder} was written by Vauban 0.1: it can be verified and gives claims, but cannot be resumed; "
            "give another --out"
        )
    lines = list(differences(present.raw, made, ignore=RESUMED_ANYWAY))
    if lines:
        shown = "\n  ".join(lines[:6])
        raise RunRefused(
            f"{folder} holds a run with other settings, and votes of the two cannot be mixed:\n  {shown}\n"
            "give the settings of that run to resume it, or another --out to start a new one"
        )


def differences(old: Any, new: Any, path: str = "", ignore: tuple[str, ...] = ()) -> Iterator[str]:
    """The fields in which two manifests differ, as lines of text, except those named in `ignore`."""
    if path in ignore:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from differences(old.get(key), new.get(key), f"{path}.{key}" if path else key, ignore)
    elif old != new:
        yield f"{path}: the run has {_short(old)}, now {_short(new)}"


def _short(value: Any) -> str:
    text = canonical(value)
    return text if len(text) <= 80 else text[:77] + "…"


def _unknown(raw: Mapping[str, Any], known: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in raw.items():
        if key not in known:
            yield f"{path}{key}", value
        elif isinstance(known[key], dict) and isinstance(value, dict):
            yield from _unknown(value, known[key], f"{path}{key}.")
