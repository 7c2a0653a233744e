"""A run's secret seed, the hash by which the run commits to it, and the nonce of an announced run."""

from __future__ import annotations

import hashlib
import os
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from vauban.errors import BadInput, Lie, RunRefused
from vauban.files import read_json, write_json
from vauban.runs.sections import SeedSection
from vauban.validation import check_nonce, check_seed

FILE, NONCE_FILE = "seed", "nonce.json"
NUMBER, SYSTEM, ANNOUNCED = KINDS = ("number", "system", "announced")
"""Where a secret comes from: a number that the user gave, or the operating system, whose noise an announced run binds to a nonce
that did not exist yet."""


@dataclass(frozen=True)
class Seed:
    """32 bytes from the operating system, or the hash of a number that the user gave.

    Whoever knows the seed knows the noise and could choose an input against it: keep it secret until the claims are made.
    `nonce_from`: of an announced run, where its nonce comes from. `bound`: what the noise depends on besides the secret.
    """

    secret: bytes
    kind: str = SYSTEM
    nonce_from: str | None = None
    bound: bytes = b""

    @classmethod
    def of(cls, number: int | None, nonce_from: str | None = None) -> Seed:
        """The seed of a number, or a fresh one; with `nonce_from` that of an announced run, which has no key before its nonce."""
        if number is None:
            return cls(secrets.token_bytes(32), SYSTEM if nonce_from is None else ANNOUNCED, nonce_from)
        return cls(hashlib.sha256(f"vauban seed {check_seed(number)}".encode()).digest(), NUMBER)

    def with_nonce(self, announced: str, nonce: str) -> Seed:
        """The seed of the run that was announced as this hash, with its nonce."""
        return replace(
            self, kind=ANNOUNCED, bound=bytes.fromhex(announced) + hashlib.sha256(bytes.fromhex(nonce)).digest()
        )

    @property
    def commitment(self) -> str:
        """A hash that binds a run to its seed without revealing it."""
        return hashlib.sha256(b"vauban commits to " + self.secret).hexdigest()

    @property
    def section(self) -> SeedSection:
        """What a manifest says of this seed."""
        return SeedSection(self.commitment, self.kind, self.nonce_from)

    @property
    def key(self) -> int:
        """The 128-bit key of the random words."""
        if self.kind == ANNOUNCED and not self.bound:
            raise RunRefused("an announced run has no noise before its nonce: give --nonce")
        return int.from_bytes(hashlib.sha256(b"vauban votes with " + self.secret + self.bound).digest()[:16], "little")

    def write(self, folder: Path) -> None:
        """Write the seed to the run folder, readable only by its owner."""
        descriptor = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(self.secret.hex() + "\n")
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def read(cls, folder: Path) -> Seed:
        """Read the seed of a run folder."""
        try:
            secret = bytes.fromhex((folder / FILE).read_text())
        except ValueError:
            secret = b""
        if len(secret) != 32:
            raise Lie(f"{folder / FILE} is damaged: it does not hold a seed")
        return cls(secret)


@dataclass(frozen=True)
class SeedRequest:
    """What a call says of its seed: nothing, a number, that it announces (`nonce_from`), or the nonce of what it announced.

    `validation.check_seed_request` checks it.
    """

    number: int | None = None
    nonce_from: str | None = None
    nonce: str | None = None

    def check(self, folder: Path, identity: str | None, source: str | None) -> None:
        """Refuse an announcement, or a nonce, that the run in the folder cannot have.

        `identity`: of that run, None if there is none; `source`: where its nonce comes from, None if it is not announced.
        """
        if identity is None:
            if self.nonce is not None:
                raise RunRefused(
                    f"{folder} holds no announced run: announce it first, with --announce --nonce-from in place of --nonce"
                )
        elif source is not None:
            self._check_announced(folder, identity, source)
        elif self.nonce is not None or self.nonce_from is not None:
            raise RunRefused(
                f"{folder} holds a run that was not announced before its votes, and cannot be afterwards: leave --announce and "
                "--nonce out to resume it, or announce another one with another --out"
            )

    def _check_announced(self, folder: Path, identity: str, source: str) -> None:
        kept = read_nonce(folder, identity, announced=True)
        if kept is None and self.nonce is None and self.nonce_from is None:
            raise RunRefused(
                f"{folder} is announced as {identity} and waits for its nonce: give --nonce with the value of {source!r}"
            )
        if kept is not None and self.nonce_from is not None:
            raise RunRefused(
                f"{folder} is announced and has its nonce already: leave --announce out to resume it, or announce another run "
                "with another --out"
            )
        if kept is not None and self.nonce not in (None, kept):
            raise RunRefused(
                f"{folder} has the nonce {kept}, and a second one would be a second try: leave --nonce out to resume it"
            )


def write_nonce(folder: Path, identity: str, nonce: str) -> None:
    """Write the nonce of the run that was announced as `identity`."""
    write_json(folder / NONCE_FILE, {"announced": identity, "nonce": nonce})


def read_nonce(folder: Path, identity: str, announced: bool) -> str | None:
    """The nonce of the run with this identity; None if it is not announced, or has no nonce yet."""
    path = folder / NONCE_FILE
    if not path.exists():
        return None
    if not announced:
        raise Lie(f"{path} exists, but the manifest is not that of an announced run")
    said = read_json(path)
    if said.keys() != {"announced", "nonce"} or said["announced"] != identity:
        raise Lie(f"{path} is not about this run, which was announced as {identity}")
    try:
        return check_nonce(said["nonce"])
    except BadInput as problem:
        raise Lie(f"{path}: {problem}") from None
