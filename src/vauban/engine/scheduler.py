"""Fills compute shapes with blocks of views of whichever inputs need them, so that no forward pass waits for a count.

A shape is begun only for a block that is needed regardless of the outcome; free room in it takes further blocks that may be
needed, and those that turn out not to be needed are not counted. When an input is decided, the next one starts at once. While
votes are copied from the device, other shapes are cast.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.engine.device_memory import ran_out
from vauban.engine.failed_calls import not_comparable
from vauban.inputs import Batch
from vauban.methods import Method
from vauban.seed import Seed
from vauban.smoothing.random import Stream
from vauban.votes import CountRequest, CountRequests, Counts, KeptCounts, Record, Tally, VoteTable

if TYPE_CHECKING:
    from vauban.engine.sampler import Answer, Sampler

_SHAPES_AHEAD = 2  # shapes whose votes may still be on a GPU while the next one is cast


@dataclass(frozen=True)
class PendingInput:
    """An input `x` [...] that needs votes: its number in the data set, its label if known, and the counts it already has."""

    number: int
    x: torch.Tensor
    label: int | None
    kept: KeptCounts

    @property
    def key(self) -> int:
        """Identifies the input in a run."""
        return self.number

    def after(self, tally: Tally) -> PendingInput:
        """The same input with one more tally."""
        label = int(tally.counts.argmax()) if tally.stage == "choose" else self.label
        return replace(self, label=label, kept=self.kept.after(tally))


@dataclass(frozen=True)
class Work:
    """An input `x` [...] to be voted on, its number in the data set, and the requests for its counts.

    `seed`: of its noise; None is the scheduler's.
    """

    number: int
    x: torch.Tensor
    requests: CountRequests
    seed: Seed | None = None


@dataclass(frozen=True)
class ViewBlock:
    """Consecutive views of one input in one shape, from view `start` on."""

    x: torch.Tensor
    stream: Stream
    start: int


def current(device: torch.device) -> AbstractContextManager[Any]:
    """Context in which a GPU is the current one: kernels, graphs and events that name no device are made there."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The tensor on the device; a copy to a GPU is not waited for."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


class Scheduler:
    """Runs the count requests of many inputs through one sampler.

    `together`: the input with the fewest votes comes next; else the first in order. `on_votes` is called with the number of
    votes as they are counted. At the `deadline` (of time.monotonic) it ends, even if votes are still needed.
    """

    def __init__(
        self,
        sampler: Sampler,
        seed: Seed | None,
        *,
        together: bool = False,
        on_votes: Callable[[int], None] | None = None,
        deadline: float | None = None,
    ):
        self._sampler, self._seed = sampler, seed
        self._together, self._on_votes, self._deadline = together, on_votes, deadline
        self._ready: list[tuple[float, int, _Input]] = []
        self._undecided: dict[int, _Input] = {}
        self._cast_shapes: deque[tuple[list[_Placed], Answer]] = deque()
        self._wait = _SHAPES_AHEAD if sampler.device.type == "cuda" else 0

    def run(self, works: Iterable[Work]) -> Iterator[tuple[Tally, bool]]:
        """Yield every tally that was requested, and whether it is its input's last one."""
        coming = enumerate(works)
        if self._together:
            for order, work in list(coming):
                self._admit(order, work)
        while self._deadline is None or time.monotonic() < self._deadline:
            shapes = self._compose_some(self._sampler.in_flight, coming)
            if not shapes and not self._cast_shapes:
                return
            for _, tally, last in self._advance(shapes):
                yield tally, last

    def _compose_some(self, most: int, coming: Iterator[tuple[int, Work]]) -> list[list[_Placed]]:
        """Up to `most` shapes of blocks."""
        return [shape for _ in range(most) if (shape := self._compose(coming))]

    def _advance(self, shapes: list[list[_Placed]]) -> Iterator[tuple[_Input, Tally, bool]]:
        """Cast these shapes, and count those whose votes are in; without new shapes, the oldest that was cast."""
        if not shapes:
            yield from self._count(*self._cast_shapes.popleft())
        for shape, answer in zip(shapes, self._cast(shapes), strict=True):
            self._cast_shapes.append((shape, answer))
            if len(self._cast_shapes) > self._wait:
                yield from self._count(*self._cast_shapes.popleft())

    def _cast(self, shapes: list[list[_Placed]]) -> Iterator[Answer]:
        """An answer for each shape. All are made before the first votes, which keeps caches warm."""
        sampler = self._sampler
        blocks = [[placed.block(self._seed) for placed in shape] for shape in shapes]
        try:
            made = [sampler.made(shape) for shape in blocks]
            while made:
                yield sampler.answer(made.pop(0))
        except torch.cuda.OutOfMemoryError:
            raise ran_out(sampler, blocks[0][0]) from None

    def _compose(self, coming: Iterator[tuple[int, Work]]) -> list[_Placed]:
        """The blocks of the next shape; empty if no block is certain to be needed before more counts are in."""
        blocks: list[_Placed] = []
        while len(blocks) < self._sampler.blocks:
            if self._ready:
                _, _, one = heapq.heappop(self._ready)
                blocks.append(one.next_block())
                self._place(one)
            elif (new := next(coming, None)) is not None:
                self._admit(*new)
            else:
                break
        if blocks and len(blocks) < self._sampler.blocks:
            blocks += self._speculate(self._sampler.blocks - len(blocks))
        return blocks

    def _speculate(self, free: int) -> list[_Placed]:
        """Blocks that may be needed, one of each undecided input in turn."""
        blocks: list[_Placed] = []
        while len(blocks) < free:
            some = [one for one in self._undecided.values() if one.may_need_more][: free - len(blocks)]
            if not some:
                break
            blocks += [one.next_block() for one in some]
        return blocks

    def _admit(self, order: int, work: Work) -> None:
        self._place(_Input(order, work, self._sampler.block_size, self._sampler.num_classes))

    def _place(self, one: _Input) -> None:
        """Put an input among those certain to need votes or among those that may need them; drop it if it is decided."""
        self._undecided.pop(one.order, None)
        if one.request is None:
            return
        if one.sent < one.sure:
            heapq.heappush(self._ready, (self._turn(one), one.order, one))
        else:
            self._undecided[one.order] = one

    def _turn(self, one: _Input) -> float:
        """When an input gets its next block: the smallest is next, the first in order among equals."""
        return one.sent if self._together else 0

    def _count(self, blocks: list[_Placed], answer: Answer) -> Iterator[tuple[_Input, Tally, bool]]:
        size, votes = self._sampler.block_size, answer.votes()
        for i, placed in enumerate(blocks):
            if placed.of.request is not None and placed.of.stage_number == placed.stage_number:
                yield from self._count_block(placed, votes[i * size : (i + 1) * size])

    def _count_block(self, placed: _Placed, votes: NDArray[np.integer]) -> Iterator[tuple[_Input, Tally, bool]]:
        one, waited = placed.of, placed.of.sent >= placed.of.sure
        for counted, more in one.count(placed.start, votes):
            if self._on_votes:
                self._on_votes(counted)
            if more is not None:
                yield one, *more
        if waited:
            self._place(one)


@dataclass(frozen=True)
class _Placed:
    """A block in a shape, and the input it belongs to."""

    of: _Input
    stage_number: int
    start: int
    stage: str

    def block(self, seed: Seed | None) -> ViewBlock:
        own = self.of.work.seed or seed
        assert own is not None
        return ViewBlock(self.of.x, Stream(own, self.stage, self.of.number), self.start)


class _Input:
    """An input in progress: its requests, how many of its views were sent, and the counts of those that came back."""

    def __init__(self, order: int, work: Work, block: int, num_classes: int):
        self.order, self.work, self.number, self.x = order, work, work.number, work.x
        self._requests, self._block, self._classes = work.requests, block, num_classes
        self.request: CountRequest | None = None
        self.stage_number, self.sent, self.counted, self.blocks_sent = 0, 0, 0, 0
        self._counts: Counts = np.zeros(num_classes + 1, dtype=np.int64)
        self._begin(next(self._requests, None))

    @property
    def sure(self) -> int:
        """Votes needed regardless of the outcome."""
        assert self.request is not None
        return max(self.request.look, self.request.sure)

    @property
    def may_need_more(self) -> bool:
        """Whether views beyond those sent may be needed."""
        assert self.request is not None
        return self.request.most is None or self.sent < self.request.most

    def next_block(self) -> _Placed:
        """The next block of views."""
        assert self.request is not None
        start, self.sent = self.sent, self.sent + self._block
        self.blocks_sent += 1
        return _Placed(self, self.stage_number, start, self.request.stage)

    def count(self, start: int, votes: NDArray[np.integer]) -> Iterator[tuple[int, tuple[Tally, bool] | None]]:
        """Count the block from `start` on: how many votes were counted, with the tally where a look was reached."""
        stage_number, end = self.stage_number, start + len(votes)
        while self.request is not None and self.stage_number == stage_number and self.counted < end:
            stop = min(self.request.look, end)
            some = votes[self.counted - start : stop - start]
            self._counts += np.bincount(some, minlength=self._classes + 1)
            self.counted = stop
            if stop < self.request.look:
                yield len(some), None
                continue
            if self._counts[-1]:
                raise not_comparable(int(self._counts[-1]))
            request, counts = self.request, self._counts[:-1].copy()
            try:
                self._begin(self._requests.send(counts))
            except StopIteration:
                self._begin(None)
            yield len(some), (Tally(self.number, request.stage, request.look, counts), self.request is None)

    def _begin(self, request: CountRequest | None) -> None:
        """Begin the next request; a new stage starts at its own first vote."""
        if request is not None and (self.request is None or request.stage != self.request.stage):
            self.stage_number += 1
            self.counted, self.sent = request.after, request.after - request.after % self._block
            self._counts = np.zeros(self._classes + 1, dtype=np.int64)
            if request.before is not None:
                self._counts[:-1] = request.before
        self.request = request


@dataclass(frozen=True)
class VotingJob:
    """What an executor needs to cast the votes of one call and to report progress."""

    smoothed: Any
    batch: Batch
    method: Method
    sampler: Any
    secret: Seed | None
    votes: VoteTable
    progress: Any
    doing: str
    seconds: float | None = None
    order: Any = None

    def vote_here(self) -> Iterator[tuple[int, Record, bool]]:
        """Cast every missing vote in this process: the item's key, the record, and whether it is the item's last."""
        pending = self.sampler.pending(self.method, self.votes, self.batch.inputs.values, self.order)
        with self.reporting() as (on_votes, on_input):
            deadline = None if self.seconds is None else time.monotonic() + self.seconds
            for item in self.sampler.run(pending, self.method, self.secret, on_votes=on_votes, deadline=deadline):
                if item[2] and on_input:
                    on_input(1)
                yield item

    def reporting(self) -> AbstractContextManager[tuple[Callable[[int], None] | None, Callable[[int], None] | None]]:
        """Context manager that yields two callbacks: for votes as they are counted, and for inputs as they are decided."""
        if self.progress is False:
            return nullcontext((None, None))
        from vauban.report.progress import reporting

        return reporting(self.progress, self.doing, self.method, self.votes, self.seconds)


Executor = Callable[[VotingJob], Iterator[tuple[int, Record, bool]]]
"""Casts the missing votes of a job: yields an item's key, a record, and whether it is the item's last."""


def executor(on: str | Executor | None, model: Any) -> Executor:
    """The function that casts the votes of a job: in this process, on the workers of a Ray cluster, or the one given."""
    if callable(on):
        return on
    if on in (None, "here"):
        return VotingJob.vote_here
    from vauban.engine.worker_pool import ray_executor

    return ray_executor(on, model)
