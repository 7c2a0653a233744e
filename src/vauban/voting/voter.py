"""Casts votes: views made, classified and counted in shapes of a fixed size, one synchronisation per look."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.seed import Seed
from vauban.smoothing.base import Smoothing
from vauban.smoothing.random import Stream
from vauban.voting.scores import Model, not_comparable, scores_of, votes_of


@dataclass(frozen=True)
class Voter:
    """A base classifier, and the shape in which it is asked.

    Every forward pass sees exactly `rows` views of one input: shape t holds the views from t * rows on, the last one
    padded with views that are not counted. A view therefore always sits in the same row of the same shape, and order,
    resume and `in_flight` (how many shapes are made before they vote) change nothing.
    """

    model: Model
    smoothing: Smoothing
    num_classes: int
    rows: int
    device: torch.device
    in_flight: int = 1
    channels_last: bool = False

    def cast(
        self,
        x: torch.Tensor,
        stream: Stream,
        looks: Sequence[int],
        levels: int | None,
        after: int = 0,
        tick: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield (look, counts [num_classes]) at each look, counting the views after..look-1 of one input `x` [...].

        `looks` ascend and lie above `after`. `tick` is told of votes as they are cast.
        """
        one = x.to(self.device)[None]
        tally = torch.zeros(self.num_classes + 1, dtype=torch.int64, device=self.device)
        ones = torch.ones(self.rows, dtype=torch.int64, device=self.device)
        position, remaining = after, deque(looks)
        for start, views in self._shapes(one, stream, range(after - after % self.rows, looks[-1], self.rows), levels):
            votes = self._votes(views)
            while remaining and position < start + self.rows:
                stop = min(remaining[0], start + self.rows)
                tally.scatter_add_(0, votes[position - start : stop - start], ones[: stop - position])
                if tick:
                    tick(stop - position)
                position = stop
                if position == remaining[0]:
                    yield remaining.popleft(), self._read(tally)

    def probe(self, x: torch.Tensor, levels: int | None) -> None:
        """Ask the model once, with noise that no run uses, so that one that answers wrongly is found before a run begins."""
        for _ in self.cast(x, Stream(Seed.of(0), "probe", 0), [self.rows], levels):
            pass

    def _votes(self, views: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return votes_of(scores_of(self.model, views, self.num_classes))

    def _read(self, tally: torch.Tensor) -> NDArray[np.int64]:
        counts = tally.cpu().numpy().copy()
        if counts[-1]:
            raise not_comparable(counts[-1])
        return counts[:-1]

    def _shapes(
        self, one: torch.Tensor, stream: Stream, starts: range, levels: int | None
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """The views of each shape, made `in_flight` shapes at a time: tables stay warm, and so does the network."""
        per_view = self.smoothing.words(one.shape[1:], levels)

        def make(start: int) -> torch.Tensor:
            views = self.smoothing.views(one, stream.words(start, self.rows, per_view, self.device), levels)
            return views.contiguous(memory_format=torch.channels_last) if self.channels_last else views

        for first in range(0, len(starts), self.in_flight):
            some = starts[first : first + self.in_flight]
            yield from zip(some, [make(start) for start in some], strict=True)
