"""What the routes share: the classifier, the voting thread, batches, limits and counters of one service."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vauban import __version__
from vauban.errors import VaubanError
from vauban.inputs import Batch
from vauban.methods import CertifySettings, method_for
from vauban.report.wording import unit_of
from vauban.runs.manifest import threat_entries
from vauban.service.batches import Batches
from vauban.service.folder import RUNNING, WAITING, Full, ServiceFolder, progress_bytes, told
from vauban.service.growing import Event
from vauban.service.metrics import Metrics
from vauban.service.served import Served
from vauban.service.settings import Limits
from vauban.service.voting import SharedVoting

LOG = logging.getLogger("vauban.service")


class Busy(VaubanError):
    """As many requests are in progress as the service takes; `seconds`: when to ask again."""

    def __init__(self, most: int, seconds: int):
        super().__init__(f"{most} requests are in progress, and no more are taken: ask again in {seconds} s")
        self.seconds = seconds


class Unwell(VaubanError):
    """The model failed its checks."""


class Desk:
    """One service: takes requests in, keeps their records, and says how it is.

    `on`: where batches vote; None is here, beside requests. `classes`: their names, numbers if there are none. `workers`: how
    many compute shapes are cast at a time.
    """

    def __init__(
        self,
        served: Served,
        folder: Path,
        limits: Limits | None = None,
        *,
        on: str | None = None,
        classes: tuple[str, ...] | None = None,
        workers: int = 1,
    ):
        self.served, self.limits, self.metrics = served, limits or Limits(), Metrics()
        self.voting = SharedVoting(self.metrics.votes.inc, workers)
        self.folder = ServiceFolder(folder, self.limits.kept)
        self.batches = Batches(served, self.voting, self.folder, on)
        self._problem: str | None = None
        self._started, self._taking = False, threading.Lock()
        self._classes = classes or tuple(map(str, range(served.smoothed.num_classes)))
        self.in_progress = 0
        self._request_seconds = 1.0

    @property
    def problem(self) -> str | None:
        """Why requests are not answered; None if all is well."""
        if self._problem is None and self._started and not (self.voting.alive and self.batches.alive):
            return "a thread of the service has ended: its log says why; start it again, and batches are resumed"
        return self._problem

    def start(self) -> None:
        """Check the model, begin to vote, and resume batches; once, whoever calls it."""
        if self._started:
            return
        try:
            self.served.check()
            self.voting.start(self.served.smoothed.network)
            self._check_workers()
            self.batches.start()
        except BaseException:
            self.close()
            raise
        self._started = True

    def close(self) -> None:
        """Stop; batches are resumed by the next start."""
        self._started = False
        self.batches.close()
        self.voting.close()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Context of one request in progress; Busy if there are too many."""
        if self.problem is not None:
            raise Unwell(self.problem)
        if self.in_progress >= self.limits.queue:
            raise Busy(self.limits.queue, max(1, math.ceil(self._request_seconds)))
        self.in_progress += 1
        self.metrics.in_progress.set(self.in_progress)
        began = time.monotonic()
        try:
            yield
        finally:
            self.in_progress -= 1
            self.metrics.in_progress.set(self.in_progress)
            self._request_seconds += 0.1 * (time.monotonic() - began - self._request_seconds)

    async def ready(self, batch: Batch) -> None:
        """Make the manifest of an example like this input if there is none yet, and check the model again if it is time."""
        if not self.served.has_template(batch.inputs.levels):
            await asyncio.wrap_future(self.voting.call(lambda: self.served.template(batch.inputs.levels)))
        if self.served.due:
            try:
                await asyncio.wrap_future(self.voting.call(self._check))
            except VaubanError as problem:
                self._problem = f"the model failed its checks: {problem}"
                LOG.error(self._problem)
                raise Unwell(self._problem) from None

    def _check(self) -> None:
        if self.served.due:
            self.served.check()
            self._check_workers()

    def _check_workers(self) -> None:
        """Check that the workers' copies of the model, all at once, score views as the model does."""
        if self.voting.casters is not None:
            self.voting.casters.check(*self.served.example())

    async def noted(self, events: AsyncIterator[Event], keep: bool) -> AsyncIterator[Event]:
        """The events of a request, with its record kept if asked for, and with the time to its first radius counted."""
        began, first, settings = time.monotonic(), True, {}
        async for name, content in events:
            if name == "accepted":
                settings = content["settings"]
            if first and name == "radius" and content["radius"] is not None:
                self.metrics.first_radius.observe(time.monotonic() - began)
                first = False
            if name == "done" and keep:
                entry = await asyncio.to_thread(self._keep, settings, content)
                content = {**content, **entry}
            yield name, content

    def _keep(self, settings: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
        try:
            progress = {"progress.json": progress_bytes(decided=1, votes=content["votes"])}
            return {"id": self.folder.create("certify", settings, 1, progress, content["files"]).id}
        except VaubanError as problem:
            return {"id": None, "detail": told(problem)}

    def batch_settings(
        self, inputs: Any, labels: Any, n: int, alpha: float, radius: float | None, k: int = 1
    ) -> dict[str, Any]:
        """The settings of a batch for `certify`, checked before it is taken."""
        smoothed = self.served.smoothed
        batch, law = smoothed.collect(inputs, labels), smoothed.smoothing.law
        label = "votes" if labels is None else "given"
        if self.served.exact:
            return {"label": label, "k": k}
        stop = "fixed" if radius is None else f"target:radius={radius!r}"
        asked: dict[str, Any] = {"n": n, "alpha": alpha, "stop": stop, "label": label, "k": k}
        settings = CertifySettings.of(law, smoothed.num_classes, **asked)
        _ = method_for(settings, law, smoothed.num_classes, batch.shape, smoothed.deviation(batch.inputs))
        return asked

    def add_batch(self, settings: Mapping[str, Any], inputs: int, arrays: Mapping[str, bytes]) -> dict[str, Any]:
        """Take a batch in."""
        if self.problem is not None:
            raise Unwell(self.problem)
        with self._taking:
            if self.open_batches() >= self.limits.batches:
                raise Full(
                    f"{self.limits.batches} batches are waiting or running, and no more are taken: ask again later"
                )
            entry = self.folder.create("batch", settings, inputs, arrays, classifier=self.served.classifier)
        self.batches.wake()
        return entry.describe()

    def report(self, id: str) -> str:
        """The report page of a run."""
        from vauban.data.dataset import Dataset

        entry = self.folder.entry(id)
        run, data = entry.opened(), None
        if entry.request["kind"] == "batch":
            images, labels = entry.inputs()
            data = Dataset(images, labels, len(self._classes), self._classes, run.manifest.data.spec)
        with TemporaryDirectory() as folder:
            return Path(run.report(Path(folder) / "report.html", data=data)).read_text()

    def open_batches(self) -> int:
        """How many batches are waiting or running."""
        return sum(one["kind"] == "batch" and one["state"] in (RUNNING, WAITING) for one in self.folder.described())

    def about(self) -> dict[str, Any]:
        """What the service answers with."""
        smoothed = self.served.smoothed
        law, limits = smoothed.smoothing.law, self.limits
        return {
            "model": smoothed.base.spec or type(smoothed.base.module).__name__,
            "smoothing": str(smoothed.smoothing.spec),
            "threat": threat_entries(replace(law.threat, unit=unit_of(law.threat, smoothed.input_range))),
            "exact": law.exact,
            "shape": list(self.served.shape),
            "classes": list(self._classes),
            "input_range": None if smoothed.input_range is None else list(smoothed.input_range),
            "limits": {
                "seconds": limits.seconds,
                "votes": limits.votes,
                "upload": limits.upload,
                "pixels": limits.pixels,
            },
            "version": __version__,
        }
