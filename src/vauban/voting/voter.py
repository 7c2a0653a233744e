"""Casts votes: views made, classified and voted on in shapes of a fixed size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.errors import BadInput
from vauban.seed import Seed
from vauban.smoothing.base import Smoothing
from vauban.smoothing.random import Stream, addresses, round_keys, words_of
from vauban.voting.alone import judged_alone
from vauban.voting.compiled import Program, compiled, fused, noise
from vauban.voting.inquiry import counted_at
from vauban.voting.poll import Place, Poll
from vauban.voting.precision import dtype_of, in_precision
from vauban.voting.scores import Model, not_comparable, scores_of, votes_of

Made = torch.Tensor | tuple[Program, torch.Tensor, torch.Tensor, torch.Tensor]

_PLAIN = 2**31  # numbers of views made one operation at a time on a GPU, before compiling that is worth while


@dataclass(frozen=True)
class Answer:
    """Votes [rows] and scores [rows, classes] of one shape, on the device; the votes are on their way to the host."""

    scores: torch.Tensor
    _votes: torch.Tensor
    _there: torch.cuda.Event | None

    @classmethod
    def of(cls, votes: torch.Tensor, scores: torch.Tensor) -> Answer:
        if votes.device.type != "cuda":
            return cls(scores, votes, None)
        host = torch.empty(votes.shape, dtype=votes.dtype, pin_memory=True)
        host.copy_(votes, non_blocking=True)
        there = torch.cuda.Event()
        there.record()
        return cls(scores, host, there)

    def votes(self) -> NDArray[np.integer]:
        """The votes [rows], waited for if need be."""
        if self._there is not None:
            self._there.synchronize()
        return self._votes.numpy()


@dataclass(frozen=True)
class Voter:
    """A base classifier, and the shape in which it is asked.

    Every forward pass sees exactly `rows` views, in places of `block` consecutive views of one input (None: one place). A view
    therefore always stands in the same row of a place, and where places do not matter (`probe`), order, resume, neighbours
    and `in_flight` (how many shapes are made before they vote) change nothing. `precision`: in which arithmetic the network
    answers; `model` has been cast to it. `compiled`: whether torch.compile made one program of network and vote, and of the
    noise too where that is not on the CPU; "tuned" if kernels were timed first. (On a GPU much noise of whole numbers is
    compiled anyway; it has the same bits.)
    """

    model: Model
    smoothing: Smoothing
    num_classes: int
    rows: int
    device: torch.device
    in_flight: int = 1
    channels_last: bool = False
    block: int | None = None
    precision: str = "fp32"
    compiled: bool | str = False
    _programs: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.rows % self.block_size:
            raise BadInput(
                f"block={self.block} with rows={self.rows}: blocks must fill the rows, so block must divide them"
            )

    @property
    def block_size(self) -> int:
        """How many consecutive views of one input stand together."""
        return self.block or self.rows

    @property
    def places(self) -> int:
        """How many blocks a shape has."""
        return self.rows // self.block_size

    def made(self, places: Sequence[Place], levels: int | None) -> Made:
        """The views of up to `self.places` places, a shape of them; the last place is repeated where there are fewer."""
        full = [*places, *[places[-1]] * (self.places - len(places))]
        pictures = full[0].x[None] if len(full) == 1 else torch.stack([place.x for place in full])
        with torch.inference_mode():
            return self._made(pictures, [place.stream for place in full], [place.start for place in full], levels)

    def _made(
        self, pictures: torch.Tensor, streams: Sequence[Stream], starts: Sequence[int], levels: int | None
    ) -> Made:
        if self.device.type != "cpu" or self._fuses:
            program = self._program_for(pictures, levels)
            if program is not None:
                sent = self._sent(pictures), self._sent(addresses(streams, starts)), self._keys(streams[0].seed)
                return (program, *sent) if self._fuses else program(*sent)
        per_view = self.smoothing.words(pictures.shape[1:], levels)
        words = words_of(streams, starts, self.block_size, per_view, self.device)
        return self.views(self._sent(pictures), words, levels)

    def answer(self, made: Made) -> Answer:
        """Ask the base classifier about one shape."""
        with torch.inference_mode(), in_precision(self.precision, self.device):
            if isinstance(made, torch.Tensor):
                program = (
                    self._kept("network", lambda: compiled(self.answered, how=self.compiled))
                    if self.compiled
                    else self.answered
                )
                return Answer.of(*program(made))
            program, *arguments = made
            return Answer.of(*program(*arguments))

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

        `looks` ascend and lie above `after`. `tick` is told of votes as they are counted.
        """
        poll = Poll(self, levels, stream.seed, tick=tick)
        for counted in poll.run([(stream.input, x, counted_at(stream.stage, looks, after))]):
            yield counted.votes, counted.counts

    def probe(self, inputs: torch.Tensor, levels: int | None) -> None:
        """Ask the model about `inputs` [m, ...], with noise that no run uses, so that one that answers wrongly is found before
        a run begins; and where several blocks share a shape, whether they do so without changing each other's scores."""
        places = [
            Place(inputs[i % len(inputs)], Stream(Seed.of(0), "probe", i), i * self.block_size)
            for i in range(self.places)
        ]
        first = self.answer(self.made(places, levels)).votes()
        if (first == self.num_classes).any():
            raise not_comparable(int((first == self.num_classes).sum()))
        if self.places > 1:
            judged_alone(
                lambda order: self.answer(self.made([places[i] for i in order.tolist()], levels)).scores,
                self.places,
                why="inputs that share a shape need",
                advice=f"at {self.rows} rows the model's scores depend on the row a view is in, by the rounding of its "
                f"arithmetic: inputs cannot share a shape then; give another one (rows=, --rows), or one input a shape "
                f"(block={self.rows}, --block {self.rows})",
            )

    def views(self, pictures: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        """Views of pictures [places, ...], `block` of each, as the network takes them."""
        if len(pictures) > 1:
            spread = (len(pictures), self.block_size, *pictures.shape[1:])
            pictures = pictures[:, None].expand(spread).flatten(0, 1)
        views = self.smoothing.views(pictures, words, levels).to(dtype_of(self.precision))
        return views.contiguous(memory_format=torch.channels_last) if self.channels_last else views

    @property
    def _fuses(self) -> bool:
        """Whether noise and network are one program; on the CPU NumPy makes the noise, faster."""
        return bool(self.compiled) and self.device.type != "cpu"

    def answered(self, views: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Votes [rows] and scores [rows, classes] of views."""
        scores = scores_of(self.model, views, self.num_classes)
        return votes_of(scores).int(), scores

    def _program_for(self, pictures: torch.Tensor, levels: int | None) -> Program | None:
        """What is compiled for such pictures: everything, or the noise once there is enough of it to be worth while."""
        key = (pictures.shape[1:], pictures.dtype, levels)
        if self._fuses:
            return self._kept(key, lambda: fused(self, pictures, levels))
        made = self._programs.get("numbers", 0)
        self._programs["numbers"] = made + self.rows * pictures[0].numel()
        return self._kept(key, lambda: noise(self, pictures, levels)) if made >= _PLAIN else None

    def _kept(self, key: object, build: Callable[[], Any]) -> Any:
        if key not in self._programs:
            self._programs[key] = build()
        return self._programs[key]

    def _keys(self, seed: Seed) -> torch.Tensor:
        return self._kept(seed, lambda: round_keys(seed, self.device))

    def _sent(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor on the device, without waiting for it."""
        return tensor.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else tensor
