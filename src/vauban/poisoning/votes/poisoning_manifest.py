"""The manifest of a poisoning run: everything its claims depend on besides the votes (docs/run-folder.md); imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vauban import __version__
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.votes.certificates import training_scope, wording
from vauban.poisoning.votes.ensemble_votes import THREATS
from vauban.poisoning.votes.settings import PoisoningSettings
from vauban.runs.manifest import (
    SCHEMA,
    AnyManifest,
    check_inputs,
    check_kind,
    known_fields,
    parsed,
    read_raw,
    section,
    threat_entries,
)

KIND = "poisoning"


@dataclass(frozen=True)
class PoisoningDataSection:
    """Which inputs: `index` [m] in their data set, true labels [m] or None; `sha256` None where no data set was named."""

    spec: str
    sha256: str | None
    num_classes: int
    index: list[int]
    label: list[int] | None


@dataclass(frozen=True)
class PoisoningManifest(AnyManifest):
    """A manifest as it was read; `raw` is its JSON, which the identity hashes.

    `against`: what may be poisoned, "samples" or "labels". `partition`: its spec. `models`: the number of base classifiers.
    `training`: how they were trained, as their ensemble or a votes file says.
    """

    schema: int
    claim: str
    threat: dict[str, str]
    against: str
    partition: str
    models: int
    settings: PoisoningSettings
    data: PoisoningDataSection
    training: dict[str, Any]
    versions: dict[str, str]
    raw: dict[str, Any] = field(repr=False)

    known: ClassVar[Mapping[str, Any]] = known_fields(
        "against", "partition", "models", "training", settings=PoisoningSettings, data=PoisoningDataSection
    )

    @cached_property
    def split(self) -> Partition:
        """The partition of the training set."""
        return Partition.from_spec(self.partition)

    @property
    def wording(self) -> str:
        """The claim in words, as settings and training make it."""
        return wording(THREATS[self.against], self.settings.aggregate, self.settings.k, training_scope(self.training))


def compose(
    partition: str,
    against: str,
    settings: PoisoningSettings,
    *,
    training: Mapping[str, Any],
    data: PoisoningDataSection,
) -> PoisoningManifest:
    """The manifest of a run with its words and its JSON. `training`: how the base classifiers were trained."""
    raw = {
        "schema": SCHEMA,
        "kind": KIND,
        "claim": wording(THREATS[against], settings.aggregate, settings.k, training_scope(training)),
        "threat": threat_entries(THREATS[against]),
        "against": against,
        "partition": partition,
        "models": Partition.from_spec(partition).models,
        "settings": vars(settings),
        "data": vars(data),
        "training": dict(training),
        "versions": {"vauban": __version__, "numpy": np.__version__},
    }
    return parse(json.loads(json.dumps(raw)))


def read(folder: Path) -> PoisoningManifest:
    """Read the manifest of a poisoning run, of schema 1 or 2."""
    raw = read_raw(folder)
    if raw["schema"] == 1:
        from vauban.poisoning.votes import schema1

        return parsed(folder, raw, schema1.parse)
    return parsed(folder, raw, parse)


def parse(raw: dict[str, Any]) -> PoisoningManifest:
    """A manifest of schema 2 from its JSON; KeyError, TypeError or ValueError where it is none."""
    check_kind(raw, KIND)
    settings = raw["settings"]
    return checked(
        raw,
        schema=SCHEMA,
        settings=PoisoningSettings(aggregate=settings["aggregate"], k=settings["k"], label=settings["label"]),
        data=section(PoisoningDataSection, raw["data"]),
    )


def checked(
    raw: dict[str, Any], schema: int, settings: PoisoningSettings, data: PoisoningDataSection
) -> PoisoningManifest:
    """The manifest with the fields that both schemas have in one place, its numbers checked."""
    check_inputs(data.num_classes, data.index, data.label)
    if min(data.index) < 0:
        raise ValueError("the indices, which must not be negative")
    if type(settings.k) is not int or type(raw["models"]) is not int:
        raise ValueError("k or the number of models, which must be whole numbers")
    if not isinstance(raw["training"], dict):
        raise ValueError("the training, which must be an object")
    return PoisoningManifest(
        schema=schema,
        claim=raw["claim"],
        threat=raw["threat"],
        against=raw["against"],
        partition=raw["partition"],
        models=raw["models"],
        settings=settings,
        data=data,
        training=raw["training"],
        versions=raw["versions"],
        raw=raw,
    )
