"""A worker in another process: builds the model, checks that it is the run's, and votes on the items it is given.

Nothing here depends on Ray: a worker is a plain object, which the pool calls.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

from vauban.engine.fingerprint import differences, unpacked, worker_fingerprint
from vauban.errors import VaubanError
from vauban.inputs import Inputs
from vauban.methods import Method
from vauban.seed import Seed
from vauban.votes import Record

_LEAST = 0.05  # seconds for which a worker votes before it may ask for more items


@dataclass(frozen=True)
class WorkerSetup:
    """Everything that a worker needs to vote in a run, except for the inputs.

    `model`: packed (see `fingerprint.packed`); `options`: those of `SmoothedClassifier`; `rows`, `block`: the compute shape;
    `threads`, `sha256`: the manifest's; `samples`: a few inputs to try the model on; `path`: where the sending process looks
    for code; `fingerprint`: what a worker must share with that process.
    """

    model: bytes
    smoothing: str
    options: dict[str, Any]
    rows: int
    block: int | None
    threads: int
    sha256: str
    samples: Inputs
    method: Method
    secret: Seed | None
    path: str
    fingerprint: dict[str, str]


@dataclass(frozen=True)
class Ready:
    """A worker's answer to its setup: its name, why it cannot vote in this run (empty if it can), and `low`: with fewer waiting
    items its compute shapes may be left unfilled."""

    name: str
    complaints: list[str]
    low: int = 1


@dataclass(frozen=True)
class Report:
    """Records, each with its key and whether it is its item's last; votes counted since the last report; how many items still
    wait at the worker; and the error, if there was one."""

    records: list[tuple[int, Record, bool]]
    votes: int
    queued: int
    problem: VaubanError | None = None


@dataclass
class Worker:
    """Votes on the items it is given, in the compute shape of the run."""

    _waiting: deque[Any] = field(default_factory=deque)
    _running: Iterator[tuple[int, Record, bool]] | None = None
    _votes: int = 0

    def prepare(self, setup: WorkerSetup) -> Ready:
        """Join a run: build the model and compare everything that a vote depends on."""
        self._setup = setup
        name = f"{socket.gethostname()} (process {os.getpid()})"
        if setup.path not in sys.path:
            sys.path.insert(0, setup.path)
        torch.set_num_threads(setup.threads)
        try:
            low = self._build(setup)
        except (ImportError, AttributeError) as problem:
            return Ready(name, [f"it cannot build the model: {problem}"])
        except VaubanError as problem:
            return Ready(name, [str(problem)])
        complaints = differences(setup.fingerprint, self._fingerprint)
        return Ready(name, complaints, low)

    def _build(self, setup: WorkerSetup) -> int:
        from vauban.smoothed import SmoothedClassifier

        model, code = unpacked(setup.model)
        if isinstance(model, torch.nn.Module):
            model = model.to(setup.options["device"]).eval()
        smoothed = SmoothedClassifier(model, setup.smoothing, **setup.options)
        self._ready = ExitStack()
        self._ready.enter_context(smoothed.ready(setup.samples))
        self._sampler = smoothed.sampler(setup.samples, setup.method, rows=setup.rows, block=setup.block)
        self._fingerprint = worker_fingerprint(self._sampler, code, setup.sha256, setup.samples.values)
        blocks = getattr(self._sampler, "blocks", 1)
        return blocks * self._sampler.in_flight if blocks > 1 else 2

    def more(self, handed: Sequence[Any], others_wait: bool, turn: float) -> Report:
        """Queue the `handed` items and vote for `turn` seconds, or less if this worker could take items that wait elsewhere."""
        self._waiting.extend(handed)
        began, reached = time.monotonic(), []
        low = getattr(self._sampler, "blocks", 1) if others_wait else 0
        try:
            while self._waiting or self._running is not None:
                self._running = self._running or self._start()
                one = next(self._running, None)
                if one is None:
                    self._running = None
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

    def _start(self) -> Iterator[tuple[int, Record, bool]]:
        setup, sampler = self._setup, self._sampler
        run: Iterator[Any] = sampler.run(self._taken(), setup.method, setup.secret, on_votes=self._count)
        return run

    def _taken(self) -> Iterator[Any]:
        while self._waiting:
            yield self._waiting.popleft()

    def _count(self, votes: int) -> None:
        self._votes += votes

    def _report(self, reached: list[tuple[int, Record, bool]], problem: VaubanError | None = None) -> Report:
        votes, self._votes = self._votes, 0
        return Report(reached, votes, len(self._waiting), problem)
