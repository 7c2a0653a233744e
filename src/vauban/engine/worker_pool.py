"""Voting on many machines: Ray workers get pending items, a few at a time, and their records come back to one writer.

Which worker votes on an item, and how often one dies, changes no record: randomness is addressed, the compute shape is fixed, and
items that a dead worker had not reported are given to another.
"""

from __future__ import annotations

import copy
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import torch

from vauban.engine.cluster import RayCluster, connect, read_cluster
from vauban.engine.enumerator import Enumerator, ViewRange
from vauban.engine.fingerprint import SAMPLES, packed, unpacked, worker_fingerprint
from vauban.engine.network import Model
from vauban.engine.sampler import Sampler
from vauban.engine.scheduler import PendingInput
from vauban.engine.worker import Ready, Report, Worker, WorkerSetup
from vauban.errors import BadInput, RunRefused, VaubanError
from vauban.inputs import Inputs
from vauban.methods import Method
from vauban.seed import Seed
from vauban.votes import Record

Pending = PendingInput | ViewRange

ATTEMPTS = 3
"""How often in a row a worker may die without a record before it is no longer restarted."""

REPORTS = 64
"""The most reports per second that all workers together send, once they have enough items."""

_TURN = 0.5  # seconds for which a worker votes between two reports, at least
_SLOW_START = 30.0  # seconds without a ready worker before a warning
_LATE = 10.0  # seconds that an endless method waits for further workers once one is ready


def worker_setup(
    sampler: Sampler | Enumerator,
    model: Model,
    smoothing: str,
    inputs: Inputs,
    method: Method,
    secret: Seed | None,
    sha256: str,
    dumps: Any,
) -> WorkerSetup:
    """The setup for the workers of a run; this process must have the run's threads. `sha256`: the run's hash of its model."""
    count = max(getattr(sampler, "blocks", 1), SAMPLES)
    samples = Inputs(inputs.values[:count].clone(), inputs.levels)
    content = packed(model, dumps)
    network = sampler.network
    options = {
        "num_classes": sampler.num_classes,
        "device": sampler.device.type,
        "in_flight": sampler.in_flight,
        "channels_last": network.channels_last,
        "precision": network.precision,
        "compile": getattr(sampler, "compiled", False),
        "stochastic": network.stochastic,
        "backend": "torch" if network.runner is None else network.runner.backend.name,
    }
    fingerprint = worker_fingerprint(sampler, unpacked(content)[1], sha256, samples.values)
    block = sampler.block_size if isinstance(sampler, Sampler) else None
    threads = torch.get_num_threads()
    return WorkerSetup(
        content,
        smoothing,
        options,
        sampler.rows,
        block,
        threads,
        sha256,
        samples,
        method,
        secret,
        os.getcwd(),
        fingerprint,
    )


def ray_executor(on: str, model: Model) -> Callable[[Any], Iterator[tuple[int, Record, bool]]]:
    """The function that casts the votes of a job on the workers of a Ray cluster; a cluster that does not answer, and a model
    that cannot be sent, are refused at once."""
    cluster = read_cluster(on)
    assert cluster is not None
    ray = connect(cluster, "certifying on other machines")
    unpacked(packed(model, ray.cloudpickle.dumps))

    def vote(job: Any) -> Iterator[tuple[int, Record, bool]]:
        sampler, inputs = job.sampler, job.batch.inputs
        if not isinstance(inputs.values, torch.Tensor):  # streamed inputs: workers get tensors
            inputs = Inputs(inputs.values.clone(), inputs.levels)
        more = {"most": max(sampler.views, sampler.rows * sampler.in_flight)} if isinstance(sampler, Enumerator) else {}
        pending = list(sampler.pending(job.method, job.votes, inputs.values, job.order, **more))
        with job.reporting() as (on_votes, on_input):
            if not pending:
                return
            smoothing, sha256 = str(job.smoothed.smoothing.spec), job.smoothed.identity()[1]
            sent = worker_setup(
                sampler, model, smoothing, inputs, job.method, job.secret, sha256, ray.cloudpickle.dumps
            )
            with WorkerPool(ray, cluster, sent, len(pending)) as pool:
                for item in pool.run(pending, on_votes=on_votes, seconds=job.seconds):
                    if item[2] and on_input:
                        on_input(1)
                    yield item

    return vote


@dataclass(eq=False)
class _Slot:
    """A place for one worker: its process, the items it holds, and how often it died since its last record.

    `low`, `queued`: see `Ready` and `Report`; `pace`: items finished in its last turn; `own`: items only this slot may get.
    """

    worker: Any = None
    name: str = "a worker"
    ready: bool = False
    low: int = 1
    pace: int = 0
    queued: int = 0
    deaths: int = 0
    held: dict[int, Pending] = field(default_factory=dict)
    own: deque[Pending] = field(default_factory=deque)


class WorkerPool:
    """The workers of one run: one per GPU, or one per as many CPUs as the run has threads; at most `most` and cluster.workers.

    Each votes for a turn before it reports; turns are longer where there are many workers, so that one process can take all
    reports.
    """

    def __init__(self, ray: Any, cluster: RayCluster, sent: WorkerSetup, most: int):
        self._ray, self._endless = ray, sent.method.endless
        self._handout: int | None = None
        self._setup = ray.put(sent)
        on_gpu = sent.options["device"] == "cuda"
        count, self._needs = _room(ray.nodes(), on_gpu, sent.threads)
        self._slots = [_Slot() for _ in range(min(count, most, cluster.workers or count))]
        self._calls: dict[Any, _Slot] = {}
        self._waiting: deque[Pending] = deque()
        self._began, self._warned_slow = time.monotonic(), False

    def __enter__(self) -> Self:
        for slot in self._slots:
            self._start(slot)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for slot in self._slots:
            if slot.worker is not None:
                self._ray.kill(slot.worker)

    @property
    def workers(self) -> int:
        """How many workers there are or will be."""
        return len(self._slots)

    def only(self, workers: int, handout: int | None = None) -> WorkerPool:
        """The same pool with only some of its workers; the others stay idle.

        `handout`: how many items each worker gets at a time; None chooses by the shape and by how many items are left.
        """
        some = copy.copy(self)
        some._slots, some._handout = self._slots[:workers], handout
        return some

    def gather(self, patience: float | None = None) -> None:
        """Wait until every worker is ready; with `patience`, stop those that are not ready so many seconds after the first."""
        first: float | None = None
        while not all(slot.ready for slot in self._slots):
            for _ in self._reports(None):
                pass
            if first is None and any(slot.ready for slot in self._slots):
                first = time.monotonic()
            if first is not None and patience is not None and time.monotonic() - first > patience:
                self._dismiss([slot for slot in self._slots if not slot.ready])

    def _dismiss(self, slots: Sequence[_Slot]) -> None:
        """Stop these workers and continue without them."""
        for slot in slots:
            self._ray.kill(slot.worker)
        self._slots = [slot for slot in self._slots if slot not in slots]
        self._calls = {call: slot for call, slot in self._calls.items() if slot not in slots}

    def run(
        self,
        pending: Sequence[Pending],
        *,
        on_votes: Callable[[int], None] | None = None,
        seconds: float | None = None,
    ) -> Iterator[tuple[int, Record, bool]]:
        """Yield every record that these items lack (each lacks one), as workers report it: as `Sampler.run`.

        With an endless method each worker gets its share of the inputs, all begin together, and voting ends after `seconds`.
        """
        if self._endless:
            self.gather(_LATE)
            for i, slot in enumerate(self._slots):
                slot.own.extend(pending[i :: len(self._slots)])
        else:
            self._waiting.extend(pending)
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._waiting or any(slot.held or slot.own for slot in self._slots):
            busy = set(map(id, self._calls.values()))
            for slot in self._slots:
                if slot.ready and id(slot) not in busy:
                    self._hand(slot)
            for slot, report in self._reports(deadline):
                slot.pace = sum(last for _, _, last in report.records)
                for key, record, last in report.records:
                    slot.deaths = 0
                    held = slot.held.pop(key)
                    if not last:
                        slot.held[key] = held.after(record)  # type: ignore[arg-type]
                    yield key, record, last
                if on_votes:
                    on_votes(report.votes)  # once they are kept: it may be interrupted
                if report.problem is not None:
                    raise report.problem
            if deadline is not None and time.monotonic() >= deadline:
                return

    def _start(self, slot: _Slot) -> None:
        slot.ready, slot.queued = False, 0
        slot.worker = self._ray.remote(Worker).options(max_restarts=0, **self._needs).remote()
        self._calls[slot.worker.prepare.remote(self._setup)] = slot

    def _hand(self, slot: _Slot) -> None:
        """Give items to a waiting worker, if there are any."""
        source = slot.own or self._waiting
        handed = [source.popleft() for _ in range(len(slot.own) or min(self._share(slot), len(source)))]
        slot.held.update({one.key: one for one in handed})
        if slot.held:
            turn = max(_TURN, len(self._slots) / REPORTS)
            self._calls[slot.worker.more.remote(handed, bool(self._waiting), turn)] = slot

    def _share(self, slot: _Slot) -> int:
        """How many items a worker gets: enough for two turns like its last; fewer near the end, so that all finish together."""
        if self._handout is not None:
            return max(0, self._handout - slot.queued)
        enough = max(slot.low, slot.pace)
        if slot.queued >= enough:
            return 0
        return min(2 * enough - slot.queued, max(1, len(self._waiting) // (2 * len(self._slots))))

    def _reports(self, deadline: float | None) -> Iterator[tuple[_Slot, Report]]:
        """Reports that have arrived, waiting at most one second for the first."""
        if not self._calls:
            raise VaubanError("all workers are idle, and votes are still missing")
        left = 1.0 if deadline is None else min(1.0, max(0.0, deadline - time.monotonic()))
        done, _ = self._ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0)
        done = done or self._ray.wait(list(self._calls), num_returns=1, timeout=left)[0]
        self._warn_if_slow()
        for call in done:
            slot = self._calls.pop(call)
            try:
                said = self._ray.get(call)
            except self._ray.exceptions.RayTaskError as problem:
                cause = problem.cause or problem
                raise VaubanError(f"{slot.name} failed: {type(cause).__name__}: {_short(cause)}") from None
            except self._ray.exceptions.RayError as problem:
                self._replace_dead(slot, problem)
                continue
            if isinstance(said, Ready):
                _admit(slot, said)
            else:
                slot.queued = said.queued
                yield slot, said

    def _replace_dead(self, slot: _Slot, problem: Exception) -> None:
        """Take back the items of a dead worker and start a new one, unless it died ATTEMPTS times without a record."""
        slot.deaths += 1
        (slot.own if self._endless else self._waiting).extendleft(reversed(slot.held.values()))
        slot.held = {}
        self._ray.kill(slot.worker)
        if slot.deaths < ATTEMPTS:
            self._start(slot)
            return
        if len(self._slots) == 1 or self._endless:
            raise VaubanError(
                f"workers keep dying: {slot.name} did so {ATTEMPTS} times without a record, the last time because of\n  "
                f"{_short(problem)}\nwhat was counted is kept: check their memory and logs, then run the same command again"
            )
        warnings.warn(
            f"{slot.name} died {ATTEMPTS} times without a record and is not restarted: {_short(problem)}", stacklevel=2
        )
        slot.worker = None
        self._slots.remove(slot)

    def _warn_if_slow(self) -> None:
        self._warned_slow = self._warned_slow or any(slot.ready for slot in self._slots)
        if self._warned_slow:
            return
        if time.monotonic() - self._began > _SLOW_START:
            self._warned_slow = True
            needs = " and ".join(f"{value} {name[4:-1].upper()}" for name, value in self._needs.items() if value)
            warnings.warn(
                f"no worker is ready after {_SLOW_START:g} s; each needs {needs}: is the cluster busy? still waiting",
                stacklevel=2,
            )


def _admit(slot: _Slot, said: Ready) -> None:
    slot.name = f"the worker on {said.name}"
    if said.complaints:
        complaints = "\n  ".join(said.complaints)
        raise RunRefused(
            f"{slot.name} differs from this process, and its votes could differ from this run's:\n  {complaints}\n"
            "put the same model, code and packages on all machines, with the same kind of processor; then run the same command "
            "again"
        )
    slot.ready, slot.low = True, said.low


def _room(nodes: Sequence[dict[str, Any]], on_gpu: bool, threads: int) -> tuple[int, dict[str, int]]:
    """How many workers the cluster has room for, and what each needs."""
    kind = "GPU" if on_gpu else "CPU"
    there = [int(node["Resources"].get(kind, 0)) for node in nodes if node["Alive"]]
    each = 1 if on_gpu else max(1, min(threads, max(there, default=0)))
    count = sum(some // each for some in there)
    if count == 0:
        raise BadInput(
            f"the Ray cluster has no {kind} for a worker: add machines that have one, or give another --device"
        )
    return count, {"num_cpus": 0, "num_gpus": 1} if on_gpu else {"num_cpus": each, "num_gpus": 0}


def _short(problem: Exception) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return " ".join(lines)[:400] or type(problem).__name__
