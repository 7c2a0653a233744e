"""Run: a run folder with its manifest, votes, certificates for any k and alpha, verification, tables and plots; no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vauban.certificates import Certificates, Claims
from vauban.laws.exact import Ballots
from vauban.runs.folder_checks import refuse_special_files
from vauban.runs.manifest import Manifest, read_raw
from vauban.runs.masses import with_mass
from vauban.runs.opened import OpenedRun
from vauban.runs.second_claims import derived
from vauban.runs.store import RunRecord, extensions_of, read_record
from vauban.validation import path_of
from vauban.votes import BallotVotes, Counts, SampledVotes, VoteTable


class Run(OpenedRun):
    """A smoothing run read from its folder. `Run.open(path)` opens one, or a poisoning run.

    `manifest`: everything its claims depend on. Certificates are derived from its votes, which are read once; no model is needed.
    """

    record: RunRecord

    def __init__(self, path: Path, record: RunRecord):
        self.path, self.record = path, record

    @staticmethod
    def open(path: str | Path) -> Any:
        """Open a run folder, finished or not."""
        folder = path_of("path", path, "the folder of a run is needed, as text or as a pathlib.Path")
        if folder.is_dir():
            refuse_special_files(folder)
        if read_raw(folder).get("kind") == "poisoning":
            from vauban.poisoning.votes.poisoning_run import PoisoningRun
            from vauban.poisoning.votes.run_folder import read_record as read_poisoning

            return PoisoningRun(folder, read_poisoning(folder))
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
            counts = votes.counts(votes.complete)
            return {votes.views: {votes.index[p]: row for p, row in zip(votes.complete, counts, strict=True)}}
        assert isinstance(votes, SampledVotes)
        for number, looks in zip(votes.index, votes.looks, strict=True):
            for counts in looks:
                found.setdefault(int(counts.sum()), {})[number] = counts
        return dict(sorted(found.items()))

    @property
    def ballots(self) -> Ballots | None:
        """The vote of every view, for the inputs that are complete; None for a sampled smoothing, or where counts were kept."""
        kept = isinstance(self.votes, BallotVotes) and self.manifest.settings.keep != "counts"
        return self.votes.ballots(self.votes.complete) if isinstance(self.votes, BallotVotes) and kept else None

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
        label: str | None = None,
        threat: str | None = None,
        smoothing: str | None = None,
        all_looks: bool = False,
        mass: Any = None,
    ) -> Certificates:
        """Certificates for every input that has enough votes; other k, alpha, bounds or an earlier look n cost no votes.

        `label`: "given" certifies the true labels of a run whose own claim is about labels that votes chose.

        Choose n, k, alpha and bounds before you look: with other settings than the manifest's this is a second claim, and
        `notes` of the result say with what probability it and the run's own fail together. The best of several settings fails
        with up to the sum of their alphas. `all_looks`: the claim that holds at all J looks of the manifest at once, alpha / J
        at each; `look` of the result says at which look each input has its radius.

        `threat`: convert them to another threat; `mass`, for those to wasserstein: the most that the numbers of a picture add up
        to (1 if pictures were normalised), or the run's data set, from which it is taken picture by picture. `smoothing`: the
        same views with another bound, such as laplace:sigma=0.5,bound=lecuyer. Exact runs have no alpha, bounds or looks; a
        sequential run proves only the claim that it was stopped for.
        """
        changes = {"k": k, "alpha": alpha, "bounds": bounds, "n": n, "label": label}
        asked = {key: value for key, value in changes.items() if value is not None}
        certs = derived(self.record, asked, smoothing, all_looks)
        if threat is None:
            return certs
        return with_mass(certs, threat, self.manifest.data, mass)

    def _names(self, certs: Claims) -> Sequence[str] | None:
        data = self.manifest.data
        if data.names is None:
            return None
        by_number = dict(zip(data.index, data.names, strict=True))
        return [by_number[int(number)] for number in certs.index]

    @property
    def title(self) -> str:
        """One line that describes the run: data, smoothing and votes."""
        settings, data = self.manifest.settings, self.manifest.data
        what = f"{data.spec}, {self.manifest.smoothing}"
        if settings.stop is None:
            return f"{what}, exact"
        votes = "" if settings.n is None else f", {settings.n:,} votes per input"
        return f"{what}{votes}" + ("" if settings.stop == "fixed" else f", {settings.stop}")

    def __repr__(self) -> str:
        done = len(self) - len(self.record.method.pending(self.votes))
        return f"Run({str(self.path)!r}: {self.title}, {done} of {len(self)} inputs done)"
