"""The compute shape is chosen once, by size and by what fits."""

from collections.abc import Callable

import pytest
import torch

from vauban.engine import device_memory
from vauban.engine.device_memory import fitting_rows, largest_that_fits
from vauban.engine.sampler import Sampler, choose_block
from vauban.errors import OutOfMemory
from vauban.inputs import prepare
from vauban.methods import CertifySettings, method_for
from vauban.smoothed import SmoothedClassifier

INPUTS = prepare(torch.zeros(2, 8, dtype=torch.uint8))


def limited(most: int, calls: list[int]) -> Callable[[int], None]:
    def trial(rows: int) -> None:
        calls.append(rows)
        if rows > most:
            raise torch.cuda.OutOfMemoryError("too much")

    return trial


def test_the_largest_that_fits() -> None:
    for most, found in ((0, 0), (1, 1), (99, 50), (5_000, 4_000)):
        assert largest_that_fits(limited(most, []), [1, 2, 50, 1_000, 4_000]) == found


@pytest.mark.parametrize(
    ("numbers", "most", "per_row", "free", "found"),
    [
        (3_072, 10**6, 10, 10**6, 4_000),
        (3_072, 10**6, 1_000, 10**6, 500),  # 80 % of a million
        (150_528, 10**6, 1, 10**6, 1_000),
        (3_072, 1_500, 1, 10**6, 1_000),
        (3_072, 30, 1, 10**6, 20),
    ],
)
def test_rows_fit_into_free_memory(
    monkeypatch: pytest.MonkeyPatch, numbers: int, most: int, per_row: int, free: int, found: int
) -> None:
    calls: list[int] = []
    fitted = [0]

    def trial(rows: int) -> None:
        limited(most, calls)(rows)
        fitted[0] = max(fitted[0], rows)

    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, free))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 7)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 7 + per_row * fitted[0])
    assert fitting_rows(trial, numbers, torch.device("cpu")) == found
    if most == 10**6:
        assert len(calls) == 2
    monkeypatch.setattr(device_memory, "largest_that_fits", lambda *_: 0)
    with pytest.raises(OutOfMemory, match="not even one view"):
        fitting_rows(trial, numbers, torch.device("cpu"))


def test_blocks_are_about_a_hundred_and_divide_the_rows() -> None:
    for rows in (1, 7, 50, 100, 250, 1_000, 1_024, 4_000, 4_096, 101):
        assert rows % choose_block(rows) == 0
    assert choose_block(4_000) == 100


def test_a_fixed_number_of_votes_keeps_one_input_a_shape(half_spaces: Callable) -> None:
    smoothed = SmoothedClassifier(half_spaces, "gaussian:sigma=0.25", num_classes=3, rows=1_000)
    law = smoothed.smoothing.law

    def sampler(stop: str) -> Sampler:
        settings = CertifySettings.of(law, 3, n=1_000, stop=stop)
        made: Sampler = smoothed.sampler(INPUTS, method_for(settings, law, 3, (8,)))
        return made

    alone, shared = sampler("fixed"), sampler("target:radius=0.1")
    assert (alone.blocks, shared.blocks, shared.block_size) == (1, 10, 100)
    assert sampler("grid:step=0.1") is shared
    smoothed.block = 100
    assert sampler("fixed").block_size == 100
