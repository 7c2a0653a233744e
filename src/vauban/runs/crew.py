"""Voting on many machines: Ray's workers are handed inputs, a few at a time, and their tallies come back to one writer.

Which worker votes on an input, and how often one dies, changes no tally: randomness is addressed, the shape is fixed, and what
a dead worker had not reported is asked of another.
"""

from __future__ import annotations

import copy
import os
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from vauban.asking import Tick
from vauban.cluster import Place
from vauban.errors import BadInput, RunRefused, VaubanError
from vauban.inputs import Inputs
from vauban.runs.likeness import SAMPLES, likeness, packed, unpacked
from vauban.runs.manifest import Manifest
from vauban.runs.poll import Done, Job, Wanted
from vauban.runs.tallies import Tally
from vauban.runs.worker import Errand, Ready, Report, Worker
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier

ATTEMPTS = 3
"""How often in a row a worker may die without a tally before it is given up."""

REPORTS = 64
"""How many reports a second are asked for in all, at most, once workers have enough inputs at hand."""

_TURN = 0.5
_SLOW_START = 30.0
_LATE = 10.0


def errand(
    smoothed: SmoothedClassifier, inputs: Inputs, manifest: Manifest, secret: Seed, job: Job, dumps: Any
) -> Errand:
    """What the workers of a run are sent; the smoothed classifier has the run's shape, this process the run's threads."""
    voter = smoothed.voter(inputs, share=job.shares)
    samples = Inputs(inputs.values[: max(voter.places, SAMPLES)].clone(), inputs.levels)
    model = packed(smoothed.model, dumps)
    sha256 = manifest["model"]["sha256"]
    options = {
        "num_classes": smoothed.num_classes,
        "device": smoothed.device.type,
        "rows": voter.rows,
        "in_flight": smoothed.in_flight,
        "channels_last": smoothed.channels_last,
        "block": voter.block_size,
        "precision": smoothed.precision,
        "compile": voter.compiled,
    }
    like = likeness(smoothed, voter, unpacked(model)[1], sha256, samples)
    threads = manifest["compute"]["threads"]
    smoothing = str(smoothed.smoothing.spec)
    return Errand(model, smoothing, options, threads, sha256, samples, job, secret, os.getcwd(), like)


@dataclass(eq=False)
class _Slot:
    """A place for a worker: who has it, which inputs are with it, and how often it died since it last said something."""

    worker: Any = None
    name: str = "a worker"
    ready: bool = False
    low: int = 1
    pace: int = 0
    queued: int = 0
    deaths: int = 0
    held: dict[int, Wanted] = field(default_factory=dict)
    own: deque[Wanted] = field(default_factory=deque)


class Crew:
    """The workers of one run: one a GPU, or one for as many CPUs as the run has threads; `most`, and those asked for, at most.

    Each votes for a turn before it reports, longer where there are many, so that one process can hear them all.
    """

    def __init__(self, ray: Any, place: Place, sent: Errand, most: int):
        self._ray, self._job = ray, sent.job
        self._handout: int | None = None
        self._errand = ray.put(sent)
        on_gpu = sent.options["device"] == "cuda"
        count, self._needs = _room(ray.nodes(), on_gpu, sent.threads)
        self._slots = [_Slot() for _ in range(min(count, most, place.workers or count))]
        self._calls: dict[Any, _Slot] = {}
        self._waiting: deque[Wanted] = deque()
        self._began, self._told_slow = time.monotonic(), False

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

    def only(self, workers: int, handout: int | None = None) -> Crew:
        """The same crew with fewer of its workers, while nothing is asked of the others.

        `handout`: how many inputs each is handed at a time; None follows from the shape and from how many are left.
        """
        some = copy.copy(self)
        some._slots, some._handout = self._slots[:workers], handout
        return some

    def gather(self, patience: float | None = None) -> None:
        """Wait until every worker is ready; with `patience`, so long for others once one is, and do without them."""
        first: float | None = None
        while not all(slot.ready for slot in self._slots):
            for _ in self._hear(None):
                pass
            if first is None and any(slot.ready for slot in self._slots):
                first = time.monotonic()
            if first is not None and patience is not None and time.monotonic() - first > patience:
                self._dismiss([slot for slot in self._slots if not slot.ready])

    def _dismiss(self, slots: Sequence[_Slot]) -> None:
        """Do without these workers."""
        for slot in slots:
            self._ray.kill(slot.worker)
        self._slots = [slot for slot in self._slots if slot not in slots]
        self._calls = {call: slot for call, slot in self._calls.items() if slot not in slots}

    def poll(
        self, wanted: Sequence[Wanted], *, tick: Tick | None = None, seconds: float | None = None
    ) -> Iterator[tuple[Tally, bool]]:
        """Every tally that these inputs lack (each lacks one), as workers report it, and whether it is its input's last one.

        Where inputs never have enough, each worker gets its part of them, all begin together, and it ends after `seconds`.
        """
        if self._job.endless:
            self.gather(_LATE)
            for i, slot in enumerate(self._slots):
                slot.own.extend(wanted[i :: len(self._slots)])
        else:
            self._waiting.extend(wanted)
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._waiting or any(slot.held or slot.own for slot in self._slots):
            busy = set(map(id, self._calls.values()))
            for slot in self._slots:
                if slot.ready and id(slot) not in busy:
                    self._hand(slot)
            for slot, report in self._hear(deadline):
                if tick:
                    tick(report.told)
                slot.pace = sum(last for _, last in report.tallies)
                for tally, last in report.tallies:
                    slot.deaths = 0
                    _note(slot.held, tally, last)
                    yield tally, last
                if report.problem is not None:
                    raise report.problem
            if deadline is not None and time.monotonic() >= deadline:
                return

    def _start(self, slot: _Slot) -> None:
        slot.ready, slot.queued = False, 0
        slot.worker = self._ray.remote(Worker).options(max_restarts=0, **self._needs).remote()
        self._calls[slot.worker.prepare.remote(self._errand)] = slot

    def _hand(self, slot: _Slot) -> None:
        """Ask a worker that waits for more, with inputs to go on with, if there is anything that it could do."""
        source = slot.own or self._waiting
        handed = [source.popleft() for _ in range(len(slot.own) or min(self._share(slot), len(source)))]
        slot.held.update({one.number: one for one in handed})
        if slot.held:
            turn = max(_TURN, len(self._slots) / REPORTS)
            self._calls[slot.worker.more.remote(handed, bool(self._waiting), turn)] = slot

    def _share(self, slot: _Slot) -> int:
        """How many inputs a worker gets: enough for two turns like its last; fewer as fewer are left, so that all end at once."""
        if self._handout is not None:
            return max(0, self._handout - slot.queued)
        enough = max(slot.low, slot.pace)
        if slot.queued >= enough:
            return 0
        return min(2 * enough - slot.queued, max(1, len(self._waiting) // (2 * len(self._slots))))

    def _hear(self, deadline: float | None) -> Iterator[tuple[_Slot, Report]]:
        """Reports that are in by now, waited for a second at most."""
        if not self._calls:
            raise VaubanError("all workers are idle, and inputs still lack votes")
        left = 1.0 if deadline is None else min(1.0, max(0.0, deadline - time.monotonic()))
        done, _ = self._ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0)
        done = done or self._ray.wait(list(self._calls), num_returns=1, timeout=left)[0]
        self._say_slow()
        for call in done:
            slot = self._calls.pop(call)
            try:
                said = self._ray.get(call)
            except self._ray.exceptions.RayTaskError as problem:
                cause = problem.cause or problem
                raise VaubanError(f"{slot.name} failed: {type(cause).__name__}: {_short(cause)}") from None
            except self._ray.exceptions.RayError as problem:
                self._bury(slot, problem)
                continue
            if isinstance(said, Ready):
                _admit(slot, said)
            else:
                slot.queued = said.queued
                yield slot, said

    def _bury(self, slot: _Slot, problem: Exception) -> None:
        """Take back what a dead worker held, and put a fresh one in its place, but not for ever."""
        slot.deaths += 1
        (slot.own if self._job.endless else self._waiting).extendleft(reversed(slot.held.values()))
        slot.held = {}
        self._ray.kill(slot.worker)
        if slot.deaths < ATTEMPTS:
            self._start(slot)
            return
        if len(self._slots) == 1 or self._job.endless:
            raise VaubanError(
                f"workers keep dying: {slot.name} did so {ATTEMPTS} times without a tally, the last time because of\n  "
                f"{_short(problem)}\nwhat was tallied is kept: see to their memory and logs, then run the same command again"
            )
        warnings.warn(
            f"{slot.name} died {ATTEMPTS} times without a tally and is given up: {_short(problem)}", stacklevel=2
        )
        slot.worker = None
        self._slots.remove(slot)

    def _say_slow(self) -> None:
        self._told_slow = self._told_slow or any(slot.ready for slot in self._slots)
        if self._told_slow:
            return
        if time.monotonic() - self._began > _SLOW_START:
            self._told_slow = True
            needs = " and ".join(f"{value} {name[4:-1].upper()}" for name, value in self._needs.items() if value)
            warnings.warn(
                f"no worker is ready after {_SLOW_START:g} s; each needs {needs}: is the cluster busy? waiting on",
                stacklevel=2,
            )


def _admit(slot: _Slot, said: Ready) -> None:
    slot.name = f"the worker on {said.name}"
    if said.complaints:
        lines = "\n  ".join(said.complaints)
        raise RunRefused(
            f"{slot.name} is not like this process, and its votes would not be this run's:\n  {lines}\n"
            "put the same model, code and packages on all machines, of one kind of processor; then run the same command again"
        )
    slot.ready, slot.low = True, said.low


def _note(held: dict[int, Wanted], tally: Tally, last: bool) -> None:
    """Keep what an input has by now, in case its worker dies; one that has enough is held no longer."""
    one = held.pop(tally.input)
    if last:
        return
    chosen, looks = one.done.chosen, list(one.done.looks)
    done = Done(tally.counts, looks) if tally.stage == "choose" else Done(chosen, [*looks, tally.counts])
    held[tally.input] = replace(one, done=done)


def _room(nodes: Sequence[dict[str, Any]], on_gpu: bool, threads: int) -> tuple[int, dict[str, int]]:
    """How many workers the cluster has room for, and what each needs."""
    kind = "GPU" if on_gpu else "CPU"
    there = [int(node["Resources"].get(kind, 0)) for node in nodes if node["Alive"]]
    each = 1 if on_gpu else max(1, min(threads, max(there, default=0)))
    count = sum(some // each for some in there)
    if count == 0:
        raise BadInput(f"the Ray cluster has no {kind} for a worker: add machines that have, or give another --device")
    return count, {"num_cpus": 0, "num_gpus": 1} if on_gpu else {"num_cpus": each, "num_gpus": 0}


def _short(problem: Exception) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return " ".join(lines)[:400] or type(problem).__name__
