"""A run's secret seed, and the hash by which the run commits to it."""

from __future__ import annotations

import hashlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from vauban.errors import Lie

FILE = "seed"


@dataclass(frozen=True)
class Seed:
    """32 bytes from the operating system, or the hash of a number that the user gave.

    Whoever knows the seed knows the noise and could choose an input against it: keep it secret until the claims are made.
    """

    secret: bytes
    kind: str = "system"

    @classmethod
    def of(cls, number: int | None) -> Seed:
        """The seed of a number, or a fresh one."""
        if number is None:
            return cls(secrets.token_bytes(32))
        return cls(hashlib.sha256(f"vauban seed {number}".encode()).digest(), "number")

    @property
    def commitment(self) -> str:
        """A hash that binds a run to its seed without revealing it."""
        return hashlib.sha256(b"vauban commits to " + self.secret).hexdigest()

    @property
    def key(self) -> int:
        """The 128-bit key of the random words."""
        return int.from_bytes(hashlib.sha256(b"vauban votes with " + self.secret).digest()[:16], "little")

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
