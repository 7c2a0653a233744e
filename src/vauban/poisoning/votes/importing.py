"""Makes run folders and certificates of votes that were counted before; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vauban.data import Dataset, load
from vauban.data.registry import with_split
from vauban.errors import BadInput
from vauban.poisoning.manifest_file import kind_of
from vauban.poisoning.partitioning.partition import read_count
from vauban.poisoning.votes.certificates import PoisoningCertificates, derive
from vauban.poisoning.votes.ensemble_votes import AGGREGATES, THREATS
from vauban.poisoning.votes.poisoning_manifest import KIND, compose
from vauban.poisoning.votes.poisoning_run import PoisoningRun
from vauban.poisoning.votes.run_folder import NO_SPEC, InputSource, PoisoningRecord, read_record, write_run
from vauban.poisoning.votes.settings import PoisoningSettings
from vauban.poisoning.votes.votes_file import VotesFile, read_votes_file
from vauban.specs import Parameter, Spec, choose, read_params
from vauban.validation import path_of


@dataclass(frozen=True, eq=False)
class DerivedClaims:
    """Certificates and a title."""

    certificates: PoisoningCertificates
    title: str


def import_votes(
    votes: str | Path,
    out: str | Path,
    aggregate: str = "plurality",
    *,
    data: str | Dataset | None = None,
    defense: str | None = None,
    partitions: int | None = None,
    k: int = 1,
    label: str | None = None,
    keep_votes: bool = False,
) -> PoisoningRun:
    """Write a run folder from a votes file (`read_votes_file` documents it), so that `vauban verify` checks its claims.

    `data` is the test set by which the file's labels are checked. `defense` and `partitions` state the training, and with it the
    spread and the threat, if the file does not. `keep_votes`: the folder holds the vote of every model, not only counts.
    """
    file = read_votes_file(path_of("votes", votes), defense=defense, partitions=partitions, keep_votes=keep_votes)
    if file.partition is None:
        raise BadInput(
            f"{votes} does not say how the training set was partitioned: say it with --defense dpa, finite:spread=16 or ss-dpa, "
            "or add its spec to the file, partition='hash:partitions=1200'"
        )
    classes, labelled = file.votes.counts.shape[1], file.labels is not None
    settings = PoisoningSettings.of(classes, labelled, aggregate=aggregate, k=k, label=label)
    section = _source(data, file).section(file.labels, classes)
    manifest = compose(file.partition, file.votes.against, settings, training=file.training, data=section)
    folder = path_of("out", out)
    return PoisoningRun(folder, write_run(folder, PoisoningRecord(manifest, file.votes)))


def holds_votes(path: str | Path) -> bool:
    """Whether a path is a votes file or a poisoning run; the folder of an ensemble is refused."""
    path = Path(path)
    kind = kind_of(path) if path.is_dir() else None
    if kind == "ensemble":
        raise BadInput(f"{path} is an {kind}, not a run: let it vote first, vauban poison certify --ensemble {path} …")
    return path.suffix == ".npz" or kind == KIND


def derive_claims(path: str | Path, smoothing: str | None = None, k: int | None = None) -> DerivedClaims:
    """Certificates from a run folder, or from a votes file under partition:aggregate=…,spread=…,threat=…

    What the file says of spread and threat need not be said.
    """
    path = Path(path)
    if path.is_dir():
        if smoothing is not None:
            raise BadInput(f"{path} says itself how its votes were cast: leave --smoothing out")
        record = read_record(path)
        return DerivedClaims(record.certificates(k=k), f"{path}, {record.manifest.partition}")
    settings = _read_settings("partition" if smoothing is None else smoothing)
    file = read_votes_file(path, spread=settings["spread"], against=settings["threat"])
    certs = derive(
        file.votes,
        file.labels,
        aggregate=settings["aggregate"],
        k=1 if k is None else k,
        index=file.index,
        training=file.training,
    )
    return DerivedClaims(certs, f"{path}, {file.votes.models:,} models")


def _source(data: str | Dataset | None, file: VotesFile) -> InputSource:
    """The source of the inputs of a votes file; its labels must be those of the data set, if one is named."""
    if data is None:
        return InputSource(NO_SPEC, None, file.index)
    named = data if isinstance(data, Dataset) else load(with_split(data, "test"))
    if file.index.min() < 0 or file.index.max() >= len(named):
        raise BadInput(f"{named.name} has {len(named)} inputs, and the votes are about input {file.index.max()}")
    if file.labels is not None and named.labels is not None and (named.labels[file.index] != file.labels).any():
        raise BadInput(f"the labels beside the votes are not those of {named.name}")
    return InputSource(named.name, named.fingerprint(), file.index)


def _read_settings(smoothing: str) -> dict[str, Any]:
    spec = Spec.parse(smoothing)
    if spec.name != "partition":
        raise BadInput(
            f"--smoothing {smoothing}: a .npz of votes is about partitions, --smoothing partition:spread=1,threat=samples"
        )
    return read_params(
        spec,
        {
            "aggregate": Parameter(lambda text: choose("aggregate", text, AGGREGATES), default="plurality"),
            "spread": Parameter(read_count, example="16"),
            "threat": Parameter(lambda text: choose("threat", text, THREATS), example="labels"),
        },
    )
