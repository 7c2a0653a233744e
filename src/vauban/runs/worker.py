"""A worker on another machine: holds the model, proves that it is the run's, and votes on inputs that it is handed.

Nothing here knows of Ray: a worker is an object, and who calls it, and from where, is the crew's business.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from vauban.errors import VaubanError
from vauban.inputs import Inputs
from vauban.runs.likeness import differences, likeness, unpacked
from vauban.runs.poll import Job, Wanted, tallies
from vauban.runs.tallies import Tally
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.voting.voter import Voter

_LEAST = 0.05


@dataclass(frozen=True)
class Errand:
    """All that a worker needs to vote in a run, but for the inputs.

    `model`: packed (see `likeness.packed`); `options`: those of `SmoothedClassifier`; `threads`, `sha256`: the manifest's;
    `samples`: a few inputs to try the model on; `path`: where the process that sends it looks for code; `like`: what a worker
    must have in common with that process.
    """

    model: bytes
    smoothing: str
    options: dict[str, Any]
    threads: int
    sha256: str
    samples: Inputs
    job: Job
    secret: Seed
    path: str
    like: dict[str, str]


@dataclass(frozen=True)
class Ready:
    """A worker's answer to its errand: which one it is, why it cannot vote in this run (no lines: it can), and under how many
    waiting inputs its shapes may go unfilled."""

    name: str
    complaints: list[str]
    low: int = 1


@dataclass(frozen=True)
class Report:
    """Tallies with whether each is its input's last, votes counted since the last report, inputs that still wait at the
    worker, and what went wrong, if anything did."""

    tallies: list[tuple[Tally, bool]]
    told: int
    queued: int
    problem: VaubanError | None = None


@dataclass
class Worker:
    """Votes on what it is handed, in the shape of the run."""

    _waiting: deque[Wanted] = field(default_factory=deque)
    _going: Iterator[tuple[Tally, bool]] | None = None
    _told: int = 0

    def prepare(self, errand: Errand) -> Ready:
        """Build the smoothed classifier, and compare it with the one that the run has."""
        name = f"{socket.gethostname()} (process {os.getpid()})"
        try:
            low = self._build(errand)
            complaints = differences(errand.like, self._like)
        except (ImportError, AttributeError) as problem:
            return Ready(name, [f"it cannot build the model: {problem}"])
        except VaubanError as problem:
            return Ready(name, [str(problem)])
        return Ready(name, complaints, low)

    def _build(self, errand: Errand) -> int:
        self._errand = errand
        torch.set_num_threads(errand.threads)
        if errand.path not in sys.path:
            sys.path.insert(0, errand.path)
        model, code = unpacked(errand.model)
        if isinstance(model, torch.nn.Module):
            model = model.to(errand.options["device"])
        smoothed = SmoothedClassifier(model, errand.smoothing, **errand.options)
        self._voter: Voter = smoothed.voter(errand.samples, share=errand.job.shares)
        self._like = likeness(smoothed, self._voter, code, errand.sha256, errand.samples)
        return self._voter.places * self._voter.in_flight if self._voter.places > 1 else 2

    def more(self, handed: Sequence[Wanted], others_wait: bool, turn: float) -> Report:
        """Take in what is handed and vote for a `turn` of so many seconds, less if there is room for others that wait."""
        self._waiting.extend(handed)
        began, reached = time.monotonic(), []
        low = self._voter.places if others_wait else 0
        try:
            while self._waiting or self._going is not None:
                self._going = self._going or self._tallies()
                one = next(self._going, None)
                if one is None:
                    self._going = None
                    continue
                reached.append(one)
                spent = time.monotonic() - began
                if spent >= turn or (spent >= _LEAST and len(self._waiting) < low):
                    break
        except VaubanError as problem:
            return self._report(reached, problem)
        except Exception as problem:
            return self._report(
                reached, VaubanError(f"the model failed in a worker: {type(problem).__name__}: {problem}")
            )
        return self._report(reached)

    def _tallies(self) -> Iterator[tuple[Tally, bool]]:
        errand = self._errand
        return tallies(self._voter, errand.samples.levels, errand.secret, errand.job, self._taken(), tick=self._tell)

    def _taken(self) -> Iterator[Wanted]:
        while self._waiting:
            yield self._waiting.popleft()

    def _tell(self, votes: int) -> None:
        self._told += votes

    def _report(self, reached: list[tuple[Tally, bool]], problem: VaubanError | None = None) -> Report:
        told, self._told = self._told, 0
        return Report(reached, told, len(self._waiting), problem)
