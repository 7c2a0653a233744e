"""A poisoning run folder opened: its manifest, its votes, certificates for any aggregate and k, verification; no torch."""

from __future__ import annotations

from pathlib import Path

from vauban.poisoning.votes.certificates import PoisoningCertificates
from vauban.poisoning.votes.collective import CollectiveClaim, collective_claim
from vauban.poisoning.votes.ensemble_votes import EnsembleVotes
from vauban.poisoning.votes.poisoning_manifest import PoisoningManifest
from vauban.poisoning.votes.run_folder import NO_SPEC, PoisoningRecord
from vauban.runs.opened import OpenedRun


class PoisoningRun(OpenedRun):
    """A poisoning run as it is in its folder; `vauban.Run.open(path)` gives one.

    `manifest`: everything its claims depend on. Certificates are derived from its votes, which are read once, without a model.
    """

    record: PoisoningRecord

    def __init__(self, path: Path, record: PoisoningRecord):
        self.path, self.record = path, record

    @property
    def manifest(self) -> PoisoningManifest:
        """Everything the claims depend on."""
        return self.record.manifest

    @property
    def votes(self) -> EnsembleVotes:
        """The votes of the base classifiers."""
        return self.record.votes

    def certificates(
        self, *, aggregate: str | None = None, k: int | None = None, label: str | None = None
    ) -> PoisoningCertificates:
        """Certificates as the manifest states, or for another aggregate, k or label, as far as the votes allow."""
        return self.record.certificates(aggregate=aggregate, k=k, label=label)

    def collective(
        self,
        budget: int,
        *,
        k: int | None = None,
        label: str | None = None,
        of: str | None = None,
        solver_seconds: float = 0.0,
    ) -> CollectiveClaim:
        """How many labels one and the same poisoning of at most `budget` can change; see `collective_claim`.

        It is better than the count one by one only where the folder keeps every vote: `certify(..., keep_votes=True)`.
        """
        return collective_claim(
            self.votes, self.certificates(k=k, label=label), budget, of=of, solver_seconds=solver_seconds
        )

    @property
    def title(self) -> str:
        """What the run is about, in a line."""
        spec = self.manifest.data.spec
        return f"{'inputs without a name' if spec == NO_SPEC else spec}, {self.manifest.partition}"

    def __repr__(self) -> str:
        return f"PoisoningRun({str(self.path)!r}: {self.title}, {self.manifest.settings.aggregate}, {len(self)} inputs)"
