"""Batches in the background: one thread takes the oldest batch that nobody works on, and certifies it into its run folder.

A batch is locked while somebody works on it. When a process dies its lock goes with it, and this or another process that shares
the folder resumes the batch from the votes in its run folder.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from vauban.engine.scheduler import VotingJob
from vauban.errors import Lie, RunRefused, VaubanError
from vauban.files import locked
from vauban.runs import manifest as manifests
from vauban.service.folder import Entry, ServiceFolder, told
from vauban.service.lanes import Item
from vauban.service.served import Served
from vauban.service.turns import Guest
from vauban.service.voting import SharedVoting, Stopping
from vauban.votes import BallotVotes

LOG = logging.getLogger("vauban.service")

_LOOK_SECONDS = 2.0  # between two looks for batches that another process left
_ATTEMPTS, _PAUSE = 5, 2.0  # of a batch that fails, and the seconds before the second; the pause doubles
_WRITE_SECONDS = 1.0  # between two notes of progress


class Cancelled(Exception):
    """The batch was cancelled."""


class Batches:
    """The thread that works on batches. `on`: where their votes are cast, None is in the voting thread, beside requests."""

    def __init__(self, served: Served, voting: SharedVoting, folder: ServiceFolder, on: str | None = None):
        self._served, self._voting, self._folder, self._on = served, voting, folder, on
        self._wake, self._closing = threading.Event(), threading.Event()
        self._failures: dict[str, tuple[int, float]] = {}  # how often a batch failed, when it may be tried again
        self._others: set[str] = set()  # batches for other services, of which the log has a line
        self._thread = threading.Thread(target=self._loop, name="batches", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread runs, as long as nobody closed it."""
        return self._closing.is_set() or self._thread.is_alive()

    def start(self) -> None:
        """Begin with batches that were left."""
        self._thread.start()

    def close(self) -> None:
        """Stop; a batch that is not finished is resumed by the next start."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def wake(self) -> None:
        """Say that there is a new batch."""
        self._wake.set()

    def _loop(self) -> None:
        while not self._closing.is_set():
            self._wake.clear()
            if not self._took_one():
                self._wake.wait(_LOOK_SECONDS)

    def _took_one(self) -> bool:
        """Work on the first batch that can be worked on; whether there was one. Nothing that goes wrong ends the thread."""
        try:
            return any(self._try(entry) for entry in self._folder.entries() if not self._closing.is_set())
        except Exception:  # the folder cannot be read now
            LOG.exception("batches wait")
            return False

    def _try(self, entry: Entry) -> bool:
        """Work on a batch, unless it is closed, another process works on it, or it failed a moment ago; whether this one did."""
        try:
            if time.monotonic() < self._failures.get(entry.id, (0, 0.0))[1] or not entry.open:
                return False
            with locked(entry.path, create=False):
                if not entry.open or not self._fits(entry):
                    return False
                self._work(entry)
                return True
        except RunRefused:
            return False
        except Exception as problem:  # its files cannot be read or written now, or somebody is removing it
            LOG.warning("batch %s waits: %s", entry.id, problem, exc_info=not isinstance(problem, VaubanError))
            self._failures[entry.id] = (0, time.monotonic() + 15 * _PAUSE)
            return False

    def _fits(self, entry: Entry) -> bool:
        """Whether a batch of another process can be certified here: it was accepted for one classifier, and with other threads a
        network may round otherwise."""
        asked = entry.request.get("classifier", {})  # missing in folders of earlier versions
        own = self._served.classifier if asked else {}
        if asked != own:
            return self._is_for_another(entry, f"of {asked}, not {own}")
        begun = manifests.has_manifest(entry.run)
        threads = manifests.read(entry.run).compute.threads if begun else self._voting.threads
        if threads != self._voting.threads:
            return self._is_for_another(entry, f"whose workers have {threads} threads (OMP_NUM_THREADS, --workers)")
        return True

    def _is_for_another(self, entry: Entry, which: str) -> bool:
        """False; the log says once which service a batch waits for."""
        if entry.id not in self._others:
            LOG.warning("batch %s waits for a service %s", entry.id, which)
            self._others.add(entry.id)
        return False

    def _work(self, entry: Entry) -> None:
        try:
            self._certify(entry)
        except (Cancelled, Stopping):
            return
        except Exception as problem:
            own = isinstance(problem, VaubanError)
            detail = told(problem) if own else f"the service failed on this batch: {type(problem).__name__}"
            times = self._failures.get(entry.id, (0, 0.0))[0] + 1
            LOG.warning("batch %s, attempt %d of %d: %s", entry.id, times, _ATTEMPTS, detail, exc_info=not own)
            if times < _ATTEMPTS and not isinstance(problem, Lie | RunRefused):
                # a disk, a cluster or the input of another caller may be the cause; votes are kept
                self._failures[entry.id] = (times, time.monotonic() + _PAUSE * 2 ** (times - 1))
            else:
                entry.fail(detail)

    def _certify(self, entry: Entry) -> None:
        inputs, labels = entry.inputs()
        with self._voting.guest() as guest:
            self._served.smoothed.certify(
                inputs,
                labels,
                **entry.request["settings"],
                out=entry.run,
                progress=False,
                on=self._executor(entry, guest),
            )

    def _executor(self, entry: Entry, guest: Guest) -> Callable[[VotingJob], Iterator[Item]]:
        def vote(job: VotingJob) -> Iterator[Item]:
            progress = _Progress(entry, job)

            def stopped() -> None:
                progress.write()
                if self._closing.is_set():
                    raise Stopping("the service is stopping")
                if (entry.path / "cancelled").exists():
                    raise Cancelled

            votes = self._cluster(guest) if self._on is not None else self._voting.executor(guest, stopped)
            for item in votes(job):
                stopped()
                progress.ended += int(item[2])
                yield item
            progress.write(now=True)

        return vote

    def _cluster(self, guest: Guest) -> Callable[[VotingJob], Iterator[Item]]:
        """Casts votes on a Ray cluster, which leaves the model here free for requests."""

        def vote(job: VotingJob) -> Iterator[Item]:
            from vauban.engine.worker_pool import ray_executor

            assert self._on is not None
            with guest.lent():
                yield from ray_executor(self._on, self._served.smoothed.base.module)(job)

        return vote


class _Progress:
    """How far a batch is, written about once a second."""

    def __init__(self, entry: Entry, job: VotingJob):
        self._entry, self._job, self._written = entry, job, 0.0
        self.ended = len(job.batch) - len(job.method.pending(job.votes))

    def write(self, now: bool = False) -> None:
        """Write it, if the last time is long enough ago."""
        if not now and time.monotonic() - self._written < _WRITE_SECONDS:
            return
        votes: Any = self._job.votes
        decided = len(votes.complete) if isinstance(votes, BallotVotes) else self.ended
        self._entry.write_progress(decided=decided, votes=votes.votes_cast)
        self._written = time.monotonic()
