"""The number of views that fit into a GPU's memory: found before a run begins, and reported if memory runs out later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from vauban.errors import OutOfMemory

if TYPE_CHECKING:
    from vauban.engine.sampler import Sampler
    from vauban.engine.scheduler import ViewBlock

SHAPES = (100, 200, 500, 1000, 2000, 4000)
_FEW = (1, 2, 5, 10, 20, 50)
_NUMBERS = 2**28  # most numbers in one shape: larger shapes are no faster
_SHARE = 0.8  # part of the free memory that a shape may use


def fitting_rows(trial: Callable[[int], None], numbers: int, device: torch.device) -> int:
    """The most rows that fit into the free memory of a GPU, for views of `numbers` numbers each: a small trial measures the
    memory of one view, then large shapes are tried.

    `trial(rows)` casts one shape of that size, and raises torch.cuda.OutOfMemoryError if it does not fit.
    """
    candidates = [rows for rows in SHAPES if rows * numbers <= _NUMBERS] or [SHAPES[0]]
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info(device)[0]
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    small = largest_that_fits(trial, [*_FEW, candidates[0]])
    if not small:
        raise OutOfMemory(f"not even one view fits into the free memory of {device}: free some, or use another device")
    each = (torch.cuda.max_memory_allocated(device) - before) / small
    return largest_that_fits(trial, [rows for rows in candidates if rows * each <= _SHARE * free]) or small


def largest_that_fits(trial: Callable[[int], None], rows: list[int]) -> int:
    """The largest of `rows`, ascending, whose trial does not run out of memory; 0 if none."""
    for some in reversed(rows):
        try:
            trial(some)
            return some
        except torch.cuda.OutOfMemoryError:
            _free_cache()
    return 0


def ran_out(sampler: Sampler, block: ViewBlock) -> OutOfMemory:
    """The error for a shape that no longer fits, with the largest number of rows that does."""
    _free_cache()
    size = sampler.block_size

    def trial(rows: int) -> None:
        smaller = replace(sampler, rows=rows, block=min(size, rows), compiled=False)
        smaller.answer(smaller.made([block] * smaller.blocks)).votes()

    parts = [sampler.blocks // parts * size for parts in range(2, sampler.blocks + 1)]
    few = [rows for rows in (*_FEW, *SHAPES) if rows < size]
    fits = largest_that_fits(trial, sorted({*parts, *few}))
    advice = f"--rows {fits} would fit" if fits else "nothing fits"
    return OutOfMemory(
        f"the device ran out of memory at the compute shape of this run, {sampler.rows} rows; every tally so far is kept. Free "
        f"memory and run the same command again; a run's shape is fixed, so a smaller one needs a new run: {advice} now"
    )


def _free_cache() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
