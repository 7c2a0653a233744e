"""Replay of poisoning runs: trains some base classifiers again from the training set, and compares their votes with the run's."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.data import Dataset
from vauban.data.dataset import any_samples
from vauban.data.originals import Originals
from vauban.errors import BadInput, Lie, RunRefused
from vauban.files import differences
from vauban.poisoning.cluster_ensemble import ClusterEnsemble
from vauban.poisoning.ensemble import Ensemble
from vauban.poisoning.ensemble_training import load_ensemble
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.partitioning.samples import set_sha256
from vauban.poisoning.progress import ProgressReporter, no_progress
from vauban.poisoning.selection import select
from vauban.poisoning.training.deterministic import thread_count
from vauban.poisoning.training.fitting import train_base_classifiers
from vauban.poisoning.training.scikit_learn import SklearnTrainer
from vauban.poisoning.training.torch_module import PROBE, refuse_other_probe
from vauban.poisoning.training.trainer import Trainer, rebuild, with_own_features
from vauban.poisoning.training.weights_folder import renamed
from vauban.poisoning.votes.run_folder import NO_SPEC, PoisoningRecord, ballots_sha256, read_record
from vauban.poisoning.voting_ensemble import VotingEnsemble
from vauban.replay import undetected
from vauban.runs.verify import verify_run
from vauban.validation import path_of

Samples = str | Dataset | tuple[NDArray[Any], Any]
"""The text form of a data set, a data set, or inputs [n, ...] and labels [n]."""

_COMPARED = ("against", "partition", "failure_rule", "num_classes", "preprocessing", "trainer")
_IGNORED = ("partition.failed", "trainer.device", f"trainer.{PROBE}")
"""A replay knows failures of the parts that it trains again only; `refuse_other_probe` compares probes."""


@dataclass(frozen=True)
class PartsReplay:
    """What a replay found: all votes of `replayed` [s] of `models` base classifiers, trained again, are those of the run.

    `altered`: the largest number of base classifiers whose votes may still be others; more would have been found with
    probability 0.99. `radii` [m]: the radius of each claim that holds also then, None where none does. `claims`: how many
    inputs have a claim in the run. `features_trusted`: whether features that all parts share were taken from the ensemble as
    they are, not learned again.
    """

    models: int
    replayed: list[int]
    votes: int
    altered: int
    claims: int
    radii: list[int | None]
    features_trusted: bool = False

    @property
    def remaining(self) -> int:
        """How many claims hold also if `altered` base classifiers were altered."""
        return sum(radius is not None for radius in self.radii)


@dataclass(frozen=True)
class _ByPart:
    """Votes [inputs, parts] of some base classifiers; for a run-off also whether each prefers the winner to each class [inputs,
    classes, parts]."""

    votes: NDArray[np.integer]
    prefers: NDArray[np.integer] | None

    def same(self, other: _ByPart) -> NDArray[np.bool_]:
        """Whether each part [parts] votes alike on every input."""
        equal = (self.votes == other.votes).all(axis=0)
        if self.prefers is None or other.prefers is None:
            return equal
        return np.asarray(equal & (self.prefers == other.prefers).all(axis=(0, 1)))


def replay_parts(
    folder: str | Path,
    *,
    ensemble: str | Path | VotingEnsemble | None = None,
    data: Samples | None = None,
    training: Samples | None = None,
    parts: int | None = 20,
    trainer: Trainer | None = None,
    trust: Sequence[str] | None = None,
    device: str = "cpu",
    progress: ProgressReporter = no_progress,
) -> PartsReplay:
    """Verify a poisoning run, train `parts` of its base classifiers again (None: all), and compare the votes on every input.

    They are drawn by the operating system's randomness. `ensemble`: that of the run, or its folder; needed where the run keeps
    counts, which do not say how each part voted: then all its votes are counted again too. `data`, `training`: the whole data
    sets of inputs and of training samples, those that the manifest names unless given. `trainer`: that of the training, if it is
    not Vauban's own; `trust`: types of the ensemble's skops files, as in `Ensemble.load`. The first difference is a `Lie`.
    """
    folder = path_of("folder", folder)
    verify_run(folder)
    record = read_record(folder)
    about = renamed(_training_of(folder, record))
    x = _inputs(record, about, data)
    voters = load_ensemble(ensemble, device, trust or ()) if isinstance(ensemble, str | Path) else ensemble
    if voters is not None:
        _check_ensemble(record, voters, x)
    elif record.votes.ballots is None:
        raise BadInput(
            f"{folder} keeps counts, which do not say how each part voted: give the ensemble of the run, whose hash the manifest "
            "holds (--ensemble)"
        )
    samples, labels, originals = _training_samples(about, training)
    models = record.votes.models
    if about["trainer"].get("trainer") == "clusters":
        _replay_clusters(record, about, samples, labels, x)
        return _result(record, list(range(models)))
    drawn = _drawn(models, parts)
    own_trainer = _trainer(about, voters, trainer, device)
    again = _trained_again(about, own_trainer, samples, labels, originals, drawn, progress)
    winner = record.votes.winner if record.manifest.settings.aggregate == "runoff" else None
    kept = (
        _kept(record, drawn) if record.votes.ballots is not None else _by_part(_subset(voters, drawn), x, drawn, winner)
    )
    same = kept.same(_by_part(again, x, drawn, winner))
    if not same.all():
        raise _other_votes(about, drawn[int(same.argmin())], device)
    return _result(record, drawn, features_trusted=hasattr(own_trainer, "prepare"))


def _training_of(folder: Path, record: PoisoningRecord) -> dict[str, Any]:
    training = record.manifest.training
    if not isinstance(training.get("trainer"), dict) or not isinstance(training.get("data"), dict):
        raise RunRefused(
            f"{folder} does not say how its base classifiers were trained (its votes were imported): they cannot be trained "
            "again; a run that vauban poison certify wrote can be replayed"
        )
    return training


def _inputs(record: PoisoningRecord, about: Mapping[str, Any], data: Samples | None) -> NDArray[Any]:
    """The inputs [m, ...] of the run; refused if the manifest's hash or labels are others."""
    own, classes = record.manifest.data, about["data"].get("classes")
    given = own.spec if data is None else data
    if isinstance(given, tuple):
        return np.asarray(given[0])
    if given == NO_SPEC:
        raise BadInput("the run does not name the data set of its inputs: give it (--data)")
    some = select(given, split="test", classes=classes, labels_needed=False)
    where = {int(number): position for position, number in enumerate(some.index)}
    missing = [number for number in own.index if number not in where]
    if missing:
        raise BadInput(
            f"{some.data.name} has no input {missing[0]}: the whole data set of the run is needed, {own.spec}"
        )
    rows = [where[number] for number in own.index]
    x, y = some.x[rows], None if some.y is None else some.y[rows]
    if own.label is not None and y is not None and own.label != y.tolist():
        raise Lie(f"the true labels in the manifest are not those of {some.data.name}")
    if classes is None and Dataset(x, y, some.num_classes, some.data.class_names, "").fingerprint() != own.sha256:
        raise Lie(f"{some.data.name}: inputs {own.index[:3]}… are not those of the run (sha256 differs)")
    return x


def _training_samples(
    about: Mapping[str, Any], training: Samples | None
) -> tuple[NDArray[Any], NDArray[np.int64], Originals | None]:
    """The training set, and keys of original pictures if parts are made from these; refused unless it has the manifest's hash."""
    own = about["data"]
    originals = None
    given = own.get("spec") if training is None else training
    if given is None:
        raise BadInput("the run does not name its training set: give it (--training)")
    if isinstance(given, tuple):
        x, y, name = np.asarray(given[0]), np.asarray(given[1], dtype=np.int64), "the training set"
    else:
        with any_samples():
            some = select(
                given, split="train", every=own.get("every", 1), limit=own.get("limit"), classes=own.get("classes")
            )
        assert some.y is not None
        x, y, name, originals = some.x, some.y, some.data.name, some.originals
    if set_sha256(x, y) != own["sha256"]:
        raise Lie(f"{name} is not the training set of the run (sha256 differs): give the run's (--training)")
    known = None if originals is None else originals.sha256()
    if known != own.get("originals_sha256"):
        raise Lie(
            f"{name}: parts are made from other keys than in the run (one of the two has keys=original, or the original pictures "
            "are others): give the run's training set (--training)"
        )
    return x, y, originals


def _check_ensemble(record: PoisoningRecord, voters: VotingEnsemble, x: NDArray[Any]) -> None:
    """Refuse an ensemble that is not the manifest's, or whose votes are not those in the folder."""
    known = record.manifest.training.get("weights_sha256")
    if known != "unknown" and voters.weights_sha256 != known:
        raise Lie("the ensemble is not that of the run: its weights have another hash (give the run's with --ensemble)")
    features = record.manifest.training.get("features_sha256")
    if features is not None and isinstance(voters, Ensemble) and voters.features_sha256 != features:
        raise Lie("the ensemble is not that of the run: its base classifiers share other features")
    aggregate = record.manifest.settings.aggregate
    again = voters.tally(x, aggregate, keep_votes="votes" in record.arrays)
    if ballots_sha256(again.arrays(aggregate)) != ballots_sha256(record.arrays):
        raise Lie("the votes in the folder are not those of this ensemble on these inputs")


def _drawn(models: int, parts: int | None) -> list[int]:
    if parts is not None and parts < 1:
        raise BadInput(f"parts={parts}: one or more must be trained again")
    return sorted(secrets.SystemRandom().sample(range(models), models if parts is None else min(parts, models)))


def _trainer(about: Mapping[str, Any], voters: VotingEnsemble | None, given: Trainer | None, device: str) -> Trainer:
    """The trainer of the run, with the features that all its parts share."""
    if given is None and isinstance(voters, Ensemble) and isinstance(voters.trainer, SklearnTrainer):
        given = voters.trainer  # read from the ensemble's folder; what it trains must be described as the run's
    trainer = rebuild(about["trainer"], device) if given is None else given
    trainer = with_own_features(trainer)
    if hasattr(trainer, "prepare") and not trainer.shared:  # type: ignore[attr-defined]
        if not isinstance(voters, Ensemble):
            raise BadInput("all parts of this run share features: give the ensemble that holds them (--ensemble)")
        trainer.shared.update(voters.trainer.shared)  # type: ignore[attr-defined]
    return trainer


def _trained_again(
    about: dict[str, Any],
    trainer: Trainer,
    x: NDArray[Any],
    y: NDArray[np.int64],
    originals: Originals | None,
    drawn: Sequence[int],
    progress: ProgressReporter,
) -> Ensemble:
    """An ensemble of the drawn base classifiers, trained again; refused if its manifest would not be the run's."""
    with thread_count(about["compute"]["threads"]):
        manifest, groups = train_base_classifiers(
            x,
            y,
            Partition.from_spec(about["partition"]["spec"]),
            trainer,
            against=about["against"],
            preprocessing=about["preprocessing"],
            folder=None,
            source={},
            on="here",
            progress=progress,
            only=drawn,
            originals=originals,
        )
    one, other = ({name: some.get(name) for name in _COMPARED} for some in (about, renamed(manifest)))
    lines = list(differences(one, other, ignore=_IGNORED))
    if lines:
        raise Lie("the training set, split and described again, is not what the manifest says: " + "; ".join(lines[:4]))
    refuse_other_probe(about["trainer"], manifest["trainer"])
    return Ensemble({**manifest, "compute": about["compute"]}, trainer, groups)


def _subset(voters: VotingEnsemble | None, drawn: Sequence[int]) -> Ensemble:
    """The groups of an ensemble that hold drawn base classifiers."""
    assert isinstance(voters, Ensemble)
    groups = [group for group in voters.groups if set(group.numbers) & set(drawn)]
    return Ensemble(voters.manifest, voters.trainer, groups)


def _by_part(voters: Ensemble, x: NDArray[Any], drawn: Sequence[int], winner: NDArray[np.int64] | None) -> _ByPart:
    votes = voters.votes(x)[:, drawn]
    return _ByPart(votes, None if winner is None else _bits(voters.preferences(x, winner), voters.models, drawn))


def _kept(record: PoisoningRecord, drawn: Sequence[int]) -> _ByPart:
    """The votes of the drawn base classifiers in a folder that keeps the vote of each."""
    votes = record.votes
    assert votes.ballots is not None
    prefers = None if votes.prefers is None else _bits(votes.prefers, votes.models, drawn)
    return _ByPart(votes.ballots[:, drawn], prefers)


def _bits(packed: NDArray[np.uint8], models: int, drawn: Sequence[int]) -> NDArray[np.uint8]:
    return np.unpackbits(packed, axis=2, count=models)[:, :, drawn]


def _replay_clusters(
    record: PoisoningRecord, about: Mapping[str, Any], x: NDArray[Any], y: NDArray[np.int64], inputs: NDArray[Any]
) -> None:
    """Find the clusters again and count all votes; there is one base classifier for each sample, and each is cheap."""
    again = ClusterEnsemble.fit(x, y).tally(inputs)
    if not np.array_equal(again.counts, record.votes.counts):
        raise _other_votes(about, None, "cpu")


def _other_votes(about: Mapping[str, Any], part: int | None, device: str) -> Exception:
    """What votes that differ mean: a lie, unless the training was done by another torch or device, which may round otherwise."""
    who = f"base classifier {part}, trained again on its part, does not vote as that of the run does"
    if part is None:
        who = "clusters found again do not vote as those of the run do"
    there = about.get("versions", {}).get("torch"), about["trainer"].get("device", "cpu").partition(":")[0]
    here = str(torch.__version__), device.partition(":")[0]
    if there[0] is not None and there != here:
        return RunRefused(
            f"{who}; but it was trained by torch {there[0]} on {there[1]}, and here is torch {here[0]} on {here[1]}: training is "
            "repeated bit for bit by the same version on the same kind of processor only, so nothing follows; replay there"
        )
    return Lie(
        f"{who}: it was altered, or this processor is of another kind than that of the training (torch {here[0]})"
    )


def _result(record: PoisoningRecord, drawn: list[int], features_trusted: bool = False) -> PartsReplay:
    models = record.votes.models
    altered = undetected(models, len(drawn))
    certs = record.certificates(altered=altered)
    radii = [None if none else int(radius) for radius, none in zip(certs.radius, certs.abstained, strict=True)]
    claims = int((~record.certificates().abstained).sum())
    return PartsReplay(models, drawn, len(drawn) * len(radii), altered, claims, radii, features_trusted)
