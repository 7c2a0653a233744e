"""Trains an ensemble on a data set under a defense, and loads ensembles from folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.data import Dataset
from vauban.data.dataset import any_samples
from vauban.data.originals import Originals
from vauban.errors import BadInput
from vauban.poisoning.cluster_ensemble import ClusterEnsemble
from vauban.poisoning.defense import Defense, package_entry, parse_defense
from vauban.poisoning.ensemble import Ensemble
from vauban.poisoning.manifest_file import read_manifest
from vauban.poisoning.progress import ProgressReporter, no_progress
from vauban.poisoning.selection import check_fixed_beforehand, select
from vauban.poisoning.training.stacked.build_trainer import build_trainer
from vauban.poisoning.training_plan import TrainingPlan, plan_training
from vauban.poisoning.voting_ensemble import VotingEnsemble
from vauban.validation import path_of


@dataclass(frozen=True, eq=False)
class TrainingRequest:
    """The training samples `x` [n, ...], `y` [n] and everything else that `Defense.train` needs; see `train`."""

    x: NDArray[Any]
    y: NDArray[np.int64]
    num_classes: int
    source: dict[str, Any]
    partitions: int | None
    model: str | None
    settings: dict[str, Any]
    preprocessing: str
    device: str
    out: Path | None
    on: str
    progress: ProgressReporter
    originals: Originals | None = None


def train(
    data: str | Dataset,
    defense: str = "dpa",
    partitions: int | None = None,
    *,
    out: str | Path | None = None,
    model: str | None = None,
    seeds: str | None = None,
    seed: int = 0,
    normalise: str | None = None,
    preprocessing: str = "none",
    classes: str | None = None,
    every: int = 1,
    limit: int | None = None,
    device: str = "cpu",
    on: str = "here",
    progress: ProgressReporter = no_progress,
) -> VotingEnsemble:
    """Train one base classifier on each part of a data set, its train split unless another is named.

    `defense`, `model`: specs such as finite:spread=16 and tiny-cnn:steps=300. `out`: a folder in which groups are saved as they
    are trained; the same call after an interruption trains the missing ones. `classes`, `every`, `limit` select samples as
    `select` does. `seeds`, `seed`, `normalise` are settings of the trainer; `on` is "here" or a Ray cluster.
    """
    chosen = parse_defense(defense)
    with any_samples():  # each base classifier deals with those of its own part
        samples = select(data, split="train", every=every, limit=limit, classes=classes)
    check_fixed_beforehand(samples.data)
    assert samples.y is not None
    source = {"spec": samples.data.name, "every": every, "limit": limit, "classes": classes, "defense": defense}
    return chosen.train(
        TrainingRequest(
            samples.x,
            samples.y,
            samples.num_classes,
            source | package_entry(defense),
            partitions,
            model,
            {"seeds": seeds, "seed": seed, "normalise": normalise},
            preprocessing,
            device,
            None if out is None else path_of("out", out),
            on,
            progress,
            samples.originals,
        )
    )


def train_parts(defense: Defense, request: TrainingRequest) -> Ensemble:
    """Train Vauban's recipe on each part of a defense's partition."""
    if request.partitions is None:
        raise BadInput("--partitions is needed: how many parts, for example --partitions 1200")
    x = request.x
    trainer = build_trainer(
        x.shape[1:],
        request.num_classes,
        model=request.model,
        features=defense.shared_features(x.shape[1] if x.ndim == 4 else 1),
        device=request.device,
        **request.settings,
    )
    return Ensemble.fit(
        x,
        request.y,
        defense.partition(request.partitions),
        trainer,
        against=defense.against,
        preprocessing=request.preprocessing,
        folder=request.out,
        source=request.source,
        on=request.on,
        progress=request.progress,
        originals=request.originals,
    )


def plan_parts(
    data: str | Dataset,
    defense: str,
    partitions: int,
    *,
    model: str | None = None,
    seeds: str | None = None,
    seed: int = 0,
    normalise: str | None = None,
    preprocessing: str = "none",
    classes: str | None = None,
    every: int = 1,
    limit: int | None = None,
    device: str = "cpu",
) -> TrainingPlan:
    """What `train` with the same arguments would take; not for features that all parts share, which are learned first."""
    chosen = parse_defense(defense)
    with any_samples():
        samples = select(data, split="train", every=every, limit=limit, classes=classes)
    check_fixed_beforehand(samples.data)
    assert samples.y is not None
    channels = samples.x.shape[1] if samples.x.ndim == 4 else 1
    if chosen.shared_features(channels) is not None:
        raise BadInput(
            f"{defense} first learns features from all inputs, which takes most of the time: it cannot be planned"
        )
    settings: dict[str, Any] = {"seeds": seeds, "seed": seed, "normalise": normalise}
    trainer = build_trainer(samples.x.shape[1:], samples.num_classes, model=model, device=device, **settings)
    split = chosen.partition(partitions)
    return plan_training(samples.x, samples.y, split, trainer, preprocessing, samples.originals)


def train_clusters(request: TrainingRequest) -> ClusterEnsemble:
    """Train the ensemble of two clusters."""
    if request.partitions is not None:
        raise BadInput("features=clusters has one partition for each sample: leave --partitions out")
    if request.num_classes != 2:
        raise BadInput(
            f"two clusters tell two classes apart, and there are {request.num_classes}: choose two, for example --classes 1,7"
        )
    ensemble = ClusterEnsemble.fit(request.x, request.y, source=request.source)
    if request.out is not None:
        ensemble.save(request.out)
    return ensemble


def load_ensemble(folder: str | Path, device: str = "cpu", trust: Sequence[str] = ()) -> VotingEnsemble:
    """The ensemble in a folder, of whatever kind; its base classifiers vote on `device`. `trust`: as in `Ensemble.load`."""
    trainer = read_manifest(path_of("folder", folder))["trainer"]
    if trainer.get("trainer") == "clusters":
        return ClusterEnsemble.load(folder)
    return Ensemble.load(folder, device=device, trust=trust)
