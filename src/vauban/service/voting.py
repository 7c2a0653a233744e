"""The thread that uses the model: it casts the votes of all requests, lane by lane, and lends the model to others."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import torch

from vauban.engine.casters import Casters, fulfil
from vauban.engine.network import Network
from vauban.engine.sampler import Sampler
from vauban.engine.scheduler import VotingJob, current
from vauban.errors import VaubanError
from vauban.service.lanes import ExactLane, Item, Lane, SampledLane, Ticket
from vauban.service.turns import FairLock, Guest

T = TypeVar("T")


class Stopping(VaubanError):
    """The service stops before a job is done."""


class SharedVoting:
    """The thread that uses the model. Others give it jobs and functions, or borrow the model with `guest`.

    `on_votes`: called with the number of votes as they are counted. `workers`: how many shapes are cast at a time; 1: this thread
    casts them. Else as many others cast them, with copies of the model, count them and compose the next; this one takes jobs in.
    """

    def __init__(self, on_votes: Callable[[int], None] = lambda votes: None, workers: int = 1):
        self._model = FairLock()
        self._wake = threading.Condition()
        self._arrived: list[Ticket] = []
        self._calls: list[tuple[Callable[[], Any], Future[Any]]] = []
        self._lanes: dict[Any, Lane] = {}
        self._lanes_lock = threading.Lock()
        self._closing = self._woken = self._due = False
        self.workers, self.casters = workers, None  # type: int, Casters | None
        self._on_votes, self.threads = on_votes, torch.get_num_threads()
        self._device = torch.device("cpu")
        self._thread = threading.Thread(target=self._loop_there, name="voting", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the voting thread runs, as long as nobody closed it."""
        return self._closing or self._thread.is_alive()

    def start(self, network: Network) -> None:
        """Begin to cast votes with this network."""
        self._device = network.device
        if self.workers > 1:
            self.casters = Casters(network, self.workers, self.threads, self._turn)
        self._thread.start()

    def close(self) -> None:
        """Stop after the shapes that are being cast; jobs that are not done are told so."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        if self.casters is not None:
            self.casters.close()

    def submit(self, ticket: Ticket) -> None:
        """Take a job in."""
        with self._wake:
            if not self._closing:
                self._arrived.append(ticket)
                self._wake.notify()
                return
        ticket.tell(_stopping())

    def cancel(self, ticket: Ticket) -> None:
        """Let a job go; it is told nothing more, but for what is being counted now."""
        if ticket.cancelled:
            return
        ticket.cancelled = True
        with self._wake:
            self._woken = True
            self._wake.notify()

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Let the voting thread call a function that uses the model, between two steps."""
        future: Future[T] = Future()
        with self._wake:
            if self._closing:
                raise _stopping()
            self._calls.append((function, future))
            self._wake.notify()
        return future

    def use(self, sampler: Any, function: Callable[[Any], T]) -> Future[T]:
        """Let a function use a sampler or enumerator: in a thread that casts shapes, if there are any, else as `call` does."""
        if self.casters is None or not isinstance(sampler, Sampler):
            return self.call(lambda: function(sampler))
        with self._wake:
            if self._closing:
                raise _stopping()
            return self.casters.use(sampler, function)

    def guest(self) -> Guest:
        """Context in which the caller's thread may use the model itself; functions wait, and votes unless workers cast them."""
        return Guest(self._model)

    def executor(self, guest: Guest, stopped: Callable[[], None]) -> Callable[[VotingJob], Iterator[Item]]:
        """Casts the votes of a job for `SmoothedClassifier.certify` called by this guest, which lends the model meanwhile.

        `stopped` is called at least twice a second and ends the job by raising.
        """

        def vote(job: VotingJob) -> Iterator[Item]:
            told: queue.SimpleQueue[Item | Exception | None] = queue.SimpleQueue()
            ticket = Ticket(job, told.put, urgent=False)
            with guest.lent():
                self.submit(ticket)
                try:
                    while True:
                        stopped()
                        try:
                            item = told.get(timeout=0.5)
                        except queue.Empty:
                            continue
                        if isinstance(item, Exception):
                            raise item
                        if item is None:
                            return
                        yield item
                finally:
                    self.cancel(ticket)

        return vote

    def _loop_there(self) -> None:
        with current(self._device):  # which GPU is the current one belongs to a thread
            self._loop()

    def _loop(self) -> None:
        while True:
            with self._wake:
                while not (self._woken or self._arrived or self._calls or self._closing) and self._idle:
                    self._wake.wait()
                self._woken = False
                arrived, self._arrived = self._arrived, []
                calls, self._calls = self._calls, []
                if self._closing:
                    break
            if self.casters is None:
                with self._model:
                    self._answer(calls)
                    self._turn(arrived)
                continue
            if calls:
                with self._model:
                    self._answer(calls)
            self._turn(arrived)
        with self._lanes_lock:
            self._end([*arrived, *(t for lane in self._lanes.values() for t in lane.tickets)], calls)

    @property
    def _idle(self) -> bool:
        """Whether the voting thread has nothing to do before it is told something."""
        return self.casters is not None or all(lane.waiting for lane in self._lanes.values())

    def _answer(self, calls: list[tuple[Callable[[], Any], Future[Any]]]) -> None:
        for function, future in calls:
            fulfil(future, function)

    def _turn(self, arrived: Sequence[Ticket] = ()) -> None:
        """Take jobs in, and let every lane do what it can. A worker that has cast a shape calls it too, since waking another
        thread costs more. Where another thread is in it already, that thread goes through the lanes once more."""
        if arrived:
            with self._lanes_lock:
                for ticket in arrived:
                    self._enter(ticket)
        self._due = True
        while self._due and not self._closing and self._lanes_lock.acquire(blocking=False):
            try:
                self._due = False
                for key, lane in list(self._lanes.items()):
                    self._step(key, lane)
                if self.casters is not None and not all(lane.waiting for lane in self._lanes.values()):
                    self._due = True  # an input that ended made room for the next one, which nobody has composed yet
            finally:
                self._lanes_lock.release()

    def _end(self, tickets: list[Ticket], calls: list[tuple[Callable[[], Any], Future[Any]]]) -> None:
        for ticket in tickets:
            ticket.tell(_stopping())
        for _, future in calls:
            if future.set_running_or_notify_cancel():
                future.set_exception(_stopping())

    def _enter(self, ticket: Ticket) -> None:
        sampler = ticket.job.sampler
        try:
            if isinstance(sampler, Sampler):
                x = ticket.job.batch.inputs.values
                key: Any = (sampler.rows, sampler.block, sampler.levels, x.shape[1:], x.dtype)
            else:
                key = "exact"
            if key not in self._lanes:
                self._lanes[key] = SampledLane(sampler, self.casters) if isinstance(sampler, Sampler) else ExactLane()
            self._lanes[key].submit(ticket)
        except Exception as problem:
            ticket.tell(problem)

    def _step(self, key: Any, lane: Lane) -> None:
        for ticket in lane.tickets:
            if ticket.cancelled:
                lane.forget(ticket)
        try:
            if lane.tickets:
                self._on_votes(lane.step())
        except Exception as problem:
            for ticket in lane.tickets:
                ticket.tell(problem)
            del self._lanes[key]


def _stopping() -> Stopping:
    return Stopping("the service is stopping: ask again in a moment")
