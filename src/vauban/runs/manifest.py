"""The manifest: everything a claim depends on, written before the first vote and never changed (docs/run-folder.md)."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from vauban.certificates import UNIT_RANGE, sentence
from vauban.errors import BadInput, Lie, RunRefused, VaubanError
from vauban.files import replace_file
from vauban.laws import law as law_of
from vauban.laws.law import LAWS, AnyLaw
from vauban.methods import CertifySettings, Method, method_for
from vauban.registry import Origin
from vauban.specs import Spec

SCHEMA = 2
FILE = "manifest.json"
KINDS = ("smoothing", "poisoning")
UNDERSTOOD: frozenset[str] = frozenset()
"""Optional fields that a manifest may require its reader to understand and that this version understands."""

_LARGEST_INPUT = 10**8  # numbers in one input
_SPREAD_NUMBERS = re.compile(r"\[[\s\d,-]+\]")


@dataclass(frozen=True)
class InputSection:
    """How inputs are read: 8-bit pictures on a grid (`levels` 255) or floats (None); `range` None allows any value."""

    levels: int | None
    arithmetic: str
    range: tuple[float, float] | None
    deviation_per_view: float
    preprocessing: str


@dataclass(frozen=True)
class DataSection:
    """Which inputs: `index` [m] in their data set, true labels [m] or None, file names [m] where there are any."""

    spec: str
    sha256: str
    shape: tuple[int, ...]
    num_classes: int
    index: list[int]
    label: list[int] | None
    names: list[str] | None = None


@dataclass(frozen=True)
class ModelSection:
    """The base classifier: its text form and the hash of its code and tensors."""

    spec: str
    sha256: str


@dataclass(frozen=True)
class ComputeSection:
    """What the network's answers depend on besides its weights: compute shape, precision, device, threads, layout."""

    rows: int
    precision: str
    device: str
    threads: int
    channels_last: bool
    torch: str
    block: int | None = None
    compile: bool | str | None = None
    by_blocks: list[str] | None = None


@dataclass(frozen=True)
class Manifest:
    """A parsed manifest; `raw` is its JSON, which the identity hashes."""

    schema: int
    claim: str
    threat: dict[str, str]
    smoothing: str
    settings: CertifySettings
    method_name: str
    described: dict[str, Any]
    inputs: InputSection
    compute: ComputeSection
    model: ModelSection
    data: DataSection
    commitment: str | None
    versions: dict[str, str]
    raw: dict[str, Any] = field(repr=False)

    @cached_property
    def identity(self) -> str:
        """The hash of the manifest's JSON; every line of votes is bound to it."""
        return identity(self.raw)

    def law(self, smoothing: str | None = None) -> AnyLaw:
        """The law of the run, or of `smoothing`, which must make the same views but may prove another bound."""
        own = law_of(self.smoothing)
        claimed = own if smoothing is None else law_of(smoothing)
        if not claimed.same_views(own):
            raise BadInput(f"the run's votes were cast under {self.smoothing}, not {smoothing}: leave --smoothing out")
        return claimed

    @cached_property
    def method(self) -> Method:
        """The method of the run, computed from law and settings."""
        return method_for(
            self.settings, self.law(), self.data.num_classes, self.data.shape, self.inputs.deviation_per_view
        )

    @property
    def origin(self) -> Origin | None:
        """The package that registered the law; None for Vauban's own."""
        return LAWS.origin(Spec.parse(self.smoothing).name)

    @property
    def optional(self) -> dict[str, Any]:
        """Fields beyond those of the specification, by their path."""
        return dict(_unknown(self.raw, _KNOWN))


def compose(
    method: Method,
    *,
    smoothing: str,
    inputs: InputSection,
    compute: ComputeSection,
    model: ModelSection,
    data: DataSection,
    commitment: str | None,
    versions: dict[str, str],
) -> Manifest:
    """The manifest of a run by this method, with the claim's wording and the JSON."""
    bare = Manifest(
        schema=SCHEMA,
        claim="",
        threat=threat_of(method.law),
        smoothing=smoothing,
        settings=method.settings,
        method_name=method.name,
        described=method.describe(),
        inputs=inputs,
        compute=compute,
        model=model,
        data=data,
        commitment=commitment,
        versions=versions,
        raw={},
    )
    vars(bare)["method"] = method
    worded = replace(bare, claim=wording(bare))
    made = replace(worded, raw=json.loads(json.dumps(_to_json(worded), allow_nan=False)))
    vars(made)["method"] = method
    return made


def _to_json(manifest: Manifest) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": "smoothing",
        "claim": manifest.claim,
        "threat": manifest.threat,
        "smoothing": manifest.smoothing,
        "settings": manifest.settings.to_json(),
        "method": {"name": manifest.method_name, **manifest.described},
        "inputs": vars(manifest.inputs),
        "compute": {key: value for key, value in vars(manifest.compute).items() if value is not None},
        **({} if manifest.commitment is None else {"seed": {"commitment": manifest.commitment}}),
        "model": vars(manifest.model),
        "data": {key: value for key, value in vars(manifest.data).items() if key != "names" or value is not None},
        "versions": manifest.versions,
    }


def wording(manifest: Manifest) -> str:
    """The claim in words: what a radius in this run guarantees, and about which classifier."""
    settings, inputs = manifest.settings, manifest.inputs
    exact = manifest.method_name == "exact"
    if settings.label == "given":
        label = "the given label"
    else:
        label = "the label with the most votes" if exact else f"the label chosen by {settings.n0} uncounted votes"
    sure = "" if exact else f"with probability at least 1 - {settings.alpha!r} over the votes, "
    views = f": {manifest.described['views']} views, each with its vote" if exact else ""
    attacks = (
        "Inputs are 8-bit pictures; the claim covers attacks that are pictures on that grid."
        if inputs.arithmetic == "grid"
        else "Views are made in floating point, and its rounding is not accounted for."
    )
    stopped = "" if exact or settings.stop == "fixed" else f" Votes stopped by {settings.stop}."
    return (
        f"For each input that is not abstained, {sure}{label} is among the top {settings.k} of the smoothed classifier "
        f"({manifest.smoothing}{views}, over the base classifier {manifest.model.sha256[:12]} in the arithmetic recorded "
        f"here) for {sentence(manifest.method.law.threat, 'its radius', inputs.range)}. "
        f"{'This is exact: no probability is left. ' if exact else ''}{attacks}{stopped} The base classifier must judge each "
        "view by itself."
    )


def threat_of(law: AnyLaw) -> dict[str, str]:
    """The manifest's description of a law's threat."""
    return {key: getattr(law.threat, key) for key in ("name", "metric", "unit", "ball")}


def identity(raw: Mapping[str, Any]) -> str:
    """The sha256 of the canonical JSON of a manifest."""
    return hashlib.sha256(canonical(raw).encode()).hexdigest()


def canonical(value: Any) -> str:
    """Canonical JSON: keys sorted, no white space, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


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


def read(folder: Path) -> Manifest:
    """Read the manifest of a smoothing run, of schema 1 or 2."""
    raw = read_raw(folder)
    if raw["schema"] == 1:
        from vauban.runs import schema1

        return _parsed(folder, raw, schema1.parse)
    return _parsed(folder, raw, parse)


def _parsed(folder: Path, raw: dict[str, Any], parse: Any) -> Manifest:
    try:
        manifest: Manifest = parse(raw)
        _check_numbers(manifest)
        return manifest
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        if isinstance(problem, VaubanError) and not isinstance(problem, BadInput):
            raise
        raise Lie(f"{folder / FILE}: missing or wrong: {problem}") from None


def parse(raw: dict[str, Any]) -> Manifest:
    """A manifest of schema 2 from its JSON; KeyError, TypeError or ValueError if it is malformed."""
    unknown = sorted(set(raw.get("requires", [])) - UNDERSTOOD)
    if unknown:
        raise RunRefused(
            f"the run requires a reader that understands {', '.join(unknown)}: use a newer version of Vauban"
        )
    if raw["kind"] != "smoothing":
        raise RunRefused(f"the run is of kind {raw['kind']!r}, not 'smoothing'")
    method = dict(raw["method"])
    inputs = dict(raw["inputs"])
    inputs["range"] = None if inputs["range"] is None else tuple(inputs["range"])
    return Manifest(
        schema=SCHEMA,
        claim=raw["claim"],
        threat=raw["threat"],
        smoothing=raw["smoothing"],
        settings=_section(CertifySettings, raw["settings"]),
        method_name=method.pop("name"),
        described=method,
        inputs=_section(InputSection, inputs),
        compute=_section(ComputeSection, raw["compute"]),
        model=_section(ModelSection, raw["model"]),
        data=_section(DataSection, {**raw["data"], "shape": tuple(raw["data"]["shape"])}),
        commitment=raw["seed"]["commitment"] if "seed" in raw else None,
        versions=raw["versions"],
        raw=raw,
    )


def _section(kind: Any, values: dict[str, Any]) -> Any:
    """A section from the fields that this version knows; others are ignored."""
    return kind(**{one.name: values[one.name] for one in fields(kind) if one.name in values})


def _check_numbers(manifest: Manifest) -> None:
    """Refuse numbers that no run can have, since reading votes and deriving claims depends on them."""
    data, settings, inputs = manifest.data, manifest.settings, manifest.inputs
    numbers = [settings.k, settings.n0, data.num_classes, *data.shape, *data.index, *(data.label or [])]
    numbers += [] if settings.n is None else [settings.n]
    if any(type(number) is not int for number in numbers) or type(settings.alpha) is not float:
        raise ValueError("k, n, shape, indices and labels, which must be whole numbers, or alpha")
    if min(data.shape) < 1 or math.prod(data.shape) > _LARGEST_INPUT or data.num_classes < 2:
        raise ValueError(f"the shape {data.shape} of {data.num_classes} classes")
    if inputs.levels not in (None, 255) or inputs.arithmetic not in ("grid", "float"):
        raise ValueError("the grid of inputs, which has 255 levels")
    if inputs.range is not None and not (len(inputs.range) == 2 and inputs.range[0] < inputs.range[1]):
        raise ValueError("the range of inputs")
    if inputs.levels is not None and inputs.range != UNIT_RANGE:
        raise ValueError("the range of 8-bit pictures, which is [0, 1]")
    if len(set(data.index)) != len(data.index) or not data.index:
        raise ValueError("the indices, which must differ")
    if data.label is not None and len(data.label) != len(data.index):
        raise ValueError("the number of labels")
    if any(not 0 <= label < data.num_classes for label in data.label or []):
        raise ValueError("the labels, some of which are outside the classes")
    if settings.label not in ("given", "votes"):
        raise ValueError("the setting label, which must be given or votes")


_KNOWN: dict[str, Any] = {
    **dict.fromkeys(("schema", "kind", "claim", "smoothing", "versions", "method", "requires"), True),
    "threat": dict.fromkeys(("name", "metric", "unit", "ball"), True),
    "settings": {one.name: True for one in fields(CertifySettings)},
    "inputs": {one.name: True for one in fields(InputSection)},
    "compute": {one.name: True for one in fields(ComputeSection)},
    "seed": {"commitment": True},
    "model": {one.name: True for one in fields(ModelSection)},
    "data": {one.name: True for one in fields(DataSection)},
}


def _unknown(raw: Mapping[str, Any], known: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in raw.items():
        if key not in known:
            yield f"{path}{key}", value
        elif isinstance(known[key], dict) and isinstance(value, dict):
            yield from _unknown(value, known[key], f"{path}{key}.")


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
