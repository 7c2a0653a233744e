"""Writes and reads poisoning run folders: a manifest, the votes that certificates need, the claims, and a seal."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban import __version__
from vauban.errors import BadInput, Incomplete, Lie, RunRefused
from vauban.files import arrays_sha256, replace_file
from vauban.poisoning.manifest_file import FILE, SCHEMA, read_manifest
from vauban.poisoning.partitioning.partition import Partition
from vauban.poisoning.votes.certificates import PoisoningCertificates, derive, wording
from vauban.poisoning.votes.ensemble_votes import THREATS, EnsembleVotes
from vauban.poisoning.votes.settings import PoisoningSettings
from vauban.runs import raw_manifest as manifests
from vauban.runs.schema1 import COLUMNS

KIND = "poisoning"
BALLOTS, CLAIMS, SEAL = "ballots.npz", "claims.csv", "seal.json"
NO_SPEC = "not said"


@dataclass(frozen=True, eq=False)
class InputSource:
    """Where inputs come from: the spec of their data set, its hash, and the index [m] of each input in it."""

    spec: str
    sha256: str | None
    index: NDArray[np.int64]

    @classmethod
    def of_arrays(cls, x: NDArray[Any], y: NDArray[Any] | None) -> InputSource:
        """The source of bare arrays: no spec, their own hash, and their order."""
        return cls(NO_SPEC, arrays_sha256(x, y), np.arange(len(x)))

    def entries(self, y: NDArray[Any] | None) -> dict[str, Any]:
        """The manifest's entries for these inputs and their labels `y` [m]."""
        labels = None if y is None else np.asarray(y).tolist()
        return {"spec": self.spec, "sha256": self.sha256, "index": self.index.tolist(), "label": labels}


@dataclass(frozen=True, eq=False)
class PoisoningRun:
    """The manifest and the votes of a run folder."""

    manifest: dict[str, Any]
    votes: EnsembleVotes

    def certificates(
        self, *, aggregate: str | None = None, k: int | None = None, label: str | None = None
    ) -> PoisoningCertificates:
        """Certificates as the manifest states, or for another aggregate, k or label; no model votes again."""
        manifest = self.manifest
        k = manifest["k"] if k is None else k
        if label is None and k == manifest["k"]:
            label = manifest["label"]
        truth = manifest["data"]["label"]
        return derive(
            self.votes, truth, aggregate=aggregate or manifest["aggregate"], k=k, label=label, index=self.index
        )

    @property
    def index(self) -> NDArray[np.int64]:
        """Each input's index in its data set."""
        return np.array(self.manifest["data"]["index"], dtype=np.int64)


def compose(
    votes: EnsembleVotes,
    partition: str,
    *,
    aggregate: str,
    training: Mapping[str, Any],
    data: Mapping[str, Any],
    k: int = 1,
    label: str | None = None,
) -> dict[str, Any]:
    """The manifest of a run. `data`: spec, sha256, index [m] and label [m] (or None); `training`: how the models were trained."""
    threat = THREATS[votes.against]
    settings = PoisoningSettings.of(
        votes.counts.shape[1], data["label"] is not None, aggregate=aggregate, k=k, label=label
    )
    manifest = {
        "schema": SCHEMA,
        "kind": KIND,
        "claim": wording(threat, aggregate, k, training),
        "threat": {key: getattr(threat, key) for key in ("name", "metric", "unit", "ball")},
        "against": votes.against,
        "partition": partition,
        "models": votes.models,
        "aggregate": aggregate,
        "k": k,
        "label": settings.label,
        "num_classes": votes.counts.shape[1],
        "data": dict(data),
        "training": dict(training),
        "versions": {"vauban": __version__, "numpy": np.__version__},
    }
    return json.loads(json.dumps(manifest))


def refuse_other(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a folder whose manifest differs in these entries."""
    if (folder / FILE).exists():
        present = read_manifest(folder, KIND)
        own = json.loads(json.dumps(dict(manifest)))
        lines = list(manifests.differences({key: present.get(key) for key in own}, own, ignore=("versions",)))
        if lines:
            raise RunRefused(f"{folder} holds another run; choose another --out. " + "; ".join(lines[:4]))


def write_run(folder: Path, manifest: dict[str, Any], votes: EnsembleVotes) -> PoisoningRun:
    """Write a run, the seal last; a folder with the same run is left unchanged, one with another run is refused."""
    run = PoisoningRun(manifest, votes)
    claims, hashes = sealed(run)
    refuse_other(folder, manifest)
    if (folder / FILE).exists() and (folder / SEAL).exists():
        present = read_run(folder)
        if ballots_sha256(present.votes.arrays(manifest["aggregate"])) != hashes["ballots"]:
            raise RunRefused(f"{folder} holds a run with other votes under the same settings: choose another --out")
        from vauban.runs.sealing import check_claims, check_seal

        claims, hashes = sealed(present)
        check_claims(folder / CLAIMS, claims)
        check_seal(folder / SEAL, hashes)
        return present
    folder.mkdir(parents=True, exist_ok=True)
    manifests.write_json(folder / manifests.FILE, manifest)
    packed = io.BytesIO()
    np.savez_compressed(packed, **votes.arrays(manifest["aggregate"]))  # type: ignore[arg-type]
    replace_file(folder / BALLOTS, packed.getvalue())
    replace_file(folder / CLAIMS, claims.encode())
    replace_file(folder / SEAL, json.dumps(hashes, indent=1).encode() + b"\n")
    return run


def read_run(folder: Path) -> PoisoningRun:
    """Read the manifest and votes of a run; files that no run could have written raise `Lie`."""
    manifest = read_manifest(folder, KIND)
    if not (folder / BALLOTS).exists():
        raise Incomplete(f"{folder} has no {BALLOTS}: run the same command again to finish it")
    try:
        arrays = read_arrays(folder / BALLOTS)
        spread = Partition.from_spec(manifest["partition"]).spread
        votes = EnsembleVotes.from_arrays(arrays, manifest["num_classes"], spread=spread, against=manifest["against"])
        if set(arrays) != set(votes.arrays(manifest["aggregate"])):
            raise Lie(f"{folder / BALLOTS} holds {', '.join(sorted(arrays))}: not the votes of this run")
    except (KeyError, TypeError, BadInput) as problem:
        raise Lie(f"{folder} cannot be what a run left: {problem}") from None
    return PoisoningRun(manifest, votes)


def sealed(run: PoisoningRun) -> tuple[str, dict[str, str]]:
    """The text of a run's claims file, and the hashes of its seal."""
    claims = run.certificates().to_csv(COLUMNS)
    arrays = run.votes.arrays(run.manifest["aggregate"])
    return claims, {
        "manifest": manifests.identity(run.manifest),
        "ballots": ballots_sha256(arrays),
        "claims": hashlib.sha256(claims.encode()).hexdigest(),
    }


def ballots_sha256(arrays: Mapping[str, NDArray[Any]]) -> str:
    """A hash of the votes as whole numbers with their shapes, whatever their integer type."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array, dtype="<u1" if name == "prefers" else "<u4").tobytes())
    return digest.hexdigest()


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a .npz file; nothing in it is executed."""
    if not path.is_file():
        raise BadInput(f"{path} is no file; a .npz written by numpy.savez is needed")
    try:
        with np.load(path, allow_pickle=False) as opened:
            if not hasattr(opened, "files"):
                raise ValueError("a single array")
            return {name: opened[name] for name in opened.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as problem:
        raise BadInput(
            f"{path} cannot be read ({problem}): numpy.savez(path, votes=…, labels=…, num_classes=…) writes what is needed"
        ) from None
