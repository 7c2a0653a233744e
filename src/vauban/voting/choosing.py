"""Which shape a smoothed classifier is asked in: by the size of its inputs, the free memory, and what is asked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from vauban.errors import BadInput, VaubanError
from vauban.inputs import Inputs
from vauban.seed import Seed
from vauban.smoothing.random import Stream
from vauban.voting.compiled import warn_not_compiled
from vauban.voting.memory import fitting_rows, ran_out
from vauban.voting.poll import Place
from vauban.voting.voter import Voter

if TYPE_CHECKING:
    from vauban.asking import Asking

_TOGETHER = 100


def choose_rows(shape: torch.Size, device: torch.device) -> int:
    """A compute shape that keeps the device busy and fits: fewer rows for larger inputs, a divisor of 1,000 always."""
    budget = 2**22 if device.type == "cpu" else 2**26
    most = 100 if device.type == "cpu" else 1000
    fitting = [rows for rows in (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000) if rows <= most]
    return max((rows for rows in fitting if rows * shape.numel() <= budget), default=1)


def choose_in_flight(numbers: int, device: torch.device) -> int:
    """How many shapes of so many numbers are made before they vote: up to eight on the CPU, if they are small."""
    return max(1, min(8, 2**22 // numbers)) if device.type == "cpu" else 1


def choose_block(rows: int) -> int:
    """How many views of one input stand together where inputs share a shape: the divisor of `rows` nearest to 100.

    >>> [choose_block(rows) for rows in (50, 100, 1000, 1024, 4096)]
    [50, 100, 100, 128, 128]
    """
    return min((part for part in range(1, rows + 1) if rows % part == 0), key=lambda part: abs(part - _TOGETHER))


@dataclass
class VoterMaker:
    """Makes the voters of a smoothed classifier, each once: what is compiled stays compiled."""

    _made: dict[object, Voter] = field(default_factory=dict)

    def make(self, smoothed: Asking, inputs: Inputs, share: bool, rows: int | None, block: int | None) -> Voter:
        """The voter for these inputs; `rows` and `block` as far as they are settled."""
        shape, device = inputs.values.shape[1:], smoothed.device
        if block is not None and block < 1:
            raise BadInput(f"block={block}: one view or more must stand together")
        key = (shape, inputs.levels, inputs.values.dtype, share, rows, block, smoothed.in_flight, smoothed.compile)
        if key in self._made:
            return self._made[key]
        place = Place(inputs.values[0], Stream(Seed.of(0), "probe", 0), 0)

        def voter(rows: int, block: int | None = None) -> Voter:
            in_flight = smoothed.in_flight or choose_in_flight(rows * shape.numel(), device)
            layout, precision = smoothed.channels_last, smoothed.precision
            return Voter(
                smoothed.model,
                smoothed.smoothing,
                smoothed.num_classes,
                rows,
                device,
                in_flight,
                layout,
                block,
                precision,
            )

        def trial(rows: int) -> None:
            _ask(voter(rows), place, inputs.levels)

        if rows is None:
            on_gpu = share and device.type == "cuda"
            numbers = smoothed.smoothing.view_shape(shape).numel()
            rows = fitting_rows(trial, numbers, device) if on_gpu else choose_rows(shape, device)
        if block is None:
            block = choose_block(rows) if share else rows
        made = voter(rows, None if block == rows else block)
        if smoothed.compile:
            made = _compiled(made, smoothed.compile, place, inputs.levels)
        self._made[key] = made
        for shared in (False, True):
            self._made[(*key[:3], shared, rows, block, *key[6:])] = made
        return made


def _compiled(voter: Voter, how: bool | str, place: Place, levels: int | None) -> Voter:
    """The voter with its programs compiled, or itself, with a warning, where that fails."""
    fast = replace(voter, compiled=how)
    try:
        _ask(fast, place, levels)
    except torch.cuda.OutOfMemoryError:
        raise ran_out(voter, place, levels) from None
    except VaubanError:
        raise
    except Exception as problem:
        warn_not_compiled(problem)
        return voter
    return fast


def _ask(voter: Voter, place: Place, levels: int | None) -> None:
    voter.answer(voter.made([place], levels)).votes()
