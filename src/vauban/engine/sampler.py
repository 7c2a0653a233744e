"""Casts sampled votes: makes views and classifies them in compute shapes of a fixed size, and chooses that size."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.engine.compiled import PLAIN, Program, compiled, fused, noise, warn_not_compiled
from vauban.engine.device_memory import fitting_rows, ran_out
from vauban.engine.network import (
    LEAST_REPEATS,
    Network,
    check_independence,
    in_precision,
    probe_entries,
    refuse_nan,
    votes_of,
    with_extremes,
)
from vauban.engine.random_models import check_dispersion, seeded_generators
from vauban.engine.scheduler import PendingInput, Scheduler, ViewBlock, Work, sent
from vauban.errors import BadInput, RowsDiffer, VaubanError
from vauban.inputs import Inputs, kept_for
from vauban.methods import Method, SampledMethod
from vauban.seed import Seed
from vauban.smoothing.base import Smoothing
from vauban.smoothing.random import Stream, addresses, keys_of, words_of
from vauban.validation import check_at_least_one
from vauban.votes import SampledVotes, Tally, counts_at


@dataclass(frozen=True)
class SeededViews:
    """The views of one shape, and the seed of the generators from which a random base classifier draws."""

    views: torch.Tensor
    seed: int


Made = torch.Tensor | SeededViews | tuple[Program, torch.Tensor, torch.Tensor, torch.Tensor]

_DISPERSION_CALLS = 100  # calls by which a random base classifier is tried
_NEAR = 100  # the block size to come close to where inputs share a shape


def choose_rows(shape: torch.Size, device: torch.device) -> int:
    """A compute shape that keeps the device busy and fits: fewer rows for larger inputs, always a divisor of 1,000."""
    budget = 2**22 if device.type == "cpu" else 2**26
    most = 100 if device.type == "cpu" else 1000
    fitting = [rows for rows in (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000) if rows <= most]
    return max((rows for rows in fitting if rows * shape.numel() <= budget), default=1)


def choose_in_flight(numbers: int, device: torch.device) -> int:
    """How many shapes of this many numbers are made before they vote: up to eight on the CPU, if they are small."""
    return max(1, min(8, 2**22 // numbers)) if device.type == "cpu" else 1


def choose_block(rows: int) -> int:
    """The block size where inputs share a shape: the divisor of `rows` nearest to 100.

    >>> [choose_block(rows) for rows in (50, 100, 1000, 1024, 4096)]
    [50, 100, 100, 128, 128]
    """
    return min((part for part in range(1, rows + 1) if rows % part == 0), key=lambda part: abs(part - _NEAR))


@dataclass(frozen=True)
class Answer:
    """Votes [rows] and scores [rows, classes] of one shape; on a GPU the votes are being copied to the host."""

    scores: torch.Tensor
    _votes: torch.Tensor
    _copied: torch.cuda.Event | None

    @classmethod
    def of(cls, votes: torch.Tensor, scores: torch.Tensor) -> Answer:
        if votes.device.type != "cuda":
            return cls(scores, votes, None)
        host = torch.empty(votes.shape, dtype=votes.dtype, pin_memory=True)
        host.copy_(votes, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record(torch.cuda.current_stream(votes.device))
        return cls(scores, host, copied)

    def votes(self) -> NDArray[np.integer]:
        """The votes [rows], once they are copied."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._votes.numpy()


@dataclass(frozen=True)
class Sampler:
    """A base classifier, a sampled smoothing, and the compute shape in which views vote.

    Every forward pass sees exactly `rows` views, in blocks of `block` consecutive views of one input (None: one block). A view
    is therefore always in the same row of its block, and since blocks do not change each other's scores (`probe`), order,
    resume, neighbours and `in_flight` (how many shapes are made before they vote) change nothing. `levels`: of the inputs'
    grid, None for floats. `compiled`: whether torch.compile made one program of network and vote (on a GPU, of the noise too);
    "tuned" if kernels were timed first. (On a GPU, noise in whole numbers is compiled anyway in long runs; it has the same bits.)
    """

    network: Network
    smoothing: Smoothing
    num_classes: int
    levels: int | None
    rows: int
    in_flight: int = 1
    block: int | None = None
    compiled: bool | str = False
    _programs: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.rows % self.block_size:
            raise BadInput(
                f"block={self.block} with rows={self.rows}: blocks must fill the rows, so block must divide them"
            )

    @property
    def device(self) -> torch.device:
        """The network's device."""
        return self.network.device

    @property
    def block_size(self) -> int:
        """How many consecutive views of one input make a block."""
        return self.block or self.rows

    @property
    def blocks(self) -> int:
        """How many blocks a shape has."""
        return self.rows // self.block_size

    def pending(
        self, method: SampledMethod, votes: SampledVotes, inputs: torch.Tensor, order: Sequence[int] | None = None
    ) -> Iterable[PendingInput]:
        """The inputs [m, ...] that still need votes, in the order in which they are voted on; streamed ones one by one."""
        left = set(method.pending(votes))
        found = (
            PendingInput(votes.index[p], inputs[p], votes.label(p), votes.kept(p))
            for p in (range(len(inputs)) if order is None else order)
            if p in left
        )
        return list(found) if isinstance(inputs, torch.Tensor) else found

    def run(
        self,
        pending: Iterable[PendingInput],
        method: SampledMethod,
        seed: Seed | None,
        *,
        on_votes: Callable[[int], None] | None = None,
        deadline: float | None = None,
    ) -> Iterator[tuple[int, Tally, bool]]:
        """Yield every tally that inputs still need, as it is reached: its input's key, the tally, and whether it is the last.

        Which inputs are passed, in which order, and how many votes they already have changes no tally.
        """
        assert seed is not None
        works = (Work(one.number, one.x, method.requests(one.label, one.kept)) for one in pending)
        scheduler = Scheduler(self, seed, together=method.endless, on_votes=on_votes, deadline=deadline)
        return ((tally.input, tally, last) for tally, last in scheduler.run(works))

    def cast(
        self,
        x: torch.Tensor,
        stream: Stream,
        looks: Sequence[int],
        after: int = 0,
        on_votes: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield (look, counts [num_classes]) at each look, counting the views after..look-1 of one input `x` [...].

        `looks` ascend and lie above `after`. `on_votes` is called with the number of votes as they are counted.
        """
        work = Work(stream.input, x, counts_at(stream.stage, looks, after))
        for tally, _ in Scheduler(self, stream.seed, on_votes=on_votes).run([work]):
            yield tally.votes, tally.counts

    def made(self, blocks: Sequence[ViewBlock]) -> Made:
        """The views of up to `self.blocks` blocks, a shape of them; the last block is repeated where there are fewer."""
        full = [*blocks, *[blocks[-1]] * (self.blocks - len(blocks))]
        pictures = full[0].x[None] if len(full) == 1 else torch.stack([block.x for block in full])
        with torch.inference_mode(), self.network.making_views():
            made = self._made(pictures, [block.stream for block in full], [block.start for block in full])
        if self.network.stochastic is None:
            return made
        assert isinstance(made, torch.Tensor)
        return SeededViews(made, full[0].stream.generator_seed(full[0].start))

    def _made(self, pictures: torch.Tensor, streams: Sequence[Stream], starts: Sequence[int]) -> Made:
        if self.device.type != "cpu" or self._fuses:
            program = self._program_for(pictures)
            if program is not None:
                at = sent(addresses(streams, starts), self.device)
                arguments = sent(pictures, self.device), at, self._keys(streams)
                return (program, *arguments) if self._fuses else program(*arguments)
        per_view = self.smoothing.words(pictures.shape[1:], self.levels)
        words = words_of(streams, starts, self.block_size, per_view, self.device)
        return self.views(sent(pictures, self.device), words)

    def views(self, pictures: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Views of pictures [blocks, ...], `block_size` of each, in the network's type and layout."""
        if len(pictures) > 1:
            spread = (len(pictures), self.block_size, *pictures.shape[1:])
            pictures = pictures[:, None].expand(spread).flatten(0, 1)
        return self.network.laid_out(self.smoothing.views(pictures, words, self.levels))

    def answer(self, made: Made) -> Answer:
        """Run the base classifier on one shape."""
        with torch.inference_mode(), in_precision(self.network.precision, self.device):
            if isinstance(made, SeededViews):
                with seeded_generators(made.seed):
                    return Answer.of(*self.votes_and_scores(made.views))
            if isinstance(made, torch.Tensor):
                program = (
                    self._cached("network", lambda: compiled(self.votes_and_scores, how=self.compiled))
                    if self.compiled
                    else self.votes_and_scores
                )
                return Answer.of(*program(made))
            program, *arguments = made
            return Answer.of(*program(*arguments))

    def votes_and_scores(self, views: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Votes [rows] and scores [rows, classes] of views."""
        scores = self.network.scores(views, self.num_classes)
        return votes_of(scores).int(), scores

    def probe(self, inputs: torch.Tensor, rows_must_agree: bool = False, again: bool = False) -> bool:
        """Check on views of `inputs` [m, ...], with noise that no run uses, that the base classifier judges each by itself;
        returns whether it does so in every row alike, which `rows_must_agree` and shared shapes need.

        Once for a sampler, unless `again`.
        """
        if again or "rows agree" not in self._programs:
            self._programs["rows agree"] = self._rows_agree(inputs)
        agree: bool = self._programs["rows agree"]
        if not agree and (rows_must_agree or self.blocks > 1):
            raise RowsDiffer(
                f"at {self.rows} rows the model's scores depend on the row a view is in, by the rounding of its arithmetic: "
                "votes that stop early, and inputs that share a shape, need rows that agree. Give another shape (rows=, --rows), "
                f"or a fixed number of votes with block={self.rows} (stop=fixed, --block {self.rows})"
            )
        return agree

    def _rows_agree(self, inputs: torch.Tensor) -> bool:
        if self.network.stochastic is not None:
            self._check_random_model(inputs)
            return True
        blocks = self.probe_blocks(inputs, range(2 * self.blocks))
        pair = [self._eager_views(blocks[: self.blocks]), self._eager_views(blocks[self.blocks :])]
        views = with_extremes(torch.cat(pair))
        earlier = kept_for(inputs, self.network.prepared, self._programs.setdefault("probed", {}))

        def by_row(order: torch.Tensor) -> torch.Tensor:
            some = self.network.laid_out(views[order.to(views.device)])
            if not self._fuses:
                return self.answer(some).scores
            with torch.inference_mode(), in_precision(self.network.precision, self.device):
                return self.network.scores(some, self.num_classes)

        most = LEAST_REPEATS if self._fuses else 20
        agree = check_independence(by_row, self.rows, self.network.model, refuse_nan, most, earlier, further=2)
        return agree & self._fused_rows_agree(blocks, earlier.setdefault("fused", {})) if self._fuses else agree

    def _fused_rows_agree(self, blocks: Sequence[ViewBlock], earlier: dict[Any, Any]) -> bool:
        """The same of the fused program, which votes: blocks change places, and views move by a row."""

        def by_block(order: torch.Tensor) -> torch.Tensor:
            return self.answer(self.made([blocks[i] for i in order.tolist()])).scores

        agree = check_independence(by_block, self.blocks, self.network.model, refuse_nan, earlier=earlier)
        shifted = [replace(block, start=block.start + 1) for block in blocks[: self.blocks]]
        here, there = (
            self.answer(self.made(some)).scores.clone().view(self.blocks, self.block_size, -1)
            for some in (blocks[: self.blocks], shifted)
        )
        return agree & torch.equal(here[:, 1:], there[:, :-1])

    def _check_random_model(self, inputs: torch.Tensor) -> None:
        """Refuse NaN, and calls whose rows do not vote independently though they are declared to."""
        (block,) = self.probe_blocks(inputs, range(1))
        views, seeds = self._eager_views([block]), range(_DISPERSION_CALLS if self.rows > 1 else 1)
        answers = [self.answer(SeededViews(views, secrets.randbits(32))) for _ in seeds]
        refuse_nan(answers[0].scores)
        if self.rows > 1:
            check_dispersion(np.stack([answer.votes() for answer in answers]), self.num_classes)

    def _eager_views(self, blocks: Sequence[ViewBlock]) -> torch.Tensor:
        """The views of one shape, not compiled."""
        pictures = torch.stack([block.x for block in blocks])
        streams, starts = [block.stream for block in blocks], [block.start for block in blocks]
        per_view = self.smoothing.words(pictures.shape[1:], self.levels)
        with torch.inference_mode(), self.network.making_views():
            return self.views(
                sent(pictures, self.device), words_of(streams, starts, self.block_size, per_view, self.device)
            )

    def probe_blocks(self, inputs: torch.Tensor, numbers: Iterable[int]) -> list[ViewBlock]:
        """Blocks of uncounted views, of inputs [m, ...] in turn."""
        zero = Seed.of(0)
        return [ViewBlock(inputs[i % len(inputs)], Stream(zero, "probe", i), i * self.block_size) for i in numbers]

    def probe_entries(self, inputs: torch.Tensor) -> tuple[str, str, str]:
        """The manifest's entries about one shape of probe views: a changed model, or changed noise, changes them."""
        blocks = self.probe_blocks(inputs, range(self.blocks))
        return probe_entries(self._eager_views(blocks), self.answer(self.made(blocks)).scores)

    def probe_scores(self, inputs: torch.Tensor) -> Iterator[torch.Tensor]:
        """Scores [rows, classes] of probe views of all inputs [m, ...], one shape after the other."""
        for first in range(0, max(len(inputs), self.blocks), self.blocks):
            blocks = self.probe_blocks(inputs, range(first, first + self.blocks))
            yield self.answer(self.made(blocks)).scores

    @property
    def _fuses(self) -> bool:
        """Whether noise and network are one program; not on the CPU, where NumPy makes the noise faster."""
        makes = getattr(self.network.runner, "makes", None)
        return makes(self.smoothing, self.levels) if makes else bool(self.compiled) and self.device.type != "cpu"

    def _program_for(self, pictures: torch.Tensor) -> Program | None:
        """The program compiled for such pictures: noise and network, or only the noise once enough of it has been made."""
        key = (pictures.shape[1:], pictures.dtype)
        if self._fuses:
            return self._cached(key, lambda: fused(self, pictures))
        made = self._programs.get("numbers", 0)
        self._programs["numbers"] = made + self.rows * pictures[0].numel()
        return self._cached(key, lambda: noise(self, pictures)) if made >= PLAIN else None

    def _cached(self, key: object, build: Callable[[], Any]) -> Any:
        return self._programs[key] if key in self._programs else self._programs.setdefault(key, build())

    def _keys(self, streams: Sequence[Stream]) -> torch.Tensor:
        """The keys of the streams' seeds; the last are kept."""
        seeds = [stream.seed for stream in streams]
        if self._programs.get("seeds") != seeds:
            self._programs.update(seeds=seeds, keys=keys_of(streams, self.device))
        return self._programs["keys"]


def make_sampler(
    network: Network,
    smoothing: Smoothing,
    method: Method,
    inputs: Inputs,
    *,
    rows: int | None,
    block: int | None,
    in_flight: int | None,
    compile: bool | str,
) -> Sampler:
    """The sampler for these inputs; `rows`, `block` and `in_flight` are chosen by size where they are None.

    Where inputs share shapes on a GPU, rows are as many as fit into its free memory. With `compile` the sampler is compiled and
    tried; if that fails, a warning is given and the sampler is not compiled.
    """
    shape, device = inputs.values.shape[1:], network.device
    if network.stochastic is not None:
        if compile:
            raise BadInput(
                "compile with a random base classifier: a compiled program draws otherwise; leave compile out"
            )
        rows = block = 1 if network.stochastic == "views" else rows or choose_rows(shape, device)
    check_at_least_one("block", block, "a block needs one view or more")
    first = ViewBlock(inputs.values[0], Stream(Seed.of(0), "probe", 0), 0)

    def sampler(rows: int, block: int | None = None, compiled: bool | str = False) -> Sampler:
        ahead = in_flight or choose_in_flight(rows * shape.numel(), device)
        return Sampler(network, smoothing, method.num_classes, inputs.levels, rows, ahead, block, compiled)

    def trial(some: Sampler) -> None:
        some.answer(some.made([first])).votes()

    if rows is None and method.shares_shapes and device.type == "cuda":
        rows = fitting_rows(lambda count: trial(sampler(count)), smoothing.view_shape(shape).numel(), device)
    rows = rows or choose_rows(shape, device)
    if block is None:
        block = choose_block(rows) if method.shares_shapes else rows
    plain = sampler(rows, None if block == rows else block)
    if not compile or network.runner is not None:
        return plain
    fast = sampler(rows, plain.block, compile)
    try:
        trial(fast)
    except torch.cuda.OutOfMemoryError:
        raise ran_out(plain, first) from None
    except VaubanError:
        raise
    except Exception as problem:
        warn_not_compiled(problem)
        return plain
    return fast
