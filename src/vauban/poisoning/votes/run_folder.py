"""Writes and reads poisoning run folders: a manifest, the votes that certificates need, the claims, and a seal; no torch."""

from __future__ import annotations

import hashlib
import io
import lzma
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput, Incomplete, Lie, RunRefused
from vauban.files import arrays_sha256, json_bytes, most_unpacked, replace_file, replace_packed
from vauban.poisoning.votes import poisoning_manifest
from vauban.poisoning.votes.certificates import PoisoningCertificates, derive
from vauban.poisoning.votes.ensemble_votes import EnsembleVotes
from vauban.poisoning.votes.poisoning_manifest import PoisoningDataSection, PoisoningManifest
from vauban.runs.manifest import FILE, has_manifest, refuse_other, refused_as_lies
from vauban.runs.store import CLAIMS, SEAL, SealedRecord, write_claims
from vauban.runs.verify import check_sealed

BALLOTS = "ballots.npz"
NO_SPEC = "not said"
"""The text form of a data set that has none: arrays given in Python, or votes of another tool."""

_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)
_ALWAYS_READ = 1 << 29  # bytes of all arrays: votes that all agree are packed to very little


@dataclass(frozen=True, eq=False)
class InputSource:
    """Where inputs come from: the spec of their data set, its hash, and the index [m] of each input in it.

    `selected`: whether the inputs were taken from that data set here, so that hash and index say which they are.
    """

    spec: str
    sha256: str | None
    index: NDArray[np.int64]
    selected: bool = False

    @classmethod
    def of_arrays(cls, x: NDArray[Any], y: NDArray[Any] | None) -> InputSource:
        """The source of bare arrays: no spec, their own hash, and their order."""
        return cls(NO_SPEC, arrays_sha256(x, y), np.arange(len(x)))

    def identifies(self, x: NDArray[Any], y: NDArray[Any] | None) -> bool:
        """Whether equal sources mean that inputs `x` [m, ...] and labels `y` [m] are equal; one from the caller may be wrong."""
        return self.selected or self.sha256 == arrays_sha256(x, y)

    def section(self, y: NDArray[Any] | None, num_classes: int) -> PoisoningDataSection:
        """The manifest's section about these inputs and their labels `y` [m]."""
        labels = None if y is None else np.asarray(y).tolist()
        return PoisoningDataSection(self.spec, self.sha256, num_classes, self.index.tolist(), labels)


@dataclass(frozen=True, eq=False)
class PoisoningRecord(SealedRecord):
    """What a poisoning run rests on: its manifest and its votes."""

    manifest: PoisoningManifest
    votes: EnsembleVotes

    def certificates(
        self, *, aggregate: str | None = None, k: int | None = None, label: str | None = None, altered: int = 0
    ) -> PoisoningCertificates:
        """Certificates as the manifest states, or for another aggregate, k or label, or that hold also if `altered` base
        classifiers vote otherwise than the folder says; no model votes again."""
        settings, data = self.manifest.settings, self.manifest.data
        k = settings.k if k is None else k
        if label is None and k == settings.k:
            label = settings.label
        return derive(
            self.votes,
            data.label,
            aggregate=aggregate or settings.aggregate,
            k=k,
            label=label,
            index=data.index,
            training=self.manifest.training,
            altered=altered,
        )

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The votes as the folder keeps them."""
        return self.votes.arrays(self.manifest.settings.aggregate)

    def claims(self) -> dict[str, PoisoningCertificates]:
        """The certificates that the claims file holds, by the file's name."""
        return {CLAIMS: self.certificates()}

    def vote_hashes(self) -> dict[str, str]:
        """The hash of the votes, by the file's name."""
        return {BALLOTS: ballots_sha256(self.arrays)}


def refuse_other_run(folder: Path, manifest: PoisoningManifest) -> None:
    """Refuse a folder with a run that differs in its manifest, or that Vauban 0.1 wrote."""
    if has_manifest(folder):
        refuse_other(folder, poisoning_manifest.read(folder), manifest.raw)


def finished_run(folder: Path, manifest: PoisoningManifest) -> PoisoningRecord | None:
    """The finished run of this manifest in a folder; None if there is none yet, and one that differs or is altered is refused."""
    refuse_other_run(folder, manifest)
    if not (has_manifest(folder) and (folder / BALLOTS).exists() and (folder / SEAL).exists()):
        return None
    present = read_record(folder)
    check_sealed(folder, present)
    return present


def write_run(folder: Path, record: PoisoningRecord) -> PoisoningRecord:
    """Write a run, the seal last; a folder with the same run is left unchanged, one with another run is refused."""
    present = finished_run(folder, record.manifest)
    if present is not None:
        if present.vote_hashes() != record.vote_hashes():
            raise RunRefused(f"{folder} holds a run with other votes under the same settings: choose another --out")
        return present
    claims = record.claims()
    folder.mkdir(parents=True, exist_ok=True)
    replace_packed(folder / FILE, json_bytes(record.manifest.raw))
    replace_file(folder / BALLOTS, _archive(record.arrays))
    write_claims(folder, record, claims)
    return record


def read_record(folder: Path) -> PoisoningRecord:
    """Read the manifest and votes of a run; files that no run could have written raise `Lie`."""
    manifest = poisoning_manifest.read(folder)
    if not (folder / BALLOTS).exists():
        raise Incomplete(f"{folder} has no {BALLOTS}: run the same command again to finish it")
    with refused_as_lies(f"{folder} cannot be what a run left:"):
        inputs, classes = len(manifest.data.index), manifest.data.num_classes
        arrays = read_arrays(folder / BALLOTS, {"counts": (inputs, classes), "votes": (inputs, manifest.models)})
        whole = EnsembleVotes.from_arrays(
            arrays, classes, spread=manifest.split.spread, against=manifest.against, keep_votes="votes" in arrays
        )
        record = PoisoningRecord(manifest, whole)
        if set(arrays) != set(record.arrays):
            raise Lie(f"{folder / BALLOTS} holds {', '.join(sorted(arrays))}: not the votes of this run")
    return record


def ballots_sha256(arrays: Mapping[str, NDArray[Any]]) -> str:
    """A hash of the votes as whole numbers with their shapes, whatever their integer type."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array, dtype="<u1" if name == "prefers" else "<u4").tobytes())
    return digest.hexdigest()


def _archive(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """A .npz file of arrays, compressed, unless it would then unpack to more than a reader takes of a file of that size."""
    packed, plain = io.BytesIO(), io.BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    if sum(array.nbytes for array in arrays.values()) + (1 << 20) <= _most(packed.tell()):
        return packed.getvalue()
    np.savez(plain, **arrays)  # type: ignore[arg-type]
    return plain.getvalue()


def _most(size: int) -> int:
    """The bytes to which an archive of this size may unpack."""
    return max(_ALWAYS_READ, most_unpacked(size))


def read_arrays(path: Path, shapes: Mapping[str, tuple[int, int]] | None = None) -> dict[str, NDArray[Any]]:
    """All arrays of a .npz file; nothing in it is executed. `shapes`: those that arrays of these names must have."""
    if not path.is_file():
        raise BadInput(f"{path} is no file; a .npz written by numpy.savez is needed")
    try:
        with np.load(path, allow_pickle=False) as opened:
            if not hasattr(opened, "files"):
                raise ValueError("a single array")
            _refuse_ambiguous(opened.zip, _most(path.stat().st_size))
            for name, shape in (shapes or {}).items():
                if name in opened.files:
                    _refuse_other_shape(name, _shape(opened.zip, f"{name}.npy"), shape)
            return {name: opened[name] for name in opened.files}
    except (
        ValueError,
        OSError,
        EOFError,
        KeyError,
        MemoryError,
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
    ) as problem:
        raise BadInput(
            f"{path} cannot be read ({problem}): numpy.savez(path, votes=…, labels=…, num_classes=…) writes what is needed"
        ) from None


def _refuse_ambiguous(packed: zipfile.ZipFile, most: int) -> None:
    """Refuse an archive with a name twice, of which readers might take either, and one packed as no archive of votes is."""
    entries = packed.infolist()
    if len({entry.filename.removesuffix(".npy") for entry in entries}) != len(entries):
        raise ValueError("it holds two arrays of one name")
    if any(entry.compress_type not in _PACKINGS for entry in entries):
        raise ValueError("its arrays are neither stored as they are, nor packed by deflate or LZMA")
    if sum(entry.file_size for entry in entries) > most:
        raise ValueError(
            f"it unpacks to more than {most >> 20} MiB: where you trust it, write its arrays again with numpy.savez, which does "
            "not compress them"
        )


def _refuse_other_shape(name: str, found: tuple[int, ...], shape: tuple[int, int]) -> None:
    if len(found) != 2:
        raise ValueError(f"{name} of shape {list(found)}, not {list(shape)}")
    if found[0] != shape[0]:
        raise ValueError(f"votes on {found[0]} inputs, not {shape[0]}")
    if found != shape:
        of = "classes" if name == "counts" else "base classifiers"
        raise ValueError(f"{name} of {found[1]} {of}, not {shape[1]}")


def _shape(archive: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    """The shape of an array of an archive, by its header alone."""
    with archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        return tuple(read(file)[0])
