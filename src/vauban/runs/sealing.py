"""The claims files and the seal that close a run of any kind: written last, and checked against what the votes say."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path

from vauban.claims import COLUMNS, Claims
from vauban.errors import Incomplete, Lie
from vauban.files import replace_file
from vauban.runs.raw_manifest import FILE, AnyManifest, read_json

CLAIMS, SEAL, EXTENSIONS = "claims.csv", "seal.json", "extensions.jsonl"


class SealedRecord(ABC):
    """Base of what runs rest on, a manifest and votes: the texts of its claims files, and the hashes that close it."""

    manifest: AnyManifest

    @abstractmethod
    def claims(self) -> Mapping[str, Claims]:
        """The certificates that every claims file holds, by the file's name; the latest last."""

    @abstractmethod
    def vote_hashes(self) -> dict[str, str]:
        """The hash of every file of votes, by the file's name."""

    def texts(self, claims: Mapping[str, Claims]) -> dict[str, str]:
        """Every claims file as it must read."""
        columns: tuple[str, ...] = COLUMNS
        if self.manifest.schema == 1:
            from vauban.runs import schema1

            columns = schema1.COLUMNS
        return {name: certs.to_csv(columns) for name, certs in claims.items()}

    def seal(self, texts: Mapping[str, str]) -> dict[str, str]:
        """The hashes that close the run with these claims files."""
        hashes = {FILE: self.manifest.identity, **self.vote_hashes()}
        hashes |= {name: sha256(text) for name, text in texts.items()}
        if self.manifest.schema == 1:
            from vauban.runs import schema1

            return {schema1.SEAL_KEYS[name]: digest for name, digest in hashes.items()}
        return hashes


def sha256(text: str) -> str:
    """The sha256 of a text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def write_claims(folder: Path, record: SealedRecord, claims: Mapping[str, Claims] | None = None) -> None:
    """Write the claims files and the seal of a run whose votes are all in."""
    texts = record.texts(record.claims() if claims is None else claims)
    for name, text in texts.items():
        replace_file(folder / name, text.encode())
    replace_file(folder / SEAL, json.dumps(record.seal(texts), indent=1).encode() + b"\n")


def check_sealed(folder: Path, record: SealedRecord) -> None:
    """Refuse claims files and a seal that are not what the votes say; without a seal the run is `Incomplete`."""
    texts, sealed = record.texts(record.claims()), (folder / SEAL).exists()
    for name, text in texts.items():
        if sealed or (folder / name).exists():
            check_claims(folder / name, text)
    if not sealed:
        raise Incomplete(
            f"{folder} has all its votes and is not sealed: run the same certify command again to finish it"
        )
    check_seal(folder / SEAL, record.seal(texts))


def check_claims(path: Path, true: str) -> None:
    """Compare a claims file, line by line, with the text `true` that the votes give."""
    if not path.exists():
        raise Lie(f"{path} is missing: the run is complete and must have its claims")
    said = path.read_bytes().decode(errors="replace").split("\n")
    for number, (line, right) in enumerate(zip_longest(said, true.split("\n")), start=1):
        if line != right:
            raise Lie(f"{path} line {number} says {line!r}; the votes say {right!r}")


def check_seal(path: Path, true: Mapping[str, str]) -> None:
    """Compare a seal with the hashes `true` of the run's content; it must name exactly the files of the run."""
    said = read_json(path)
    for part, digest in true.items():
        if said.get(part) != digest:
            raise Lie(f"{path}: {part} changed after the run was sealed")
    for part in said:
        if part not in true:
            raise Lie(f"{path} names {part}, which this run does not have")
    for name in (CLAIMS, EXTENSIONS):
        if name not in true and (path.parent / name).exists() and FILE in true:
            raise Lie(f"{path.parent / name} exists, but the seal does not name it")
