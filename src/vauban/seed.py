"""A run's secret, and the hash by which a run commits to it."""

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
    """32 bytes from the operating system, or made from a number that the user gave.

    Whoever knows the seed knows the noise, and could choose an input against it: keep it until the claims are made.
    """

    secret: bytes

    @classmethod
    def of(cls, number: int | None) -> Seed:
        """The seed of a number, or a fresh one."""
        if number is None:
            return cls(secrets.token_bytes(32))
        return cls(hashlib.sha256(f"vauban seed {number}".encode()).digest())

    @property
    def commitment(self) -> str:
        """Binds a run to its seed without giving it away."""
        return hashlib.sha256(b"vauban commits to " + self.secret).hexdigest()

    @property
    def key(self) -> int:
        """128 bits that key the random words."""
        return int.from_bytes(hashlib.sha256(b"vauban votes with " + self.secret).digest()[:16], "little")

    def write(self, folder: Path) -> None:
        """Keep the seed beside the run, readable by its owner alone."""
        descriptor = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(self.secret.hex() + "\n")
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def read(cls, folder: Path) -> Seed:
        """The seed kept beside a run."""
        try:
            secret = bytes.fromhex((folder / FILE).read_text())
        except ValueError:
            secret = b""
        if len(secret) != 32:
            raise Lie(f"{folder / FILE} is damaged: it does not hold a seed")
        return cls(secret)
