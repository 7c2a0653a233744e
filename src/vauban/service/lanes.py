"""Jobs that can share compute: those of sampled votes in shared shapes, those of exact ones in turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from vauban.engine.casters import Casters
from vauban.engine.sampler import Sampler
from vauban.engine.scheduler import VotingJob
from vauban.engine.shared import PooledScheduler, SharedScheduler, SharedWork
from vauban.errors import VaubanError
from vauban.votes import CountRequests, Record

Item = tuple[int, Record, bool]
"""An item's key, a record, and whether it is the item's last, as an executor yields them."""


class Ticket:
    """One caller's job. `tell` is called, in a thread that votes, with every item, then with None or with what went wrong.

    `urgent`: first votes are served ahead of others; a job that is not urgent gets, with all its inputs, about the share of one
    urgent input. `most`: votes after which an input gets no more looks.
    """

    def __init__(
        self,
        job: VotingJob,
        tell: Callable[[Item | Exception | None], None],
        *,
        urgent: bool = True,
        most: int | None = None,
    ):
        self.job, self.tell, self.urgent, self.most = job, tell, urgent, most
        self.cancelled = False  # true also once it is done: nothing is left to cancel

    def requests(self, label: int | None, kept: Any) -> CountRequests:
        """The count requests of one input of the job."""
        method: Any = self.job.method
        found: CountRequests = method.requests(label, kept)
        return found if self.most is None else _up_to(found, self.most, method.rule.sure_votes(self.most))


def _up_to(requests: CountRequests, most: int, sure: int) -> CountRequests:
    """The requests up to the last look within `most` votes, of which `sure` are needed regardless of the outcome; the stage that
    chooses a label is not limited."""
    counts = None
    while True:
        try:
            request = next(requests) if counts is None else requests.send(counts)
        except StopIteration:
            return
        if request.stage == "count":
            if request.look > most:
                return
            request = replace(request, sure=sure)
        counts = yield request


class Lane(ABC):
    """Jobs that can share compute; used by one thread at a time."""

    @abstractmethod
    def submit(self, ticket: Ticket) -> None:
        """Take a job in."""

    @abstractmethod
    def forget(self, ticket: Ticket) -> None:
        """Let a job go."""

    @abstractmethod
    def step(self) -> int:
        """Cast a few shapes; the number of votes that were counted."""

    @property
    @abstractmethod
    def tickets(self) -> list[Ticket]:
        """The jobs that are not done."""

    @property
    def waiting(self) -> bool:
        """Whether a step has nothing to do for now."""
        return not self.tickets


class SampledLane(Lane):
    """Jobs of sampled votes with one compute shape, through one scheduler."""

    def __init__(self, sampler: Sampler, casters: Casters | None = None):
        self._counted = 0
        self._scheduler = (
            SharedScheduler(sampler, self._count) if casters is None else PooledScheduler(sampler, casters, self._count)
        )
        self._blocks = sampler.blocks
        self._left: dict[Ticket, deque[Any]] = {}
        self._works: dict[Ticket, set[SharedWork]] = {}

    @property
    def tickets(self) -> list[Ticket]:
        return list(self._left)

    @property
    def waiting(self) -> bool:
        return not self._left or self._scheduler.waiting

    def submit(self, ticket: Ticket) -> None:
        job = ticket.job
        pending = job.sampler.pending(job.method, job.votes, job.batch.inputs.values, job.order)
        self._left[ticket], self._works[ticket] = deque(pending), set()
        self._admit(ticket)

    def forget(self, ticket: Ticket) -> None:
        for work in self._works.pop(ticket, ()):
            self._scheduler.drop(work)
        self._left.pop(ticket, None)

    def step(self) -> int:
        before = self._counted
        for work, tally, last in self._scheduler.step():
            ticket = work.caller
            if ticket not in self._left:
                continue
            if isinstance(tally, VaubanError):  # of this input alone: others go on
                self.forget(ticket)
                ticket.cancelled = True
                ticket.tell(tally)
                continue
            if last:
                self._works[ticket].discard(work)
            ticket.tell((tally.input, tally, last))
            if last:
                self._admit(ticket)
        return self._counted - before

    def _admit(self, ticket: Ticket) -> None:
        """Let the next inputs of a job in, as many at a time as fill a shape; end the job if none is left."""
        left, works = self._left[ticket], self._works[ticket]
        cost = 1.0 if ticket.urgent else float(self._blocks)
        while left and len(works) < self._blocks:
            one, secret = left.popleft(), ticket.job.secret
            work = SharedWork(
                one.number, one.x, ticket.requests(one.label, one.kept), secret, ticket, ticket.urgent, cost
            )
            if self._scheduler.admit(work):
                works.add(work)
        if not works:
            self.forget(ticket)
            ticket.cancelled = True
            ticket.tell(None)

    def _count(self, votes: int) -> None:
        self._counted += votes


class ExactLane(Lane):
    """Jobs in which every view votes, a few shapes of each in turn."""

    def __init__(self) -> None:
        self._runs: dict[Ticket, Iterator[Item]] = {}

    @property
    def tickets(self) -> list[Ticket]:
        return list(self._runs)

    def submit(self, ticket: Ticket) -> None:
        job = ticket.job
        pending = job.sampler.pending(job.method, job.votes, job.batch.inputs.values, job.order)
        self._runs[ticket] = job.sampler.run(pending, job.method)

    def forget(self, ticket: Ticket) -> None:
        self._runs.pop(ticket, None)

    def step(self) -> int:
        counted = 0
        for ticket, run in list(self._runs.items()):
            item: Item | Exception | None
            try:
                item = next(run, None)
            except Exception as problem:  # of this job alone: others go on
                item = problem
            if isinstance(item, tuple):
                counted += len(item[1].votes)  # type: ignore[arg-type]
            else:
                self.forget(ticket)
                ticket.cancelled = True
            ticket.tell(item)
        return counted
