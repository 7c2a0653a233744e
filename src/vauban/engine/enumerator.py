"""Casts the votes of every view of an exact smoothing: views of many inputs packed into shapes of a fixed size."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.engine.compiled import PLAIN, Program, compiled, exact_views, warn_not_compiled
from vauban.engine.failed_calls import not_comparable
from vauban.engine.network import (
    Network,
    check_independence,
    in_precision,
    probe_entries,
    refuse_nan,
    votes_of,
    with_extremes,
)
from vauban.engine.sampler import Answer, choose_in_flight, choose_rows
from vauban.engine.scheduler import sent
from vauban.errors import BadInput, RowsDiffer, VaubanError
from vauban.inputs import Inputs, kept_for
from vauban.laws.exact import ExactLaw
from vauban.methods import ExactMethod
from vauban.seed import Seed
from vauban.smoothing.base import Smoothing
from vauban.votes import BallotPiece, BallotVotes

_ON_GPU = 16  # shapes whose votes are read from a GPU together
_AHEAD = (0, 1)  # on a CPU, on a GPU: how often as many are cast before the first are read, so that it never waits


@dataclass(frozen=True)
class ViewRange:
    """Views to be voted on: the numbers first..stop-1, where view j of the input at position i has the number i * views + j.

    `inputs` [n, ...] are those from `position` on, `index` [n] their numbers in the data set; `last`: the largest number of
    the run. The inputs cover every shape that the range overlaps, so a shape is the same whichever worker casts a part of it.
    `key`: the number the range began with.
    """

    key: int
    first: int
    stop: int
    position: int
    inputs: torch.Tensor
    index: Sequence[int]
    last: int

    def after(self, piece: BallotPiece) -> ViewRange:
        """The rest of the range after a piece, its first votes, has been counted."""
        return replace(self, first=self.first + len(piece.votes))


@dataclass(frozen=True)
class Enumerator:
    """A base classifier, an exact smoothing, and the compute shape in which views vote.

    Shape t holds the numbers from t * rows on, the last one padded with views that are not counted. Order, resume and
    `in_flight` (how many shapes are cast before their votes are read) change nothing. `threshold`: a view votes for every class
    of at least this probability (softmax of the scores) in place of the best one. `compiled`: whether torch.compile made a
    program of the network; "tuned" if kernels were timed first. (On a GPU, how views are made is compiled anyway in long runs;
    they have the same bits.)
    """

    network: Network
    smoothing: Smoothing
    num_classes: int
    views: int
    rows: int
    in_flight: int = 1
    threshold: float | None = None
    compiled: bool | str = False
    _kept: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def device(self) -> torch.device:
        """The network's device."""
        return self.network.device

    def pending(
        self,
        method: ExactMethod,
        votes: BallotVotes,
        inputs: torch.Tensor,
        order: Sequence[int] | None = None,
        most: int | None = None,
    ) -> list[ViewRange]:
        """Ranges of views that have not voted, of at most `most` views each, split where shapes begin."""
        last, found = len(inputs) * self.views - 1, []
        for start, end in votes.missing:
            first = start
            while first < end:
                stop = end if most is None else min(end, first - first % self.rows + max(self.rows, most))
                stop -= 0 if stop == end else stop % self.rows
                begin = (first - first % self.rows) // self.views
                until = min(last, stop - 1 + -stop % self.rows) // self.views + 1
                some = inputs[begin:until]
                found.append(ViewRange(first, first, stop, begin, some, votes.index[begin:until], last))
                first = stop
        return found

    def run(
        self,
        pending: Iterable[ViewRange],
        method: ExactMethod,
        seed: Seed | None = None,
        *,
        on_votes: Callable[[int], None] | None = None,
        deadline: float | None = None,
    ) -> Iterator[tuple[int, BallotPiece, bool]]:
        """Yield the votes of all ranges, in pieces of one input: the range's key, the piece, and whether it is the last."""
        for work in pending:
            for first, votes in self._cast(work):
                if on_votes:
                    on_votes(len(votes))
                begun = first
                while begun < first + len(votes):
                    position, view = divmod(begun, self.views)
                    count = min(self.views - view, first + len(votes) - begun)
                    some = votes[begun - first : begun - first + count]
                    begun += count
                    yield work.key, BallotPiece(work.index[position - work.position], view, some), begun == work.stop

    def cast(self, inputs: torch.Tensor, begin: int = 0, end: int | None = None) -> Iterator[tuple[int, NDArray]]:
        """Yield (first, votes) in order: the votes of the numbers begin..end-1 (default: all) of `inputs` [m, ...] on the grid.

        Votes are classes [n], or sets of them, bool [n, num_classes], where there is a threshold.
        """
        last = len(inputs) * self.views
        yield from self._cast(
            ViewRange(begin, begin, last if end is None else end, 0, inputs, range(len(inputs)), last - 1)
        )

    def _cast(self, work: ViewRange) -> Iterator[tuple[int, NDArray]]:
        waiting: deque[tuple[int, Answer]] = deque()
        ahead = _AHEAD[self.device.type == "cuda"]
        for start in range(work.first - work.first % self.rows, work.stop, self.rows * self.in_flight):
            stop = min(start + self.rows * self.in_flight, work.stop)
            cast = torch.cat([self._votes(self._shape(work, first)) for first in range(start, stop, self.rows)])
            first = max(start, work.first)
            waiting.append((first, Answer.of(cast[first - start : stop - start], cast)))
            if len(waiting) > ahead:
                yield self._read(*waiting.popleft())
        for first, answer in waiting:
            yield self._read(first, answer)

    def _read(self, first: int, answer: Answer) -> tuple[int, NDArray]:
        votes = answer.votes()
        self._refuse_nan(votes)
        return first, votes.astype(bool) if votes.ndim == 2 else votes

    def probe(self, inputs: torch.Tensor, rows_must_agree: bool = True, again: bool = False) -> bool:
        """Check on views from the whole run that the base classifier judges each by itself, in every row alike.

        Once for the same inputs, unless `again`.
        """
        earlier = kept_for(inputs, self.network.prepared, self._kept.setdefault("probed", {}))
        if self.rows in earlier and not again:
            return True
        spread = self._spread(inputs, 2 * self.rows)
        views = with_extremes(torch.cat([self._views(inputs, 0, spread[part::2]) for part in (0, 1)]))

        def reordered(order: torch.Tensor) -> torch.Tensor:
            return self._scores(self.network.laid_out(views[order.to(views.device)]))

        with torch.inference_mode():
            model = self.network.model
            if not check_independence(reordered, self.rows, model, refuse_nan, earlier=earlier, further=2):
                earlier.clear()
                raise RowsDiffer(
                    f"at {self.rows} rows the model's scores depend on the row a view is in, by the rounding of its "
                    "arithmetic: exact claims need another compute shape (rows=, --rows), for example 25, 50 or 100"
                )
        return True

    def probe_entries(self, inputs: torch.Tensor) -> tuple[str, str, str]:
        """The manifest's entries about one shape of views spread over these inputs [m, ...]."""
        with torch.inference_mode():
            views = self._views(inputs, 0, self._spread(inputs, self.rows))
            return probe_entries(views, self._scores(views))

    def probe_scores(self, inputs: torch.Tensor) -> Iterator[torch.Tensor]:
        """Scores [rows, classes] of one shape of views spread over these inputs [m, ...]."""
        with torch.inference_mode():
            yield self._scores(self._views(inputs, 0, self._spread(inputs, self.rows)))

    def _spread(self, inputs: torch.Tensor, count: int) -> torch.Tensor:
        """`count` numbers of views, evenly spread over these inputs; float32 may round past the last of more than 2^24."""
        last = len(inputs) * self.views - 1
        return torch.linspace(0, last, count).long().clamp_(max=last)

    def scores(self, inputs: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield the scores [n, classes] of all views of `inputs` [m, ...] on the grid, in order, one shape after the other."""
        end = len(inputs) * self.views
        work = ViewRange(0, 0, end, 0, inputs, range(len(inputs)), end - 1)
        with torch.inference_mode():
            for start in range(0, end, self.rows):
                yield self._scores(self._shape(work, start))[: end - start]

    def _shape(self, work: ViewRange, start: int) -> torch.Tensor:
        """The views of the shape that begins with number `start`."""
        numbers = torch.arange(start, start + self.rows).clamp_(max=work.last)
        return self._views(work.inputs, work.position, numbers, self._compiles_views(work.inputs))

    def _views(
        self, inputs: torch.Tensor, position: int, numbers: torch.Tensor, compiles: bool = False
    ) -> torch.Tensor:
        """The views of these numbers [rows], in ascending order.

        `compiles`: a compiled program makes them, for which the inputs are padded to a fixed number. More inputs do not fit it:
        their views are made without it, as are all where it was dropped.
        """
        with torch.inference_mode(), self.network.making_views():
            which = numbers // self.views - position
            kinds, place = torch.unique_consecutive(which, return_inverse=True)
            adjacent = int(kinds[-1] - kinds[0]) + 1 == len(kinds)
            chosen = inputs[int(kinds[0]) : int(kinds[-1]) + 1] if adjacent else inputs[kinds]
            some = chosen.clone().contiguous()  # streamed inputs are decoded here
            missing = self._most_inputs - len(some)
            if compiles and missing > 0:
                some = torch.cat([some, some[-1:].expand(missing, *some.shape[1:])])
            words = (numbers % self.views)[:, None]
            arguments = [sent(part, self.device) for part in (some, place, words)]
            program = self._program_for(arguments) if compiles and missing >= 0 else None
            return self.views_of(*arguments) if program is None else program(*arguments)

    def views_of(self, some: torch.Tensor, place: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Views [rows, ...] in the network's type and layout: row i has input `place`[i] of `some` and word `words`[i, 0]."""
        law = self.smoothing.law
        assert isinstance(law, ExactLaw)
        if len(some) > 1:
            some = some.index_select(0, place)
        return self.network.laid_out(self.smoothing.views(some, words, law.levels))

    @property
    def _most_inputs(self) -> int:
        """The largest number of inputs of which a shape has views."""
        return min(self.rows, self.rows // self.views + 2)

    @property
    def _may_compile_views(self) -> bool:
        """Whether views may be made by a compiled program: on a GPU, where each operation on them is a launch and a pass over
        memory."""
        return self.device.type == "cuda"

    def _compiles_views(self, inputs: torch.Tensor) -> bool:
        """Whether the next shape's views are made by a program: at once where the network is compiled, else once enough of them
        have been made."""
        if not self._may_compile_views:
            return False
        made = self._kept.get("numbers", 0)
        self._kept["numbers"] = made + self.rows * inputs.shape[1:].numel()
        return bool(self.compiled) or made >= PLAIN

    def _program_for(self, arguments: Sequence[torch.Tensor]) -> Program | None:
        """The program that makes views from such arguments of `views_of`; None where it was dropped."""
        some, network = arguments[0], self.network
        key = ("views", some.shape, some.dtype, network.channels_last, network.runner is None)
        if key not in self._kept:
            self._kept[key] = exact_views(self, arguments)
        found: Program | None = self._kept[key]
        return found

    def _scores(self, views: torch.Tensor) -> torch.Tensor:
        with in_precision(self.network.precision, self.device):
            if not self.compiled:
                return self.network.scores(views, self.num_classes)
            if "program" not in self._kept:
                self._kept["program"] = compiled(
                    lambda views: self.network.scores(views, self.num_classes), how=self.compiled
                )
            scores: torch.Tensor = self._kept["program"](views)
            return scores

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
            raise not_comparable(int(bad.sum() if votes.ndim == 1 else np.any(bad, axis=1).sum()))


def make_enumerator(
    network: Network,
    smoothing: Smoothing,
    method: ExactMethod,
    inputs: Inputs,
    *,
    rows: int | None,
    block: int | None,
    in_flight: int | None,
    compile: bool | str,
) -> Enumerator:
    """The enumerator for these inputs; `rows` and `in_flight` are chosen by size where they are None."""
    law, shape = method.listed, inputs.values.shape[1:]
    if network.stochastic is not None:
        raise BadInput(
            f"stochastic={network.stochastic!r} with {law.spec}, which is exact: exact claims need a base classifier that always "
            "gives the same answer; use a sampled smoothing"
        )
    if law.levels != inputs.levels:
        raise BadInput(f"{law.spec} is for a grid of {law.levels} levels; these inputs have {inputs.levels}")
    rows = rows or choose_rows(shape, network.device)
    on_gpu = network.device.type == "cuda"
    ahead = in_flight or (_ON_GPU if on_gpu else choose_in_flight(rows * shape.numel(), network.device))
    plain = Enumerator(network, smoothing, method.num_classes, law.views, rows, ahead, method.threshold)
    if not compile or network.runner is not None:
        return plain
    fast = replace(plain, compiled=compile)
    try:
        fast.probe_entries(inputs.values[:1])
    except (VaubanError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as problem:
        warn_not_compiled(problem)
        return plain
    return fast
