"""Recomputes every claim of a run from its votes and refuses the first lie; imports no torch."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from vauban import seed as seeds
from vauban.certificates import law
from vauban.certificates.exact import ExactLaw
from vauban.certificates.law import Law
from vauban.errors import BadInput, Incomplete, Lie, VaubanError
from vauban.poisoning.manifest_file import kind_of as poisoning_kind
from vauban.runs import manifest as manifests
from vauban.runs.derive import CLAIMS, SEAL, Votes, read_votes, seal
from vauban.runs.manifest import Manifest
from vauban.runs.stopped import described, is_endless, is_fixed, rule_of, way
from vauban.seed import Seed

_LARGEST_INPUT = 10**8  # numbers in one input: beyond that nobody certified anything


@dataclass(frozen=True)
class Verdict:
    """What was checked in a run that told no lie."""

    inputs: int
    votes: int
    claim: str


def verify_run(folder: str | Path) -> Verdict:
    """Check manifest, tallies, claims and seal of a run; raises `Lie` at the first thing that does not hold.

    A run that is not finished raises `Incomplete`, after all that is there has been checked.
    """
    folder = Path(folder)
    if poisoning_kind(folder) is not None:
        from vauban.poisoning.votes.verification import verify_run as verify_poisoning

        return verify_poisoning(folder)
    manifest = manifests.read(folder)
    try:
        _check_manifest(folder, manifest)
        votes = read_votes(folder)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError, OSError) as problem:
        if isinstance(problem, VaubanError) and not isinstance(problem, BadInput):
            raise
        raise Lie(f"{folder} cannot be what a run left: {problem}") from None
    inputs = len(manifest["data"]["index"])
    sealed = (folder / SEAL).exists()
    finished = votes.finished(sealed) if isinstance(votes, Votes) else len(votes.complete) == inputs
    if not finished:
        if sealed:
            raise Lie(f"{folder} is sealed, but only {len(votes.complete)} of its {inputs} inputs have all their votes")
        raise Incomplete(
            f"{folder} holds {len(votes.complete)} of {inputs} inputs: what is there is consistent; "
            "run the same certify command again to finish it"
        )
    claims, hashes = seal(votes)
    if sealed or (folder / CLAIMS).exists():
        check_claims(folder / CLAIMS, claims)
    if not sealed:
        raise Incomplete(
            f"{folder} has all its votes and is not sealed: run the same certify command again to finish it"
        )
    check_seal(folder / SEAL, hashes)
    cast = votes.votes_cast if isinstance(votes, Votes) else inputs * manifest["statistics"]["n"]
    return Verdict(inputs, cast, manifest["claim"])


def _check_manifest(folder: Path, manifest: Manifest) -> None:
    path = folder / manifests.FILE
    statistics, arithmetic, data = manifest["statistics"], manifest["arithmetic"], manifest["data"]
    endless = is_endless(manifest)
    numbers = [statistics["k"], *data["shape"], *data["index"], *(data["label"] or [])]
    numbers += [] if endless and statistics["n"] is None else [statistics["n"]]
    if (
        any(type(number) is not int for number in numbers)
        or min(data["shape"]) < 1
        or math.prod(data["shape"]) > _LARGEST_INPUT
        or arithmetic["levels"] not in (None, 255)
    ):
        raise Lie(f"{path}: k, n, shape, indices and labels must be whole numbers, and a grid has 255 levels")
    if not manifest["compute"] or statistics["label"] not in ("given", "votes"):
        raise Lie(f"{path}: it does not say how votes were computed, or whose label is certified")
    noise = law(manifest["smoothing"]).for_shape(data["shape"])
    told = manifest["threat"]
    expected: list[tuple[str, Any, Any]] = [
        ("the claim's wording", manifest["claim"], manifests.wording(manifest)),
        ("the threat", told, {key: getattr(noise.threat, key) for key in ("name", "metric", "unit", "ball")}),
        ("the arithmetic", arithmetic["mode"], manifests.arithmetic(noise, arithmetic["levels"])),
        ("the number of indices", len(data["index"]), len(set(data["index"]))),
        ("the method", manifests.exact(manifest), noise.exact),
    ]
    if data["label"] is not None:
        expected.append(("the number of labels", len(data["label"]), len(data["index"])))
    if isinstance(noise, ExactLaw):
        expected += [
            ("the number of views", (statistics["n"], manifest["list"]["views"]), (noise.views, noise.views)),
            ("the list of views", manifest["list"]["sha256"], noise.listed(data["shape"])),
            ("what is kept of it", noise.kept() | manifest["list"], manifest["list"] | noise.kept()),
            ("the threshold", statistics["threshold"], getattr(noise, "threshold", None)),
            ("the levels", arithmetic["levels"], noise.levels),
            ("the deviation", arithmetic["deviation_per_view"], 0.0),
            ("k", statistics["k"], min(max(statistics["k"], 1), data["num_classes"] - 1)),
            ("labels outside the classes", [y for y in data["label"] or [] if not 0 <= y < data["num_classes"]], []),
        ]
    else:
        if is_fixed(manifest):
            expected.append(("the looks", statistics["looks"], manifests.looks_up_to(statistics["n"])))
        else:
            expected += _stopping(manifest)
        expected += [
            ("how alpha is split", statistics["alpha_split"], manifests.ALPHA_SPLIT[statistics["bounds"]]),
            ("the type of n0", type(statistics["n0"]), int),
        ]
    for what, said, true in expected:
        if said != true:
            raise Lie(f"{path}: {what} should be {true!r}, not {said!r}")
    if isinstance(noise, Law):
        _check_randomness(folder, manifest, noise)


def _stopping(manifest: Manifest) -> list[tuple[str, Any, Any]]:
    """What a run that stops input by input says of its rule, and what the rule is."""
    statistics = manifest["statistics"]
    rule = described(way(manifest), rule_of(manifest))
    bounds = ("the bounds", statistics["bounds"], "binocp")
    return [bounds, *((f"the {name} of its rule", statistics.get(name), true) for name, true in rule.items())]


def _check_randomness(folder: Path, manifest: Manifest, noise: Law) -> None:
    path, arithmetic = folder / manifests.FILE, manifest["arithmetic"]
    least = noise.deviation(manifest["data"]["shape"], arithmetic["levels"])
    if not arithmetic["deviation_per_view"] >= least * (1 - 1e-9):
        raise Lie(f"{path}: the noise deviates by {least:.3g} per view, not by {arithmetic['deviation_per_view']:.3g}")
    if (folder / seeds.FILE).exists() and Seed.read(folder).commitment != manifest["seed_commitment"]:
        raise Lie(f"{folder / seeds.FILE} is not the seed that the manifest commits to")


def check_claims(path: Path, true: str) -> None:
    """Refuse a file of claims that does not say, line by line, what the votes say."""
    if not path.exists():
        raise Lie(f"{path} is gone: the run is complete, and its claims are missing")
    said = path.read_bytes().decode(errors="replace").split("\n")
    for number, (line, right) in enumerate(zip_longest(said, true.split("\n")), start=1):
        if line != right:
            raise Lie(f"{path} line {number} says {line!r}; the votes say {right!r}")


def check_seal(path: Path, true: dict[str, str]) -> None:
    """Refuse a seal whose hashes are not those of what is there."""
    try:
        said = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        raise Lie(f"{path} cannot be read") from None
    for part, digest in true.items():
        if not isinstance(said, dict) or said.get(part) != digest:
            raise Lie(f"{path}: the {part} changed after the run was sealed")
