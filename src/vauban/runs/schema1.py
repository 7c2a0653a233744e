"""Runs that Vauban 0.1 wrote: their manifest read into today's fields, and their texts and columns, which stay as they were."""

from __future__ import annotations

from typing import Any

from vauban.certificates import UNIT_RANGE
from vauban.errors import Lie
from vauban.methods import CertifySettings
from vauban.report.wording import sentence
from vauban.runs.manifest import Manifest
from vauban.runs.sections import ComputeSection, DataSection, InputSection, ModelSection, SeedSection

COLUMNS = ("index", "label", "radius", "abstained")
SEAL_KEYS = {
    "manifest.json": "manifest",
    "tallies.jsonl": "tallies",
    "ballots.jsonl": "ballots",
    "ballots.npz": "ballots",
    "claims.csv": "claims",
}
"""What schema 1 calls each file in a seal."""

_PRECISIONS = {"float32": "fp32", "tf32": "tf32", "bfloat16": "bf16", "float16": "fp16"}


def parse(raw: dict[str, Any]) -> Manifest:
    """A manifest of schema 1 from its JSON; KeyError, TypeError or ValueError where it is none."""
    statistics, arithmetic, data, compute = raw["statistics"], raw["arithmetic"], raw["data"], raw["compute"]
    if not compute:
        raise Lie("the manifest does not say how votes were computed")
    exact = statistics.get("method") == "exact"
    fixed = not exact and "stop" not in statistics
    if exact:
        settings = CertifySettings(k=statistics["k"], label=statistics["label"])
        described = {**raw["list"], "threshold": statistics["threshold"]}
        if statistics["n"] != raw["list"]["views"]:
            raise Lie(f"the manifest counts {statistics['n']} votes an input of {raw['list']['views']} views")
    else:
        stop = statistics.get("stop", "fixed")
        names = ("k", "n", "alpha", "bounds", "label", "n0")
        settings = CertifySettings(stop=stop, **{name: statistics[name] for name in names})
        keys = (
            ("looks", "alpha_split") if fixed else ("looks", "alpha_split", "test", "radii", "spending", "boundaries")
        )
        described = {key: statistics[key] for key in keys if key in statistics}
        if fixed and statistics["label"] == "given" and statistics["n0"] != 0:
            raise Lie(f"the manifest lets {statistics['n0']} votes choose a label that is given")
    return Manifest(
        schema=1,
        claim=raw["claim"],
        threat=raw["threat"],
        smoothing=raw["smoothing"],
        settings=settings,
        method_name="exact" if exact else "fixed" if fixed else "sequential",
        described=described,
        inputs=InputSection(
            levels=arithmetic["levels"],
            arithmetic=arithmetic["mode"],
            range=None if arithmetic["levels"] is None else UNIT_RANGE,  # schema 1 did not record it
            deviation_per_view=arithmetic["deviation_per_view"],
            preprocessing=data["preprocessing"]["text"],
        ),
        compute=ComputeSection(
            rows=compute["rows"],
            precision=_PRECISIONS[compute["dtype"]],
            device=compute["device"],
            threads=compute["threads"],
            channels_last=compute["channels_last"],
            torch=compute["torch"],
            block=compute.get("block"),
            compile=compute.get("compile"),
            by_blocks=compute.get("by_blocks"),
        ),
        model=ModelSection(raw["model"]["spec"], raw["model"]["sha256"]),
        data=DataSection(
            spec=data["spec"],
            sha256=data["sha256"],
            shape=tuple(data["shape"]),
            num_classes=data["num_classes"],
            index=data["index"],
            label=data["label"],
        ),
        seed=SeedSection(raw["seed_commitment"]) if raw.get("seed_commitment") is not None else None,
        versions=raw["versions"],
        raw=raw,
    )


def wording(manifest: Manifest) -> str:
    """The claim in the words of schema 1."""
    settings, threat = manifest.settings, manifest.method.law.threat
    of = f"over the base classifier {manifest.model.sha256[:12]} in the arithmetic recorded here"
    changes = sentence(threat, "its radius")
    if manifest.method_name == "exact":
        label = "the given label" if settings.label == "given" else "the label with the most votes"
        return (
            f"For each input that is not abstained, {label} is among the top {settings.k} of the smoothed classifier "
            f"({manifest.smoothing}: {manifest.described['views']} views, each with its vote, {of}) for {changes}. "
            "This is exact: no probability is left. Inputs are 8-bit pictures; the claim covers attacks that are pictures on "
            "that grid."
        )
    attacks = (
        "Inputs are 8-bit pictures; the claim covers attacks that are pictures on that grid."
        if manifest.inputs.arithmetic == "grid"
        else "Views are made in floating point, and its rounding is not accounted for."
    )
    label = "the given label" if settings.label == "given" else f"the label chosen by {settings.n0} uncounted votes"
    stopped = "" if manifest.method_name == "fixed" else f" Votes stopped by {settings.stop}."
    return (
        f"For each input that is not abstained, with probability at least 1 - {settings.alpha!r} over the votes, "
        f"{label} is among the top {settings.k} of the smoothed classifier ({manifest.smoothing}, {of}) for {changes}. "
        f"{attacks}{stopped}"
    )


def shown(manifest: Manifest, described: dict[str, Any]) -> dict[str, Any]:
    """What a manifest of schema 1 says of its method: the design of a list of views may be left out, its hash may not."""
    optional = () if "design" in manifest.described else ("design",)
    return {name: value for name, value in described.items() if name not in optional}
