"""A store that keeps votes in memory, with the interface of a run folder's."""

from __future__ import annotations

from typing import Self

from vauban.certificates import Certificates
from vauban.errors import BadInput, Incomplete
from vauban.runs.manifest import Manifest
from vauban.runs.store import Drawing, RunRecord
from vauban.seed import Seed, SeedRequest
from vauban.votes import Record


class MemoryStore:
    """Keeps votes in memory; nothing to resume."""

    manifest: Manifest | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def seed(self, asked: SeedRequest) -> Seed:
        """The seed of this number, or a fresh one."""
        return Seed.of(asked.number)

    def begin(self, manifest: Manifest, secret: Seed | None, extend: int | None, asked: SeedRequest) -> None:
        """Start an empty vote table."""
        if extend is not None:
            raise BadInput(f"extend={extend} continues a run folder: give out=…, or use n={extend} from the start")
        votes = manifest.method.empty_votes(manifest.data.index, manifest.data.label)
        self.secret = secret
        self.record = RunRecord(manifest, manifest.method, votes, secret)

    def keep(self, record: Record) -> None:
        """Add one record."""
        self.record.votes.add(record)  # type: ignore[arg-type]

    def discard(self) -> None:
        """Nothing is kept anyway."""

    def finish(self, draw: Drawing | None = None) -> Certificates:
        """Certificates from the records so far."""
        if not self.record.method.finished(self.record.votes, sealed=True):
            raise Incomplete("the time was too short for a first look at every input: give more seconds")
        return self.record.certificates()
