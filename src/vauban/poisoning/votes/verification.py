"""Verifies a poisoning run by deriving every claim from its votes again; imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vauban.errors import BadInput, Lie, RunRefused
from vauban.poisoning.defense import is_own, parse_defense
from vauban.poisoning.votes.ensemble_votes import THREATS
from vauban.poisoning.votes.poisoning_manifest import PoisoningManifest
from vauban.poisoning.votes.run_folder import PoisoningRecord, read_record
from vauban.runs.folder_checks import other_files, refuse_special_files
from vauban.runs.manifest import refused_as_lies, threat_entries
from vauban.runs.verify import Verdict, check_sealed

UNPROVEN = (
    "That these are the votes of base classifiers trained on those parts: vauban verify --replay trains some of them again.",
    "That the inputs, the partition and the settings of the training were not picked after looking at results.",
    "That the parts are those of the partition: spread, threat and partition are the word of whoever trained.",
    "That the base classifiers were not trained on these inputs: claims hold all the same, but say less of inputs not seen.",
    "What the manifest only tells: names, texts and hashes of data, training and weights, versions and any further field.",
)
"""What a run folder cannot prove by itself, in words."""


def verify_run(folder: Path, data: Any = None) -> Verdict:
    """Check manifest, votes, claims and seal of a run; raises `Lie` at the first thing that does not hold."""
    if data is not None:
        raise RunRefused(f"{folder} is a poisoning run, which records no selection to compare: leave --data out")
    refuse_special_files(folder)
    record = read_record(folder)
    with refused_as_lies(f"{folder} cannot be what a run left:"):
        _check_manifest(folder, record)
        _check_constant_votes(folder, record)
        beside = other_files(folder, check_sealed(folder, record))
    inputs, manifest = len(record.votes.counts), record.manifest
    return Verdict(
        inputs,
        inputs * record.votes.models,
        manifest.claim,
        optional=manifest.optional,
        unproven=(*UNPROVEN, *beside),
    )


def _check_manifest(folder: Path, record: PoisoningRecord) -> None:
    manifest, models = record.manifest, record.votes.models
    partition = manifest.split
    expected: list[tuple[str, Any, Any]] = [
        ("the number of models", manifest.models, models),
        ("the models of the partition", partition.models, models),
        ("the threat", manifest.threat, threat_entries(THREATS[manifest.against])),
        ("the claim's wording", manifest.claim, manifest.wording),
    ]
    if partition.against == "labels":
        expected.append(("what sorted partitions defend", manifest.against, "labels"))
    expected += _training_entries(manifest)
    for what, stated, derived in expected:
        if stated != derived:
            raise Lie(f"{folder}: {what} should be {derived!r}, not {stated!r}")


def _check_constant_votes(folder: Path, record: PoisoningRecord) -> None:
    """Refuse votes in which a base classifier that is said to be empty or failed does not vote for class 0."""
    split, votes = record.manifest.training.get("partition"), record.votes
    if not isinstance(split, dict):
        return
    listed = [number for key in ("empty", "failed") for number in split.get(key, [])]
    if len(set(listed)) != len(listed) or any(type(n) is not int or not 0 <= n < votes.models for n in listed):
        raise Lie(f"{folder}: empty and failed base classifiers must be different numbers below {votes.models}")
    by_part = votes.ballots is not None and bool((votes.ballots[:, listed] != 0).any())
    if by_part or (votes.counts[:, 0] < len(listed)).any():
        raise Lie(
            f"{folder}: {len(listed)} base classifiers are said to be empty or failed, which vote for class 0, but the votes "
            "do not show it"
        )


def _training_entries(manifest: PoisoningManifest) -> list[tuple[str, Any, Any]]:
    """Entries about the training: a description, the value in the manifest, and the value that the claims presuppose."""
    training = manifest.training
    data = training.get("data")
    split, about_data = training.get("partition"), data if isinstance(data, dict) else {}
    spec, models = (split.get("spec"), split.get("models")) if isinstance(split, dict) else (split, None)
    entries = [
        ("the partition of the training", spec, manifest.partition),
        ("the models of the training", models, manifest.models),
        ("the classes of the training", training.get("num_classes"), manifest.data.num_classes),
        ("what the training is defended against", training.get("against"), manifest.against),
    ]
    defense = training.get("defense") or about_data.get("defense")
    if defense is not None and is_own(defense):
        chosen, spread = parse_defense(defense), manifest.split.spread
        entries += [
            ("what the defense is against", chosen.against, manifest.against),
            ("the spread of the defense", chosen.partition(1).spread, spread),
        ]
    elif defense is not None and not (training.get("defense_package") or about_data.get("defense_package")):
        raise BadInput(f"the defense {defense!r} is none of Vauban's, and no package is named for it")
    return [entry for entry in entries if entry[1] is not None]
