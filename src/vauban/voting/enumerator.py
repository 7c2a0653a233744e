"""Casts every vote there is: the listed views of many inputs, packed one after the other into shapes of a fixed size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.laws.exact import ExactLaw
from vauban.smoothing.base import Smoothing
from vauban.voting.alone import judged_alone
from vauban.voting.precision import dtype_of, in_precision
from vauban.voting.scores import Model, not_comparable, scores_of, votes_of


@dataclass(frozen=True)
class Enumerator:
    """A base classifier, a list of views, and the shape in which it is asked.

    View j of input i has the number i * views + j; shape t holds the numbers from t * rows on, the last one padded with views
    that are not counted. Order, resume and `in_flight` (how many shapes are cast before their votes are read) change nothing.
    `threshold`: a view votes for every class of at least this probability (softmax of the scores) in place of the best one.
    """

    model: Model
    smoothing: Smoothing
    num_classes: int
    rows: int
    device: torch.device
    in_flight: int = 1
    channels_last: bool = False
    threshold: float | None = None
    precision: str = "fp32"

    def cast(
        self,
        inputs: torch.Tensor,
        views: int,
        begin: int = 0,
        end: int | None = None,
        tick: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, NDArray]]:
        """Yield (first, votes) in order: the votes of the numbers first, first + 1, … of `inputs` [m, ...] on the grid.

        Votes are classes [n], or sets of them, 0 or 1 [n, num_classes], where there is a threshold. The numbers begin..end-1
        vote, all if not said otherwise. `tick` is told of votes as they are cast.
        """
        last = len(inputs) * views if end is None else end
        for start in range(begin - begin % self.rows, last, self.rows * self.in_flight):
            stop = min(start + self.rows * self.in_flight, last)
            cast = [self._votes(self._shape(inputs, views, first)) for first in range(start, stop, self.rows)]
            first = max(start, begin)
            votes = torch.cat(cast)[first - start : stop - start].cpu().numpy()
            self._refuse_nan(votes)
            if tick:
                tick(stop - first)
            yield first, votes

    def probe(self, inputs: torch.Tensor, views: int) -> None:
        """Ask for one shape and then for the same views again, in other rows and next to others: a claim about every view
        needs a base classifier whose answer to a view depends on nothing else."""
        shape = self._views(inputs, views, torch.linspace(0, len(inputs) * views - 1, self.rows).long())

        def ask(order: torch.Tensor) -> torch.Tensor:
            return self._scores(self._laid_out(shape[order.to(shape.device)]))

        with torch.inference_mode():
            judged_alone(
                ask,
                self.rows,
                check=lambda scores: self._refuse_nan(votes_of(scores).cpu().numpy()),
                why="exact claims need",
                advice=f"at {self.rows} rows the model's scores depend on the row a view is in, by the rounding of its "
                "arithmetic: exact claims need another compute shape (rows=, --rows), for example 25, 50 or 100",
            )

    def _shape(self, inputs: torch.Tensor, views: int, start: int) -> torch.Tensor:
        """The views of the shape that begins with number `start`."""
        return self._views(inputs, views, torch.arange(start, start + self.rows).clamp_(max=len(inputs) * views - 1))

    def _views(self, inputs: torch.Tensor, views: int, numbers: torch.Tensor) -> torch.Tensor:
        """The views of these numbers [rows], which do not fall."""
        which = numbers // views
        some = inputs[int(which[0]) : int(which[-1]) + 1].to(self.device)
        words = (numbers % views)[:, None].to(self.device)
        if len(some) > 1:
            some = some.index_select(0, (which - which[0]).to(self.device))
        return self._laid_out(self.smoothing.views(some, words, _law(self.smoothing).levels))

    def _scores(self, views: torch.Tensor) -> torch.Tensor:
        with in_precision(self.precision, self.device):
            return scores_of(self.model, views.to(dtype_of(self.precision)), self.num_classes)

    def _laid_out(self, views: torch.Tensor) -> torch.Tensor:
        return views.contiguous(memory_format=torch.channels_last) if self.channels_last else views

    def _votes(self, views: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            scores = self._scores(views)
            if self.threshold is None:
                return votes_of(scores)
            chances = scores.softmax(dim=1)
            sets = (chances >= self.threshold).to(torch.int8)
            return sets.masked_fill_(chances.isnan(), 2)

    def _refuse_nan(self, votes: NDArray) -> None:
        bad = votes == (self.num_classes if votes.ndim == 1 else 2)
        if bad.any():
            raise not_comparable(int(bad.sum() if votes.ndim == 1 else bad.any(axis=1).sum()))


def _law(smoothing: Smoothing) -> ExactLaw:
    assert isinstance(smoothing.law, ExactLaw)
    return smoothing.law


def as_ballots(votes: NDArray, inputs: int, num_classes: int) -> NDArray[np.integer] | NDArray[np.bool_]:
    """Votes of all numbers in order as ballots: [inputs, views], or bool [inputs, views, num_classes]."""
    if votes.ndim == 2:
        return votes.astype(bool).reshape(inputs, -1, num_classes)
    return votes.reshape(inputs, -1)
