"""Polls many inputs at once: shapes are filled with blocks of views of whichever inputs want them, and nothing waits.

A place of a shape holds `block` consecutive views of one input. A shape is begun only for a block that is surely wanted; what
is free in it takes further blocks that may be wanted, and those that turn out not to be are not counted. An input that has
been decided gives its place to the next at once. While counts are on their way from the device, other shapes are cast.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.seed import Seed
from vauban.smoothing.random import Stream
from vauban.voting.inquiry import Counts, Inquiry, Wish
from vauban.voting.memory import ran_out
from vauban.voting.scores import not_comparable

if TYPE_CHECKING:
    from vauban.voting.voter import Answer, Voter

_ON_THEIR_WAY = 2


@dataclass(frozen=True)
class Counted:
    """Counts per class [c] of the first `votes` votes of the input `number`, in a stage; `last`: nothing more is asked of it."""

    number: int
    stage: str
    votes: int
    counts: Counts
    last: bool


@dataclass(frozen=True)
class Place:
    """`block` consecutive views of one input, from number `start` on."""

    x: torch.Tensor
    stream: Stream
    start: int


class Poll:
    """Inputs on their way through a voter.

    `together`: the input with the fewest votes comes next; else the one that came first. `tick` is told of votes as they are
    counted. At the `deadline` (of time.monotonic) it ends, whatever is still wanted.
    """

    def __init__(
        self,
        voter: Voter,
        levels: int | None,
        seed: Seed,
        *,
        together: bool = False,
        tick: Callable[[int], None] | None = None,
        deadline: float | None = None,
    ):
        self._voter, self._levels, self._seed = voter, levels, seed
        self._together, self._tick, self._deadline = together, tick, deadline
        self._ready: list[tuple[int, int, _Voted]] = []
        self._parked: dict[int, _Voted] = {}

    def run(self, inquiries: Iterable[tuple[int, torch.Tensor, Inquiry]]) -> Iterator[Counted]:
        """Hold the conversations about inputs (number, x [...], inquiry), yielding all counts that were wished for."""
        coming = enumerate(inquiries)
        if self._together:
            for order, inquiry in list(coming):
                self._admit(order, *inquiry)
        pending: deque[tuple[list[_Block], Answer]] = deque()
        wait = _ON_THEIR_WAY if self._voter.device.type == "cuda" else 0
        while self._deadline is None or time.monotonic() < self._deadline:
            shapes = [shape for _ in range(self._voter.in_flight) if (shape := self._compose(coming))]
            if not shapes:
                if not pending:
                    return
                yield from self._count(*pending.popleft())
            for shape, answer in zip(shapes, self._cast(shapes), strict=True):
                pending.append((shape, answer))
                if len(pending) > wait:
                    yield from self._count(*pending.popleft())

    def _cast(self, shapes: list[list[_Block]]) -> Iterator[Answer]:
        """An answer for each shape. All are made before the first is voted on: tables stay warm, and so does the network."""
        voter = self._voter
        places = [[block.place(self._seed) for block in shape] for shape in shapes]
        try:
            made = [voter.made(shape, self._levels) for shape in places]
            while made:
                yield voter.answer(made.pop(0))
        except torch.cuda.OutOfMemoryError:
            raise ran_out(voter, places[0][0], self._levels) from None

    def _compose(self, coming: Iterator[tuple[int, tuple[int, torch.Tensor, Inquiry]]]) -> list[_Block]:
        """The blocks of the next shape; none if nothing is surely wanted before more counts are in."""
        blocks: list[_Block] = []
        while len(blocks) < self._voter.places:
            if self._ready:
                _, _, one = heapq.heappop(self._ready)
                blocks.append(one.take())
                self._place(one)
            elif (new := next(coming, None)) is not None:
                self._admit(new[0], *new[1])
            else:
                break
        if blocks and len(blocks) < self._voter.places:
            blocks += self._speculate(self._voter.places - len(blocks))
        return blocks

    def _speculate(self, free: int) -> list[_Block]:
        """Blocks that may be wanted, a block of each undecided input in turn."""
        blocks: list[_Block] = []
        while len(blocks) < free:
            some = [one for one in self._parked.values() if one.may_go_on][: free - len(blocks)]
            if not some:
                break
            blocks += [one.take() for one in some]
        return blocks

    def _admit(self, order: int, number: int, x: torch.Tensor, inquiry: Inquiry) -> None:
        self._place(_Voted(order, number, x, inquiry, self._voter.block_size, self._voter.num_classes))

    def _place(self, one: _Voted) -> None:
        """Among those that surely want votes, among those that may, or away."""
        self._parked.pop(one.order, None)
        if one.wish is None:
            return
        if one.sent < one.sure:
            heapq.heappush(self._ready, (one.sent if self._together else 0, one.order, one))
        else:
            self._parked[one.order] = one

    def _count(self, blocks: list[_Block], answer: Answer) -> Iterator[Counted]:
        size, votes = self._voter.block_size, answer.votes()
        for i, block in enumerate(blocks):
            one = block.of
            if one.wish is None or one.stage_number != block.stage_number:
                continue
            waited = one.sent >= one.sure
            for told, more in one.count(block.start, votes[i * size : (i + 1) * size]):
                if self._tick:
                    self._tick(told)
                if more is not None:
                    yield more
            if waited:
                self._place(one)


@dataclass(frozen=True)
class _Block:
    """A place and whose it is."""

    of: _Voted
    stage_number: int
    start: int
    stage: str

    def place(self, seed: Seed) -> Place:
        return Place(self.of.x, Stream(seed, self.stage, self.of.number), self.start)


class _Voted:
    """An input: what is asked about it, how many of its views were handed out, and the counts of those that came back."""

    def __init__(self, order: int, number: int, x: torch.Tensor, inquiry: Inquiry, block: int, num_classes: int):
        self.order, self.number, self.x = order, number, x
        self._inquiry, self._block, self._classes = inquiry, block, num_classes
        self.wish: Wish | None = None
        self.stage_number, self.sent, self.counted = 0, 0, 0
        self._counts: Counts = np.zeros(num_classes + 1, dtype=np.int64)
        self._hear(next(inquiry, None))

    @property
    def sure(self) -> int:
        assert self.wish is not None
        return max(self.wish.look, self.wish.sure)

    @property
    def may_go_on(self) -> bool:
        assert self.wish is not None
        return self.wish.most is None or self.sent < self.wish.most

    def take(self) -> _Block:
        """The next block of views."""
        assert self.wish is not None
        start, self.sent = self.sent, self.sent + self._block
        return _Block(self, self.stage_number, start, self.wish.stage)

    def count(self, start: int, votes: NDArray[np.integer]) -> Iterator[tuple[int, Counted | None]]:
        """Count the block from `start` on: how many votes were counted, with the counts where a look was reached."""
        stage_number, end = self.stage_number, start + len(votes)
        while self.wish is not None and self.stage_number == stage_number and self.counted < end:
            stop = min(self.wish.look, end)
            some = votes[self.counted - start : stop - start]
            self._counts += np.bincount(some, minlength=self._classes + 1)
            self.counted = stop
            if stop < self.wish.look:
                yield len(some), None
                continue
            if self._counts[-1]:
                raise not_comparable(int(self._counts[-1]))
            wish, counts = self.wish, self._counts[:-1].copy()
            try:
                self._hear(self._inquiry.send(counts))
            except StopIteration:
                self._hear(None)
            yield len(some), Counted(self.number, wish.stage, wish.look, counts, self.wish is None)

    def _hear(self, wish: Wish | None) -> None:
        """Take up the next wish; a new stage begins with its own first vote."""
        if wish is not None and (self.wish is None or wish.stage != self.wish.stage):
            self.stage_number += 1
            self.counted, self.sent = wish.after, wish.after - wish.after % self._block
            self._counts = np.zeros(self._classes + 1, dtype=np.int64)
            if wish.before is not None:
                self._counts[:-1] = wish.before
        self.wish = wish
