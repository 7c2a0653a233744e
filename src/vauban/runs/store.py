"""The store of votes while they are cast: a run folder that is locked, append-only, resumable and sealed.

`memory_store` has the same interface: `begin` with a manifest, `keep` every record, `finish` with certificates.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from vauban.certificates import COLUMNS, Certificates, Claims
from vauban.errors import BadInput, CannotWrite, Incomplete, Lie, RunRefused
from vauban.files import (
    Log,
    check_folder,
    is_there,
    locked,
    read_json,
    read_lines,
    read_packed,
    replace_file,
    replace_packed,
    sha256,
    write_json,
)
from vauban.last_votes import LastVotes
from vauban.methods import FixedMethod, Method
from vauban.runs import manifest as manifests
from vauban.runs.manifest import FILE, AnyManifest, Manifest, has_manifest, refuse_other
from vauban.seed import FILE as SEED_FILE
from vauban.seed import NONCE_FILE, SYSTEM, Seed, SeedRequest, read_nonce, write_nonce
from vauban.votes import Record, SampledVotes, VoteTable, checked_body, checked_line

CLAIMS, SEAL, EXTENSIONS, PICTURE = "claims.csv", "seal.json", "extensions.jsonl", "curve.png"

Drawing = Callable[[Certificates], bytes | None]

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

    def seal(self, texts: Mapping[str, str], picture: bytes | None = None) -> dict[str, str]:
        """The hashes that close the run with these claims files and this picture."""
        hashes = {FILE: self.manifest.identity, **self.vote_hashes()}
        hashes |= {name: sha256(text.encode()) for name, text in texts.items()}
        hashes |= {} if picture is None else {PICTURE: sha256(picture)}
        if self.manifest.schema == 1:
            from vauban.runs import schema1

            return {schema1.SEAL_KEYS.get(name, name): digest for name, digest in hashes.items()}
        return hashes


def write_claims(
    folder: Path, record: SealedRecord, claims: Mapping[str, Claims] | None = None, picture: bytes | None = None
) -> None:
    """Write the claims files, the picture if there is one, and last the seal of a run whose votes are all in."""
    texts = record.texts(record.claims() if claims is None else claims)
    for name, text in texts.items():
        replace_packed(folder / name, text.encode())
    if picture is not None:
        if (folder / SEAL).exists():  # of an extended run: it stays true while its picture is replaced
            write_json(folder / SEAL, {k: v for k, v in read_json(folder / SEAL).items() if k != PICTURE})
        replace_file(folder / PICTURE, picture)
    write_json(folder / SEAL, record.seal(texts, picture))


def sealed_picture(folder: Path) -> bytes | None:
    """The picture that the seal names, empty where it is missing; None if the seal names none."""
    if PICTURE not in read_json(folder / SEAL):
        return None
    return (folder / PICTURE).read_bytes() if (folder / PICTURE).is_file() else b""


@dataclass(frozen=True)
class RunRecord(SealedRecord):
    """The content of a run: manifest, method with any extensions, votes, seed if known, nonce if it is announced."""

    manifest: Manifest
    method: Method
    votes: VoteTable
    secret: Seed | None = None
    nonce: str | None = None

    @cached_property
    def binding(self) -> str:
        """The hash that lines of votes and the seal are bound to."""
        return self.manifest.binding(self.nonce)

    def bound(self, secret: Seed) -> Seed:
        """The seed from which the noise of this run comes: of an announced run, with its hash and nonce."""
        return secret if self.nonce is None else secret.with_nonce(self.manifest.identity, self.nonce)

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
        """The hash of the votes, of the lines that record extensions, and of the nonce."""
        run = self.binding
        hashes = {self.votes.file: self.votes.digest(run)}
        if self.nonce is not None:
            hashes[NONCE_FILE] = run
        if extensions_of(self.method):
            hashes[EXTENSIONS] = sha256("".join(extension_lines(self.method, run)).encode())
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


def read_record(folder: Path, manifest: Manifest | None = None, nonce: str | None = None) -> tuple[RunRecord, int]:
    """Read the votes of a run, and the byte length of their complete lines; votes that contradict the manifest are refused.

    `nonce`: of an announced run whose folder does not keep it yet.
    """
    manifest = manifests.read(folder) if manifest is None else manifest
    if manifest.announced or (folder / NONCE_FILE).exists():
        nonce = read_nonce(folder, manifest.identity, manifest.announced) or nonce
    if manifest.announced and nonce is None and is_there(folder / SampledVotes.file):
        raise Lie(f"{folder} has votes and no {NONCE_FILE}: the votes of an announced run come after its nonce")
    run = manifest.binding(nonce)
    method = manifest.method
    extended, _ = read_lines(folder / EXTENSIONS, lambda line: checked_body(line, run, n=int)["n"])
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
    return RunRecord(manifest, method, votes, nonce=nonce), length


class FolderStore:
    """Keeps votes in a run folder that one process at a time holds locked. `begin` creates it: what is refused before leaves
    nothing behind. `extending`: whether votes are being added to a sealed run."""

    def __init__(self, path: Path):
        self.path = path
        self.manifest: Manifest | None = None
        self._log: Log | None = None
        self._written = time.monotonic()
        self._held = ExitStack()

    def __enter__(self) -> Self:
        check_folder(self.path)
        if has_manifest(self.path):
            with ExitStack() as stack:
                stack.enter_context(locked(self.path))
                self.manifest = manifests.read(self.path)
                self._held = stack.pop_all()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if isinstance(error, CannotWrite) and self._log is not None:
                self._log.close()
            else:
                self._close_log()
        finally:
            self._held.close()

    def seed(self, asked: SeedRequest) -> Seed:
        """The seed of the run in the folder; else that of the number asked for, or a fresh one."""
        run = self.manifest
        there = None if run is None else run.seed
        asked.check(self.path, None if run is None else run.identity, None if there is None else there.nonce_from)
        if there is None or asked.number is not None:
            return Seed.of(asked.number, asked.nonce_from)
        if not (self.path / SEED_FILE).exists():
            raise RunRefused(
                f"{self.path / SEED_FILE} is missing: without its seed this run can be verified, but not resumed"
            )
        return replace(Seed.read(self.path), kind=there.kind or SYSTEM, nonce_from=asked.nonce_from or there.nonce_from)

    def begin(self, manifest: Manifest, secret: Seed | None, extend: int | None, asked: SeedRequest) -> None:
        """Check that the run in the folder has the same manifest; if there is none, lock it, write seed and manifest."""
        from vauban.runs.extensions import extended_method

        if self.manifest is None:
            if extend is not None:
                raise BadInput(f"extend={extend}: {self.path} holds no run to extend; use n={extend} from the start")
            self._start_new(manifest, secret)
        else:
            refuse_other(self.path, self.manifest, manifest.raw)
        self.record, length = read_record(self.path, self.manifest, asked.nonce)
        closed = self._closed()
        self._claims = self._sealed_claims(closed)
        if self._claims is None:
            self._unseal()
        self._extended = None if extend is None else extended_method(self.path, self.record, extend)
        self.secret = None if secret is None else self._bound(secret)
        self._length = length
        self.extending = self._claims is not None and extensions_of(self.record.method) != extensions_of(closed.method)

    def _bound(self, secret: Seed) -> Seed:
        """The seed of the noise; the nonce of an announced run is kept in the folder before its first vote."""
        if self.record.nonce is not None and not (self.path / NONCE_FILE).exists():
            write_nonce(self.path, self.record.manifest.identity, self.record.nonce)
        return self.record.bound(secret)

    def _start_new(self, manifest: Manifest, secret: Seed | None) -> None:
        self._refuse_content()
        self._held.enter_context(locked(self.path))
        self._refuse_content()
        if secret is not None:
            secret.write(self.path)
        write_json(self.path / FILE, manifest.raw)
        self.manifest = manifest

    def _refuse_content(self) -> None:
        """Refuse a folder that is not empty, or in which another process began a run since this one looked."""
        if has_manifest(self.path):
            raise RunRefused(
                f"{self.path} was begun by another process just now: run the same command again to continue it"
            )
        found = self.path.iterdir() if self.path.is_dir() else ()
        files = [p.name for p in found if p.name != SEED_FILE and not p.name.startswith(".")]
        if files:
            raise RunRefused(f"{self.path} is not empty and not a run (it holds {min(files)}): give another --out")

    def extend(self) -> None:
        """Let votes be added as `begin` was asked to; what is finished is sealed first, after its votes were compared."""
        if self._extended is None:
            return
        if self.unsealed:
            (self.path / PICTURE).unlink(missing_ok=True)
            self.finish()
        replace_file(self.path / EXTENSIONS, "".join(extension_lines(self._extended, self.record.binding)).encode())
        self.record, self._length = read_record(self.path, self.manifest)
        self.extending = True

    def _closed(self) -> RunRecord:
        """What a seal in the folder closes: the record, without an extension that is not sealed yet."""
        if not extensions_of(self.record.method):
            return self.record
        from vauban.runs.extensions import closed_record

        return closed_record(self.path, self.record)

    def _sealed_claims(self, record: RunRecord) -> dict[str, Certificates] | None:
        """The claims of a sealed run, after checking that its claims files and seal match its votes; None if it is not sealed."""
        if not (self.path / SEAL).exists() or not record.method.finished(record.votes, sealed=True):
            return None
        texts = record.texts(claims := record.claims())
        try:
            kept = read_json(self.path / SEAL) == record.seal(texts, sealed_picture(self.path))
            kept = kept and all(read_packed(self.path / name) == text.encode() for name, text in texts.items())
        except (OSError, ValueError, Lie):
            kept = False
        if not kept:
            raise Lie(
                f"{self.path} is finished, but its {CLAIMS}, {SEAL} or {PICTURE} does not match its votes (see vauban verify): "
                f"remove them and run the same command again to derive them again"
            )
        return claims

    def keep(self, record: Record) -> None:
        """Write one record; the first one removes an existing seal, but that of a run which is being extended."""
        if self._log is None:
            if not self.extending:
                self._unseal()
            self._log = Log(self.path / self.record.votes.file, self._length)
        votes: Any = self.record.votes
        votes.add(record)
        late = (now := time.monotonic()) - self._written > _SECOND
        for line in votes.new_lines(record, self.record.binding, all=late):
            self._log.append(line)
            self._written = now

    @property
    def unsealed(self) -> bool:
        """Whether the folder held votes at first that no seal closes."""
        return bool(self.record.votes.votes_cast) and (self._claims is None or self.extending)

    def discard(self) -> None:
        """Take the votes of this call back, because its model did not stay as it was."""
        if self._log is not None:
            self._log.close()
            self._log = None
            Log(self.path / self.record.votes.file, self._length).close()

    def _unseal(self) -> None:
        claims = [*self.path.glob("claims*.csv"), *self.path.glob("claims*.csv.gz")]
        for path in (self.path / SEAL, self.path / PICTURE, *claims):
            path.unlink(missing_ok=True)

    def announcement(self) -> Certificates:
        """No certificates, since no vote is cast; their note has the hash of the announced manifest."""
        manifest, none = self.record.manifest, np.empty(0, dtype=np.int64)
        settings, counts = manifest.settings, none.reshape(0, manifest.data.num_classes)
        claimed = (none, none.astype(np.float64), none.astype(bool), counts, None)
        how = (settings.k, settings.alpha, settings.bounds, self.record.method.law, none)
        return Certificates(*claimed, *how, notes=(f"announced as {manifest.identity}",), record=self.record)

    def finish(self, draw: Drawing | None = None) -> Certificates:
        """Read the votes back, derive every claims file from them, draw their picture if asked to, and seal the run."""
        if self._log is not None:
            self._close_log()
            self.record, _ = read_record(self.path, self.manifest)
            self._claims = None
        elif (
            self._claims is not None and not self.extending and (draw is None or sealed_picture(self.path) is not None)
        ):
            return self._latest(self._claims)
        record = self.record
        if not record.method.finished(record.votes, sealed=True):
            raise Incomplete(
                f"{self.path} has a first look at {len(getattr(record.votes, 'begun', []))} of its "
                f"{len(record.manifest.data.index)} inputs: these votes are kept; run the same command again to continue"
            )
        if isinstance(record.votes, LastVotes) and record.votes.forget_looks():
            replace_file(self.path / record.votes.file, record.votes.content(record.binding))
        self._claims = claims = self._claims if self._claims and not self.extending else record.claims()
        latest = self._latest(claims)
        write_claims(self.path, record, claims, None if draw is None else draw(latest))
        return latest

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
                for line in self.record.votes.unwritten_lines(self.record.binding):
                    log.append(line)
            finally:
                log.close()
