"""Votes on inputs of many callers who come and go: their blocks share compute shapes, and each caller has a seed of its own."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vauban.engine.scheduler import Scheduler, Work, _Input, _Placed
from vauban.errors import VaubanError
from vauban.votes import Tally

if TYPE_CHECKING:
    from vauban.engine.casters import Casters
    from vauban.engine.sampler import Answer, Sampler

_FIRST = 100  # votes before which an urgent input is served ahead of all that have more
_AHEAD = 1e9  # more than any share
_STEP_SECONDS = 0.02  # about how long one step may take: a new caller waits no longer than this before its first block


@dataclass(frozen=True, eq=False)
class SharedWork(Work):
    """An input of one `caller`. `urgent`: served first until it has a few votes. `cost`: how dear a block is; a caller with
    blocks of cost 10 gets a tenth of the votes of one with blocks of cost 1."""

    caller: Any = None
    urgent: bool = True
    cost: float = 1.0


Told = tuple[SharedWork, Tally | VaubanError, bool]
"""An input, its tally or what is wrong with it, and whether that is its last."""


class SharedScheduler(Scheduler):
    """A scheduler that inputs enter and leave at any time. Later shares are fair: every input gets blocks in proportion to
    1 / cost from when it came, however many votes others have already.

    Which inputs are there, and when they came, changes no tally.
    """

    def __init__(self, sampler: Sampler, on_votes: Callable[[int], None] | None = None):
        super().__init__(sampler, None, on_votes=on_votes)
        self._orders = itertools.count()
        self._here: dict[SharedWork, _Input] = {}
        self._start: dict[int, float] = {}
        self._now = 0.0
        self._shape_seconds = _STEP_SECONDS

    @property
    def busy(self) -> bool:
        """Whether there is an input that needs votes."""
        return bool(self._here)

    @property
    def waiting(self) -> bool:
        """Whether a step has nothing to do until a shape that is being cast is done."""
        return not self.busy

    def admit(self, work: SharedWork) -> bool:
        """Take an input in; False if it needs no votes."""
        one = _Input(next(self._orders), work, self._sampler.block_size, self._sampler.num_classes)
        if one.request is None:
            return False
        self._here[work] = one
        self._place(one)
        return True

    def drop(self, work: SharedWork) -> None:
        """Let an input go; votes of it that are being cast are not counted."""
        one = self._here.pop(work, None)
        if one is None:
            return
        one.request = None
        self._start.pop(one.order, None)
        self._undecided.pop(one.order, None)
        self._ready = [entry for entry in self._ready if entry[2] is not one]
        heapq.heapify(self._ready)

    def step(self) -> list[Told]:
        """Cast a few shapes; every tally that was reached, and whether it is its input's last one."""
        most = max(1, min(self._sampler.in_flight, int(_STEP_SECONDS / self._shape_seconds)))
        began = time.monotonic()
        shapes = self._compose_some(most, iter(()))
        if not shapes and not self._cast_shapes:
            return []
        found = [(one.work, tally, last) for one, tally, last in self._advance(shapes)]
        if shapes:
            self._shape_seconds = (self._shape_seconds + (time.monotonic() - began) / len(shapes)) / 2
        return self._without_ended(found)

    def _count_block(self, placed: _Placed, votes: Any) -> Iterator[Any]:
        """As a scheduler of one caller, but what is wrong with an input's votes is its last item and ends no other input."""
        try:
            yield from super()._count_block(placed, votes)
        except VaubanError as problem:
            yield placed.of, problem, True

    def _without_ended(self, found: list[Any]) -> list[Told]:
        """The same tallies; inputs that had their last one are let go."""
        for work, _, last in found:
            if last:
                self.drop(work)
        return found

    def _turn(self, one: _Input) -> float:
        """Before all others while an urgent input has few votes, the fewest first; then by its share of what was cast since."""
        work = one.work
        assert isinstance(work, SharedWork)
        assert one.request is not None
        if work.urgent and (one.request.stage == "choose" or one.sent < _FIRST):
            return one.blocks_sent - _AHEAD
        used = work.cost * one.blocks_sent
        start = self._start.setdefault(one.order, self._now - used)
        self._now = max(self._now, start + used - work.cost)
        return start + used


class PooledScheduler(SharedScheduler):
    """A shared scheduler whose shapes are cast by threads. As many shapes as there are threads, and one more, are being cast at a
    time; they are counted in the order in which they were composed, so threads change no tally."""

    def __init__(self, sampler: Sampler, casters: Casters, on_votes: Callable[[int], None] | None = None):
        super().__init__(sampler, on_votes)
        self._casters, self._samplers = casters, casters.samplers(sampler)
        self._most = len(self._samplers) + 1
        self._being_cast: deque[tuple[list[_Placed], Future[Answer]]] = deque()

    @property
    def waiting(self) -> bool:
        room = len(self._being_cast) < self._most
        return not (room and self._ready) and not (self._being_cast and self._being_cast[0][1].done())

    def step(self) -> list[Told]:
        """Count shapes that are cast and compose new ones; every tally that was reached, and whether it is its input's last."""
        found = []
        while self._being_cast and self._being_cast[0][1].done():
            shape, answer = self._being_cast.popleft()
            found += [(one.work, tally, last) for one, tally, last in self._count(shape, answer.result())]
        while len(self._being_cast) < self._most and (shape := self._compose(iter(()))):
            blocks = [placed.block(None) for placed in shape]
            self._being_cast.append((shape, self._casters.cast(self._samplers, blocks)))
        return self._without_ended(found)
