"""The manifest: everything a claim depends on, written before the first vote and never changed (docs/run-folder.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from vauban.certificates import UNIT_RANGE
from vauban.errors import BadInput, Lie, RunRefused, VaubanError
from vauban.files import canonical, differences, packed, read_packed_json, sha256
from vauban.laws import law as law_of
from vauban.laws.law import LAWS, AnyLaw
from vauban.methods import CertifySettings, Method, method_for
from vauban.registry import Origin
from vauban.report.wording import spoken, wording
from vauban.runs.sections import ComputeSection, DataSection, InputSection, ModelSection, SeedSection, Selection
from vauban.seed import ANNOUNCED
from vauban.seed import KINDS as SEED_KINDS
from vauban.specs import Spec
from vauban.standardise import Standardisation
from vauban.threats import Threat

SCHEMA = 2
FILE = "manifest.json"
KINDS = ("smoothing", "poisoning")
UNDERSTOOD = frozenset(
    {"compute.stochastic", "compute.rows_differ", "seed.nonce_from", "data.selection.shuffle", "data.selection.skipped"}
    | {"inputs.standardised", "data.features"}
)
"""Optional fields that a manifest may require its reader to understand and that this version understands."""
RULE = ("size", "sha256", "every", "limit")
"""Fields of a selection that every manifest has, though they may be null."""
RESUMED_ANYWAY = ("data.spec", "versions", "model.kept_scores")
"""Fields in which a run and the call that resumes it may differ."""

M = TypeVar("M")

_MALFORMED = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError, OSError)
_LARGEST_INPUT, _MOST_CLASSES = 10**8, 10**6  # numbers in one input; classes


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


@dataclass(frozen=True)
class Manifest(AnyManifest):
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
    seed: SeedSection | None
    versions: dict[str, str]
    raw: dict[str, Any] = field(repr=False)

    known: ClassVar[Mapping[str, Any]] = known_fields(
        "smoothing",
        "method",
        settings=CertifySettings,
        inputs=InputSection,
        compute=ComputeSection,
        model=ModelSection,
        data=DataSection,
        seed=SeedSection,
    )

    @property
    def deterministic(self) -> bool:
        """Whether a view gets the same scores in every call and row."""
        return self.compute.stochastic is None and not self.compute.rows_differ

    @property
    def backend(self) -> str:
        """The name of the library that runs the network."""
        return "torch" if self.compute.backend is None else self.compute.backend["name"]

    @property
    def announced(self) -> bool:
        """Whether the run was announced before the nonce of its noise existed."""
        return self.seed is not None and self.seed.kind == ANNOUNCED

    def binding(self, nonce: str | None) -> str:
        """What votes and seal are bound to: the identity, and for an announced run the hash of it and its nonce."""
        if nonce is None:
            return self.identity
        return sha256(canonical({"announced": self.identity, "nonce": nonce}).encode())

    def law(self, smoothing: str | None = None) -> AnyLaw:
        """The law of the run, or of `smoothing`, which must make the same views but may prove another bound."""
        own = law_of(self.smoothing)
        claimed = own if smoothing is None else law_of(smoothing)
        if not claimed.same_views(own):
            raise BadInput(f"the run's votes were cast under {self.smoothing}, not {smoothing}: leave --smoothing out")
        return claimed if self.deterministic else claimed.without_determinism()

    @cached_property
    def method(self) -> Method:
        """The method of the run, computed from law and settings."""
        data, deviation = self.data, self.inputs.deviation_per_view
        return method_for(self.settings, self.law(), data.num_classes, data.shape, deviation)

    @property
    def origin(self) -> Origin | None:
        """The package that registered the law; None for Vauban's own."""
        return LAWS.origin(Spec.parse(self.smoothing).name)


def compose(
    method: Method,
    *,
    smoothing: str,
    inputs: InputSection,
    compute: ComputeSection,
    model: ModelSection,
    data: DataSection,
    seed: SeedSection | None,
    versions: dict[str, str],
) -> Manifest:
    """The manifest of a run by this method, with the claim's wording and the JSON."""
    bare = Manifest(
        schema=SCHEMA,
        claim="",
        threat=threat_entries(spoken(method.law.threat, inputs, data)),
        smoothing=smoothing,
        settings=method.settings,
        method_name=method.name,
        described=method.describe(),
        inputs=inputs,
        compute=compute,
        model=model,
        data=data,
        seed=seed,
        versions=versions,
        raw={},
    )
    vars(bare)["method"] = method
    worded = replace(bare, claim=wording(bare))
    made = replace(worded, raw=json.loads(json.dumps(_to_json(worded), allow_nan=False)))
    vars(made)["method"] = method
    return made


def _to_json(manifest: Manifest) -> dict[str, Any]:
    requires, selection = required(manifest), manifest.data.selection
    return {
        "schema": SCHEMA,
        "kind": "smoothing",
        "claim": manifest.claim,
        "threat": manifest.threat,
        "smoothing": manifest.smoothing,
        "settings": manifest.settings.to_json(),
        "method": {"name": manifest.method_name, **manifest.described},
        "inputs": _known(manifest.inputs, "levels", "range"),
        "compute": _known(manifest.compute),
        **({"seed": _known(manifest.seed)} if manifest.seed else {}),
        "model": _known(manifest.model),
        "data": {**_known(manifest.data, "label"), **({"selection": _known(selection, *RULE)} if selection else {})},
        "versions": manifest.versions,
        **({"requires": requires} if requires else {}),
    }


def _known(values: Any, *kept: str) -> dict[str, Any]:
    """The fields of a section that are not None, and those `kept` in any case."""
    return {key: value for key, value in vars(values).items() if value is not None or key in kept}


def required(manifest: Manifest) -> list[str]:
    """The fields without which a reader would claim too much, or call an honest run altered."""
    names = [f"compute.{name}" for name in ("stochastic", "rows_differ") if getattr(manifest.compute, name)]
    selection = manifest.data.selection
    names += ["inputs.standardised"] if manifest.inputs.standardised is not None else []
    names += ["data.features"] if manifest.data.features is not None else []
    names += [f"data.selection.{name}" for name in ("shuffle", "skipped") if getattr(selection, name, None) is not None]
    return [*names, "seed.nonce_from"] if manifest.announced else names


def read(folder: Path) -> Manifest:
    """Read the manifest of a smoothing run, of schema 1 or 2."""
    raw = read_raw(folder)
    if raw["schema"] == 1:
        from vauban.runs import schema1

        return parsed(folder, raw, lambda found: _checked(schema1.parse(found)))
    return parsed(folder, raw, lambda found: _checked(parse(found)))


def parse(raw: dict[str, Any]) -> Manifest:
    """A manifest of schema 2 from its JSON; KeyError, TypeError or ValueError if it is malformed."""
    check_kind(raw, "smoothing")
    method = dict(raw["method"])
    inputs = dict(raw["inputs"])
    inputs["range"] = None if inputs["range"] is None else tuple(inputs["range"])
    data = raw["data"]
    selection = section(Selection, data["selection"]) if "selection" in data else None
    return Manifest(
        schema=SCHEMA,
        claim=raw["claim"],
        threat=raw["threat"],
        smoothing=raw["smoothing"],
        settings=section(CertifySettings, raw["settings"]),
        method_name=method.pop("name"),
        described=method,
        inputs=section(InputSection, inputs),
        compute=section(ComputeSection, raw["compute"]),
        model=section(ModelSection, raw["model"]),
        data=section(DataSection, {**data, "shape": tuple(data["shape"]), "selection": selection}),
        seed=section(SeedSection, raw["seed"]) if "seed" in raw else None,
        versions=raw["versions"],
        raw=raw,
    )


def _checked(manifest: Manifest) -> Manifest:
    """The manifest, refused if it has numbers that no run can have, since reading votes and deriving claims depends on them."""
    data, settings, inputs = manifest.data, manifest.settings, manifest.inputs
    check_inputs(data.num_classes, data.index, data.label)
    numbers = [settings.k, settings.n0, *data.shape, *([] if settings.n is None else [settings.n])]
    if any(type(number) is not int for number in numbers) or type(settings.alpha) is not float:
        raise ValueError("k, n and shape, which must be whole numbers, or alpha")
    if min(data.shape) < 1 or math.prod(data.shape) > _LARGEST_INPUT:
        raise ValueError(f"the shape {data.shape}")
    if inputs.levels not in (None, 255) or inputs.arithmetic not in ("grid", "float"):
        raise ValueError("the grid of inputs, which has 255 levels")
    if inputs.range is not None and not (len(inputs.range) == 2 and inputs.range[0] < inputs.range[1]):
        raise ValueError("the range of inputs")
    if inputs.levels is not None and inputs.range != UNIT_RANGE:
        raise ValueError("the range of 8-bit pictures, which is [0, 1]")
    if data.features is not None and (len(data.features),) != data.shape:
        raise ValueError("the names of features, one for each")
    if inputs.standardised is not None:
        stats = Standardisation.from_json(inputs.standardised)
        stats.check_shape(data.shape)
        stats.refuse_own(data.selection, data.sha256, data.spec)
        if inputs.levels is not None or inputs.range is not None:
            raise ValueError("the grid or the range of inputs, and standardised ones have neither")
    backend = manifest.compute.backend
    if backend is not None and not (isinstance(backend, dict) and isinstance(backend.get("name"), str)):
        raise ValueError("the backend, which has a name")
    if settings.label not in ("given", "votes"):
        raise ValueError("the setting label, which must be given or votes")
    if manifest.seed is not None:
        _check_seed(manifest.seed)
    return manifest


def _check_seed(seed: SeedSection) -> None:
    """Refuse a seed of a kind that this version does not know, and a source of a nonce where there is no nonce."""
    if seed.kind is not None and seed.kind not in SEED_KINDS:
        raise RunRefused(
            f"the run's seed is of kind {seed.kind!r}; this version of Vauban knows {', '.join(SEED_KINDS)}: use a newer one"
        )
    if type(seed.commitment) is not str or isinstance(seed.nonce_from, str) != (seed.kind == ANNOUNCED):
        raise ValueError(
            "the seed: its commitment is a text, and announced seeds alone say where their nonce comes from"
        )


def identity(raw: Mapping[str, Any]) -> str:
    """The sha256 of the canonical JSON of a manifest."""
    return sha256(canonical(raw).encode())


def threat_entries(threat: Threat) -> dict[str, str]:
    """The manifest's description of a threat."""
    return {key: getattr(threat, key) for key in ("name", "metric", "unit", "ball")}


def has_manifest(folder: Path) -> bool:
    """Whether a folder holds a manifest, as it is or gzipped."""
    return (folder / FILE).is_file() or packed(folder / FILE).is_file()


def read_unchecked(folder: Path) -> dict[str, Any]:
    """The JSON of the manifest in a folder, of a run or an ensemble, as it is or gzipped."""
    return read_packed_json(folder / FILE)


def read_raw(folder: Path) -> dict[str, Any]:
    """The JSON of a run's manifest; a schema that this version does not read is refused."""
    if not has_manifest(folder):
        raise RunRefused(f"{folder} is not a run: it has no {FILE}")
    raw = read_unchecked(folder)
    if raw.get("schema") not in (1, SCHEMA) or isinstance(raw["schema"], bool):
        raise RunRefused(f"{folder / FILE} has schema {raw.get('schema')}; this version reads schemas 1 and {SCHEMA}")
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
    except _MALFORMED as problem:
        if isinstance(problem, VaubanError) and not isinstance(problem, BadInput):
            raise
        raise Lie(f"{says} {problem}") from None
    except MemoryError:
        raise RunRefused(f"{says.removesuffix(':')}, or needs more memory than this machine has") from None


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
    if not 2 <= num_classes <= _MOST_CLASSES:
        raise ValueError(f"the number of classes, {num_classes}")
    if len(set(index)) != len(index) or not index or min(index) < 0 or max(index) >= 2**63:
        raise ValueError("the indices, which must differ and be 0 or more, of 63 bits")
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
    older = [] if "selection" in present.raw["data"] else ["data.selection"]
    older += [] if "features_sha256" in (present.raw.get("training") or {}) else ["training.features_sha256"]
    lines = list(differences(present.raw, made, ignore=(*RESUMED_ANYWAY, *older)))
    if lines:
        lines.sort(key=lambda line: (line.startswith("claim:"), not line.startswith(("settings", "smoothing"))))
        shown = "\n  ".join(lines[:6])
        raise RunRefused(
            f"{folder} holds a run with other settings, and votes of the two cannot be mixed:\n  {shown}\n"
            "give the settings of that run to resume it, or another --out to start a new one"
        )


def _unknown(raw: Mapping[str, Any], known: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in raw.items():
        if key not in known:
            yield f"{path}{key}", value
        elif isinstance(known[key], dict) and isinstance(value, dict):
            yield from _unknown(value, known[key], f"{path}{key}.")
