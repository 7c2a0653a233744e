"""Views of training batches: addressed words, compiled on a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count as counter
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from vauban.seed import Seed
from vauban.smoothing import Smoothing
from vauban.smoothing.grid import to_unit
from vauban.smoothing.random import STAGES, Stream, addressed_words, round_keys


@dataclass(frozen=True)
class Step:
    """The number of a step, and the same as a tensor on the device: a recorded update reads the tensor, which changes."""

    number: int
    tensor: torch.Tensor


class Words:
    """Random words of one part of a step: `words(count)` gives the next `count` views' words, int64 [count, b, per_view], as many
    as the smoothing needs for a view unless `words(count, per_view)` says otherwise.

    They depend on the seed, the step, and the picture's place `first`, `first` + 1, … in the whole batch of `total` pictures, so
    that several processes, or parts of a batch, draw what one would. `shared`: all pictures have the same words.
    """

    def __init__(self, maker: ViewMaker, step: Step, first: int, b: int, total: int, shared: bool = False):
        self._maker, self._step, self._first, self._b, self._total = maker, step, first, b, total
        self._shared, self._next = shared, counter()

    def __call__(self, count: int, per_view: int | None = None) -> torch.Tensor:
        views = [next(self._next) for _ in range(count)]
        if self._shared:
            starts, each = views, 1
        else:
            starts, each = [view * self._total + self._first for view in views], self._b
        words = self._maker.words("train", self._step, starts, each, per_view or self._maker.per_view)
        return words.view(count, each, -1).expand(count, self._b, -1)


class ViewMaker:
    """Makes words and views for one shape of pictures; on a GPU both are compiled, and made as they are where that fails."""

    def __init__(self, smoothing: Smoothing, shape: torch.Size, levels: int | None, seed: int, device: torch.device):
        self.smoothing, self.levels, self.device, self.seed = smoothing, levels, device, Seed.of(seed)
        self.per_view = smoothing.words(shape, levels)
        self._channels_last = len(smoothing.view_shape(shape)) == 3
        self._keys = round_keys(self.seed, device)
        self._programs: dict[Any, Callable[..., torch.Tensor]] = {}

    def words(self, stage: str, step: Step, starts: list[int], views: int, per_view: int) -> torch.Tensor:
        """Words of `views` views from each start, concatenated: int64 [len(starts) * views, per_view]."""
        if self.device.type == "cpu":
            stream = Stream(self.seed, stage, step.number)
            return torch.cat([stream.words(start, views, per_view, self.device) for start in starts])
        key = (stage, tuple(starts), views, per_view)
        if key not in self._programs:
            places = torch.tensor([[0, STAGES[stage], start] for start in starts]).to(self.device)
            self._programs[key] = torch.compile(_words_at(places, views, per_view), dynamic=False)
        return self._programs[key](self._keys, step.tensor)

    def __call__(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Views of pictures [b, ...] from words [count, b, per_view], view by view: float32 [count * b, ...]."""
        flat = words.reshape(-1, words.shape[-1])
        with torch.no_grad():
            if self.device.type == "cpu":
                return self._made(x, flat)
            key = ("views", x.shape, x.dtype, flat.shape)
            if key not in self._programs:
                self._programs[key] = self._compiled(x, flat)
            return self._programs[key](x, flat)

    def differentiable(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """As `Smoothing.differentiable` for pictures [b, ...] and words [count, b, per_view], with the compiled views."""
        flat = words.reshape(-1, words.shape[-1])
        levels = self.levels
        if levels is None or self.device.type == "cpu" or not self.smoothing.law.on_grid:
            return self.laid_out(self.smoothing.differentiable(_repeated(x, len(flat)), flat, levels))
        with torch.no_grad():
            steps = (x * levels).round().clamp(0, levels).to(torch.uint8)
            views, near = self(steps, words), to_unit(steps, levels)
        return self.laid_out(self.smoothing.follow(views, _repeated(x - near, len(flat)), flat))

    def _made(self, x: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
        return self.laid_out(self.smoothing.views(_repeated(x, len(flat)), flat, self.levels))

    def laid_out(self, views: torch.Tensor) -> torch.Tensor:
        """Views in the layout in which the network is trained."""
        return views.contiguous(memory_format=torch.channels_last) if self._channels_last else views

    def _compiled(self, x: torch.Tensor, flat: torch.Tensor) -> Callable[..., torch.Tensor]:
        """The compiled program; it is traced after one call, so that tables are on the device by then."""
        self._made(x, flat)
        try:
            program = torch.compile(make_fx(lambda some, words: self._made(some, words))(x, flat), dynamic=False)
            program(x, flat)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as problem:
            reason = next((line for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
            warnings.warn(f"views are made without compilation ({reason.strip()[:200]})", stacklevel=2)
            return self._made
        return program


def _words_at(places: torch.Tensor, views: int, per_view: int) -> Callable[..., torch.Tensor]:
    """The words of a step at `places` [starts, 3], whose first column is the step's."""

    def words(keys: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        at = torch.cat([step.expand(len(places), 1), places[:, 1:]], dim=1)
        return addressed_words(keys, at, views, per_view)

    return words


def _repeated(x: torch.Tensor, rows: int) -> torch.Tensor:
    return x if len(x) == rows else x.repeat(rows // len(x), *[1] * (x.dim() - 1))
