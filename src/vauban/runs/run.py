"""Run: a run folder with its manifest, votes, certificates for any k and alpha, verification, tables and plots; no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vauban.certificates import Certificates
from vauban.laws.exact import Ballots
from vauban.runs.manifest import Manifest
from vauban.runs.store import RunRecord, extensions_of, read_record
from vauban.runs.verify import Verdict, verify_run
from vauban.votes import BallotVotes, Counts, SampledVotes, VoteTable


class Run:
    """A smoothing run read from its folder. `Run.open(path)` opens one, or a poisoning run.

    `manifest`: everything its claims depend on. Certificates are derived from its votes, which are read once; no model is needed.
    """

    def __init__(self, path: Path, record: RunRecord):
        self.path, self.record = path, record

    @staticmethod
    def open(path: str | Path) -> Any:
        """Open a run folder, finished or not."""
        from vauban.runs import manifest as manifests

        folder = Path(path)
        if manifests.read_raw(folder).get("kind") == "poisoning":
            from vauban.poisoning.votes.run_folder import read_run

            return read_run(folder)
        return Run(folder, read_record(folder)[0])

    @property
    def manifest(self) -> Manifest:
        """Everything the claims depend on."""
        return self.record.manifest

    @property
    def votes(self) -> VoteTable:
        """All votes in the folder."""
        return self.record.votes

    @property
    def counts(self) -> dict[int, dict[int, Counts]]:
        """Counts per class at every look: {number of votes: {input number: counts [c]}}; for ballots, at the number of views."""
        votes, found = self.votes, dict[int, dict[int, Counts]]()
        if isinstance(votes, BallotVotes):
            counts = votes.ballots(votes.complete).counts
            return {votes.views: {votes.index[p]: row for p, row in zip(votes.complete, counts, strict=True)}}
        assert isinstance(votes, SampledVotes)
        for number, looks in zip(votes.index, votes.looks, strict=True):
            for counts in looks:
                found.setdefault(int(counts.sum()), {})[number] = counts
        return dict(sorted(found.items()))

    @property
    def ballots(self) -> Ballots | None:
        """The vote of every view, for the inputs that are complete; None for a sampled smoothing."""
        return self.votes.ballots(self.votes.complete) if isinstance(self.votes, BallotVotes) else None

    @property
    def finished(self) -> bool:
        """Whether every input has the votes its claim needs."""
        return self.record.method.finished(self.votes)

    @property
    def extensions(self) -> tuple[int, ...]:
        """The numbers of votes to which the run was extended."""
        return extensions_of(self.record.method)

    def certificates(
        self,
        *,
        k: int | None = None,
        alpha: float | None = None,
        bounds: str | None = None,
        n: int | None = None,
        threat: str | None = None,
        smoothing: str | None = None,
    ) -> Certificates:
        """Certificates for every input that has enough votes; other k, alpha, bounds or an earlier look n cost no votes.

        `threat`: convert them to another threat. `smoothing`: the same views with another bound, such as
        laplace:sigma=0.5,bound=lecuyer. Exact runs have no alpha, bounds or looks; a sequential run proves only the claim that
        it was stopped for.
        """
        changes = {"k": k, "alpha": alpha, "bounds": bounds, "n": n}
        certs = self.record.changed({key: value for key, value in changes.items() if value is not None}, smoothing)
        return certs if threat is None else certs.in_threat(threat, self.manifest.data.shape)

    def verify(self) -> Verdict:
        """Recompute every claim from the votes in the folder; raises `Lie` at the first contradiction."""
        return verify_run(self.path)

    def to_pandas(self, **options: Any) -> Any:
        """A pandas table of `certificates(**options)`, with file names where there are any."""
        certs, data = self.certificates(**options), self.manifest.data
        names: Sequence[str] | None = None
        if data.names is not None:
            by_number = dict(zip(data.index, data.names, strict=True))
            names = [by_number[int(number)] for number in certs.index]
        return certs.to_pandas(names)

    def plot(self, path: str | Path | None = None, k: Sequence[int] = (), **options: Any) -> Any:
        """The curve of certified accuracy, also for other k, as a Matplotlib figure; written to `path` if given."""
        from vauban.report.curve import figure

        curves = [self.certificates(), *(self.certificates(k=one) for one in k)]
        return figure(curves, path, **{"title": self.title, **options})

    @property
    def title(self) -> str:
        """One line that describes the run: data, smoothing and votes."""
        settings, data = self.manifest.settings, self.manifest.data
        what = f"{data.spec}, {self.manifest.smoothing}"
        if settings.stop is None:
            return f"{what}, exact"
        votes = "" if settings.n is None else f", {settings.n:,} votes per input"
        return f"{what}{votes}" + ("" if settings.stop == "fixed" else f", {settings.stop}")

    def __len__(self) -> int:
        return len(self.manifest.data.index)

    def __repr__(self) -> str:
        done = len(self) - len(self.record.method.pending(self.votes))
        return f"Run({str(self.path)!r}: {self.title}, {done} of {len(self)} inputs done)"

    def _repr_html_(self) -> str:
        from vauban.report.tables import certificates_html

        return certificates_html(self.certificates())
