"""A run's secret seed, the hash by which the run commits to it, and the nonce of an announced run."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from vauban.errors import BadInput, Lie, RunRefused
from vauban.files import canonical, read_json, write_json
from vauban.runs.sections import SeedSection
from vauban.validation import refuse_sampled_settings

FILE, NONCE_FILE = "seed", "nonce.json"
NUMBER, SYSTEM, ANNOUNCED = KINDS = ("number", "system", "announced")
"""Where a secret comes from: a number that the user gave, or the operating system, whose noise an announced run binds to a nonce
that did not exist yet."""

_NONCE = re.compile(r"([0-9a-f]{2}){16,64}")
_LONGEST_SOURCE = 200


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
        return cls(hashlib.sha256(f"vauban seed {number}".encode()).digest(), NUMBER)

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
    """What a call says of its seed: nothing, a number, that it announces (`nonce_from`), or the nonce of what it announced."""

    number: int | None = None
    nonce_from: str | None = None
    nonce: str | None = None

    @classmethod
    def of(
        cls,
        number: int | None = None,
        announce: bool = False,
        nonce_from: str | None = None,
        nonce: str | None = None,
        *,
        out: Path | str | None = None,
        exact: str | None = None,
    ) -> SeedRequest:
        """The request of a call that writes to `out`, checked; `exact`: the smoothing, if it is exact and has no noise."""
        if not announce and nonce_from is None and nonce is None:
            return cls(number)
        if exact is not None:
            refuse_sampled_settings(exact, announce=announce or None, nonce_from=nonce_from, nonce=nonce)
        if out is None:
            raise BadInput("announce and nonce belong to a run folder, whose manifest is published: give out=… (--out)")
        if announce and nonce is not None:
            raise BadInput(
                "announce and nonce in one call: what is announced has no nonce yet; announce, publish the hash, and give "
                "--nonce in a second call once it exists"
            )
        if number is not None:
            raise BadInput(
                f"seed={number} with announce or nonce: a number can be tried beforehand and hides nothing; leave --seed out, "
                "and the operating system gives the secret"
            )
        if nonce is not None:
            check_nonce(nonce)
        if announce != (nonce_from is not None):
            raise BadInput(
                'announce and nonce_from belong together: say with --announce --nonce-from "WHO/WHAT" which one value, not known '
                "yet, will be the nonce"
            )
        return cls(nonce_from=None if nonce_from is None else _check_source(nonce_from), nonce=nonce)

    def check(self, folder: Path, identity: str | None, announced: bool) -> None:
        """Refuse an announcement, or a nonce, that the run in the folder cannot have; `identity` None: it holds no run."""
        if self.nonce is None and (self.nonce_from is None or identity is None):
            return
        if identity is None:
            raise RunRefused(
                f"{folder} holds no announced run: announce it first, with --announce --nonce-from in place of --nonce"
            )
        if not announced:
            raise RunRefused(
                f"{folder} holds a run that was not announced before its votes, and cannot be afterwards: leave --announce and "
                "--nonce out to resume it, or announce another one with another --out"
            )
        kept = read_nonce(folder, identity, announced)
        if kept is not None and self.nonce_from is not None:
            raise RunRefused(
                f"{folder} is announced and has its nonce already: leave --announce out to resume it, or announce another run "
                "with another --out"
            )
        if kept is not None and self.nonce != kept:
            raise RunRefused(
                f"{folder} has the nonce {kept}, and a second one would be a second try: leave --nonce out to resume it"
            )


def check_nonce(nonce: object) -> str:
    """Check a nonce: 16 to 64 bytes, written as lower-case hex; it is never normalised."""
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        raise BadInput(
            f"nonce {nonce!r}: 16 to 64 bytes in lower-case hex are needed (32 to 128 digits of 0-9a-f, an even number), exactly "
            "as their source published them"
        )
    return nonce


def _check_source(nonce_from: str) -> str:
    if not isinstance(nonce_from, str) or not nonce_from.strip() or not nonce_from.isprintable():
        raise BadInput(f'nonce_from={nonce_from!r}: a line of text is needed, "WHO/WHAT", such as a round of a beacon')
    if len(nonce_from) > _LONGEST_SOURCE:
        raise BadInput(
            f"nonce_from has {len(nonce_from)} characters: at most {_LONGEST_SOURCE}, one source and one value"
        )
    return nonce_from


def binding(identity: str, nonce: str | None) -> str:
    """What votes and seal are bound to: the manifest's identity, and for an announced run the hash of it and its nonce."""
    if nonce is None:
        return identity
    return hashlib.sha256(canonical({"announced": identity, "nonce": nonce}).encode()).hexdigest()


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
