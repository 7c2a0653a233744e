"""Stores for votes while they are cast: in memory, or in a run folder that is locked, append-only, resumable and sealed.

Both stores have one interface: `begin` with a manifest, `keep` every record, `finish` with certificates.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vauban.certificates import COLUMNS, Certificates, Claims
from vauban.errors import BadInput, CannotWrite, Incomplete, Lie, RunRefused
from vauban.files import Log, locked, read_lines, replace_file, write_json
from vauban.methods import FixedMethod, Method
from vauban.runs import manifest as manifests
from vauban.runs.manifest import FILE, AnyManifest, Manifest, refuse_other
from vauban.seed import FILE as SEED_FILE
from vauban.seed import Seed
from vauban.votes import Record, VoteTable, checked_body, checked_line

CLAIMS, SEAL, EXTENSIONS = "claims.csv", "seal.json", "extensions.jsonl"

_SECOND = 1.0  # between two syncs of the log; after this long, votes are written even if their input is not complete


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


@dataclass(frozen=True)
class RunRecord(SealedRecord):
    """The content of a run: its manifest, its method with any extensions, its votes, and its seed if known."""

    manifest: Manifest
    method: Method
    votes: VoteTable
    secret: Seed | None = None

    def certificates(self, n: int | None = None) -> Certificates:
        """The claims of the run, at its own n or at that of an earlier look or an extension."""
        certs = self.method.certificates(self.votes, n)
        inputs = self.manifest.inputs
        return replace(certs, arithmetic=inputs.arithmetic, input_range=inputs.range, record=self)

    def changed(self, changes: dict[str, Any], smoothing: str | None = None) -> Certificates:
        """The claims for another k, alpha, bounds or look n, or another bound on the same views, where the votes allow it."""
        n = changes.pop("n", None)
        if n is not None and not isinstance(self.method, FixedMethod):
            changes["n"] = n
        law = self.manifest.law(smoothing).for_shape(self.manifest.data.shape)
        other = self.method.changed(law, changes)
        return replace(self, method=other).certificates(n)

    def claims(self) -> dict[str, Certificates]:
        """The certificates of every claims file, by the file's name; the latest last."""
        files = {CLAIMS: self.certificates()}
        return files | {claims_file(n): self.certificates(n) for n in extensions_of(self.method)}

    def vote_hashes(self) -> dict[str, str]:
        """The hash of the votes, and of the lines that record extensions."""
        run = self.manifest.identity
        hashes = {self.votes.file: self.votes.digest(run)}
        if extensions_of(self.method):
            hashes[EXTENSIONS] = sha256("".join(extension_lines(self.method, run)))
        return hashes


def claims_file(n: int) -> str:
    """The name of the claims file of an extension to n votes."""
    return f"claims-{n}.csv"


def extensions_of(method: Method) -> tuple[int, ...]:
    """The numbers of votes to which a run was extended."""
    return method.extensions if isinstance(method, FixedMethod) else ()


def extension_lines(method: Method, run: str) -> Iterator[str]:
    """The lines that record extensions."""
    for n in extensions_of(method):
        yield checked_line({"n": n}, run) + "\n"


def read_record(folder: Path, manifest: Manifest | None = None) -> tuple[RunRecord, int]:
    """Read the votes of a run, and the byte length of their complete lines; votes that contradict the manifest are refused."""
    manifest = manifests.read(folder) if manifest is None else manifest
    run = manifest.identity
    method = manifest.method
    extended, _ = read_lines(folder / EXTENSIONS, lambda line: int(checked_body(line, run)["n"]))
    if extended:
        from vauban.runs.extensions import extend_method

        method = extend_method(method, extended)
    data = manifest.data
    votes: Any = method.empty_votes(data.index, data.label)
    path = folder / votes.file
    records, length = read_lines(path, lambda line: votes.parse(line, run))
    try:
        votes.take(records, lambda number: f"{path} line {number + 1}")
    except (ValueError, TypeError) as problem:
        raise Lie(str(problem)) from None
    return RunRecord(manifest, method, votes), length


class MemoryStore:
    """Keeps votes in memory; nothing to resume."""

    manifest: Manifest | None = None
    sealed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def seed(self, number: int | None) -> Seed:
        """The seed of this number, or a fresh one."""
        return Seed.of(number)

    def begin(self, manifest: Manifest, secret: Seed | None, extend: int | None) -> None:
        """Start an empty vote table."""
        if extend is not None:
            raise BadInput(f"extend={extend} continues a run folder: give out=…, or use n={extend} from the start")
        votes = manifest.method.empty_votes(manifest.data.index, manifest.data.label)
        self.record = RunRecord(manifest, manifest.method, votes, secret)

    def keep(self, record: Record) -> None:
        """Add one record."""
        self.record.votes.add(record)  # type: ignore[arg-type]

    def finish(self) -> Certificates:
        """Certificates from the records so far."""
        if not self.record.method.finished(self.record.votes, sealed=True):
            raise Incomplete("the time was too short for a first look at every input: give more seconds")
        return self.record.certificates()


class FolderStore:
    """Keeps votes in a run folder, which one process at a time holds locked."""

    def __init__(self, path: Path):
        self.path = path
        self.manifest: Manifest | None = None
        self._log: Log | None = None
        self._written = time.monotonic()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(locked(self.path))
            if (self.path / FILE).exists():
                self.manifest = manifests.read(self.path)
            self._held = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, CannotWrite) and self._log is not None:
                self._log.close()
            else:
                self._close_log()
        finally:
            self._held.close()

    @property
    def sealed(self) -> bool:
        """Whether the folder has a seal."""
        return (self.path / SEAL).exists()

    def seed(self, number: int | None) -> Seed:
        """The seed of the run in the folder; else that of this number, or a fresh one."""
        if number is None and self.manifest is not None and self.manifest.commitment is not None:
            if not (self.path / SEED_FILE).exists():
                raise RunRefused(
                    f"{self.path / SEED_FILE} is missing: without its seed this run can be verified, but not resumed"
                )
            return replace(Seed.read(self.path), kind=self.manifest.seed_kind or "system")
        return Seed.of(number)

    def begin(self, manifest: Manifest, secret: Seed | None, extend: int | None) -> None:
        """Check that the run in the folder has the same manifest; if there is none, write seed and manifest."""
        if self.manifest is None:
            if extend is not None:
                raise BadInput(f"extend={extend}: {self.path} holds no run to extend; use n={extend} from the start")
            self._start_new(manifest, secret)
        else:
            refuse_other(self.path, self.manifest, manifest.raw)
        self.record, length = read_record(self.path, self.manifest)
        closed = self._closed()
        self._claims = self._sealed_claims(closed)
        if self._claims is None:
            self._unseal()
        if extend is not None and extend not in extensions_of(self.record.method):
            self._extend(extend)
            self.record, length = read_record(self.path, self.manifest)
        self._length = length
        self._extending = self._claims is not None and extensions_of(self.record.method) != extensions_of(closed.method)

    def _start_new(self, manifest: Manifest, secret: Seed | None) -> None:
        files = [p.name for p in self.path.iterdir() if p.name != SEED_FILE and not p.name.startswith(".")]
        if files:
            raise RunRefused(f"{self.path} is not empty and not a run (it holds {min(files)}): give another --out")
        if secret is not None:
            secret.write(self.path)
        write_json(self.path / FILE, manifest.raw)
        self.manifest = manifest

    def _extend(self, n: int) -> None:
        from vauban.runs.extensions import extend_method

        record = self.record
        extended = extend_method(record.method, [n])
        if not record.method.finished(record.votes):
            raise RunRefused(f"{self.path} is not finished: finish it with the same command first, then extend it")
        if self._claims is None or self._closed() is not record:
            self._claims = record.claims()
            write_claims(self.path, record, self._claims)
        text = "".join(extension_lines(extended, record.manifest.identity))
        replace_file(self.path / EXTENSIONS, text.encode())

    def _closed(self) -> RunRecord:
        """What a seal in the folder closes: the record, without an extension that is not sealed yet."""
        if not extensions_of(self.record.method):
            return self.record
        from vauban.runs.extensions import closed_record

        return closed_record(self.path, self.record)

    def _sealed_claims(self, record: RunRecord) -> dict[str, Certificates] | None:
        """The claims of a sealed run, after checking that its claims files and seal match its votes; None if it is not sealed."""
        if not self.sealed or not record.method.finished(record.votes, sealed=True):
            return None
        claims = record.claims()
        texts = record.texts(claims)
        try:
            kept = all((self.path / name).read_text() == text for name, text in texts.items())
            kept = kept and json.loads((self.path / SEAL).read_text()) == record.seal(texts)
        except (OSError, ValueError):
            kept = False
        if not kept:
            raise Lie(
                f"{self.path} is finished, but its {CLAIMS} or {SEAL} does not match its votes (see vauban verify): "
                f"remove both and run the same command again to derive them again"
            )
        return claims

    def keep(self, record: Record) -> None:
        """Write one record; the first one removes an existing seal, but that of a run which is being extended."""
        if self._log is None:
            if not self._extending:
                self._unseal()
            self._log = Log(self.path / self.record.votes.file, self._length)
        votes: Any = self.record.votes
        votes.add(record)
        now = time.monotonic()
        late = now - self._written > _SECOND
        for line in votes.new_lines(record, self.record.manifest.identity, all=late):
            self._log.append(line)
            self._written = now

    def _unseal(self) -> None:
        for name in (SEAL, *(path.name for path in self.path.glob("claims*.csv"))):
            (self.path / name).unlink(missing_ok=True)

    def finish(self) -> Certificates:
        """Read the votes back, derive every claims file from them, and seal the run."""
        if self._log is not None:
            self._close_log()
            self.record, _ = read_record(self.path, self.manifest)
        elif self._claims is not None and not self._extending:
            return self._latest(self._claims)
        record = self.record
        if not record.method.finished(record.votes, sealed=True):
            raise Incomplete(
                f"{self.path} has a first look at {len(getattr(record.votes, 'begun', []))} of its "
                f"{len(record.manifest.data.index)} inputs: these votes are kept; run the same command again to continue"
            )
        claims = record.claims()
        write_claims(self.path, record, claims)
        return self._latest(claims)

    def _latest(self, claims: Mapping[str, Certificates]) -> Certificates:
        """The latest claims; those of an extension with a note on what they cost together with the earlier ones."""
        certs, extensions = list(claims.values())[-1], extensions_of(self.record.method)
        if not extensions:
            return certs
        from vauban.runs.second_claims import with_notes

        return with_notes(self.record, certs, [extensions[-1]])

    def _close_log(self) -> None:
        """Write the votes that are not written yet, and close the file."""
        log, self._log = self._log, None
        if log is not None:
            try:
                for line in self.record.votes.unwritten_lines(self.record.manifest.identity):
                    log.append(line)
            finally:
                log.close()


def save_run(path: str | Path, record: RunRecord) -> Path:
    """Write the run folder of certificates that were made in memory, the same folder as certify(out=path) writes."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    if any(not name.startswith(".") for name in os.listdir(folder)):
        raise RunRefused(f"{folder} is not empty: give another path")
    if record.secret is not None:
        record.secret.write(folder)
    record.manifest.law()  # refuses a law without a text form, which could not be read again
    write_json(folder / FILE, record.manifest.raw)
    run = record.manifest.identity
    replace_file(folder / record.votes.file, "".join(line + "\n" for line in record.votes.lines(run)).encode())
    write_claims(folder, record)
    return folder
