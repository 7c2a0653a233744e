"""Verifies a poisoning run by deriving every claim from its votes again; imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vauban.errors import BadInput, Incomplete, Lie
from vauban.poisoning.defense import is_own, parse_defense
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.votes.certificates import wording
from vauban.poisoning.votes.ensemble_votes import THREATS
from vauban.poisoning.votes.run_folder import CLAIMS, SEAL, PoisoningRun, read_run, sealed
from vauban.runs.sealing import check_claims, check_seal
from vauban.runs.verify import Verdict


def verify_run(folder: Path) -> Verdict:
    """Check manifest, votes, claims and seal of a run; raises `Lie` at the first thing that does not hold."""
    run = read_run(folder)
    try:
        _check_manifest(folder, run)
        claims, hashes = sealed(run)
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise Lie(f"{folder} cannot be what a run left: {problem}") from None
    if not (folder / SEAL).exists():
        raise Incomplete(f"{folder} is not sealed: run the same command again to finish it")
    check_claims(folder / CLAIMS, claims)
    check_seal(folder / SEAL, hashes)
    return Verdict(len(run.index), len(run.index) * run.votes.models, run.manifest["claim"])


def _check_manifest(folder: Path, run: PoisoningRun) -> None:
    manifest, data = run.manifest, run.manifest["data"]
    partition = Partition.from_spec(manifest["partition"])
    numbers = [manifest["k"], manifest["models"], manifest["num_classes"], *data["index"], *(data["label"] or [])]
    if any(type(number) is not int for number in numbers):
        raise Lie(f"{folder}: k, models, classes, indices and labels must be whole numbers")
    threat = THREATS[manifest["against"]]
    inputs = len(run.votes.counts)
    expected: list[tuple[str, Any, Any]] = [
        ("the number of indices", len(data["index"]), inputs),
        ("the number of different indices", len(set(data["index"])), inputs),
        ("the number of labels", inputs if data["label"] is None else len(data["label"]), inputs),
        ("the number of models", manifest["models"], run.votes.models),
        ("the models of the partition", partition.models, run.votes.models),
        ("the threat", manifest["threat"], {k: getattr(threat, k) for k in ("name", "metric", "unit", "ball")}),
        (
            "the claim's wording",
            manifest["claim"],
            wording(threat, manifest["aggregate"], manifest["k"], manifest["training"]),
        ),
    ]
    if min(data["index"], default=0) < 0:
        raise Lie(f"{folder}: indices must not be negative")
    if partition.against == "labels":
        expected.append(("what sorted partitions defend", manifest["against"], "labels"))
    expected += _training_entries(manifest)
    for what, stated, derived in expected:
        if stated != derived:
            raise Lie(f"{folder}: {what} should be {derived!r}, not {stated!r}")


def _training_entries(manifest: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Entries about the training: a description, the value in the manifest, and the value that the claims presuppose."""
    training = manifest["training"]
    data = training.get("data")
    split, about_data = training.get("partition"), data if isinstance(data, dict) else {}
    spec, models = (split.get("spec"), split.get("models")) if isinstance(split, dict) else (split, None)
    entries = [
        ("the partition of the training", spec, manifest["partition"]),
        ("the models of the training", models, manifest["models"]),
        ("the classes of the training", training.get("num_classes"), manifest["num_classes"]),
        ("what the training is defended against", training.get("against"), manifest["against"]),
    ]
    defense = training.get("defense") or about_data.get("defense")
    if defense is not None and is_own(defense):
        chosen, spread = parse_defense(defense), Partition.from_spec(manifest["partition"]).spread
        entries += [
            ("what the defense is against", chosen.against, manifest["against"]),
            ("the spread of the defense", chosen.partition(1).spread, spread),
        ]
    elif defense is not None and not (training.get("defense_package") or about_data.get("defense_package")):
        raise BadInput(f"the defense {defense!r} is none of Vauban's, and no package is named for it")
    return [entry for entry in entries if entry[1] is not None]
