"""What every opened run folder offers, whatever the kind of run: verification, tables and pictures; no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vauban.certificates import Claims
from vauban.runs.store import SealedRecord
from vauban.runs.verify import Verdict, verify_run


class OpenedRun(ABC):
    """A run as it is in its folder; `vauban.runs.run.Run` and `vauban.poisoning.votes.poisoning_run.PoisoningRun` are such."""

    path: Path
    record: SealedRecord

    @property
    @abstractmethod
    def manifest(self) -> Any:
        """Everything the claims depend on."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What the run is about, in a line."""

    @abstractmethod
    def certificates(self, *args: Any, **asked: Any) -> Claims:
        """Certificates as the manifest says, or as `asked` as far as the votes allow."""

    def verify(self, *, announced: str | None = None, nonce: str | None = None, data: Any = None) -> Verdict:
        """Recompute every claim from the votes in the folder; raises at the first lie.

        `announced`, `nonce`: what was published of an announced run; `data`: the run's whole data set, to compare its inputs.
        """
        return verify_run(self.path, announced=announced, nonce=nonce, data=data)

    def to_pandas(self, **asked: Any) -> Any:
        """A pandas table of `certificates(**asked)`, with file names where there are any."""
        certs = self.certificates(**asked)
        return certs.to_pandas(self._names(certs))

    def plot(self, path: str | Path | None = None, k: Sequence[int] = (), **options: Any) -> Any:
        """The curve of certified accuracy, also for other k, as a Matplotlib figure; written to `path` if given."""
        from vauban.report.curve import figure

        curves = [self.certificates(), *(self.certificates(k=one) for one in k)]
        return figure(curves, path, **{"title": self.title, **options})

    def report(self, path: str | Path = "report.html", **options: Any) -> Path:
        """Write the report page of this run, one HTML file (`vauban.page.report.write_report` says which options there are)."""
        from vauban.page.report import write_report

        return write_report([self], path, **options)

    def _names(self, certs: Claims) -> Sequence[str] | None:
        """The file name of each input that is certified, where there are any."""
        return None

    def __len__(self) -> int:
        return len(self.manifest.data.index)

    def _repr_html_(self) -> str:
        return self.certificates()._repr_html_()
