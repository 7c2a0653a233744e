"""Makes torch compute the same bits every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import TypeVar

import torch

T = TypeVar("T")


@contextmanager
def deterministic() -> Iterator[None]:
    """Allow only deterministic algorithms, in full precision; restores torch's settings afterwards.

    On a GPU this needs CUBLAS_WORKSPACE_CONFIG from the start, which importing vauban sets."""
    strict, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filling = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(strict, warn_only=warn)
        torch.utils.deterministic.fill_uninitialized_memory = filling  # type: ignore[attr-defined]
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = benchmark


@contextmanager
def thread_count(threads: int) -> Iterator[None]:
    """Let torch compute with this many threads; restores their number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_jobs(jobs: Sequence[Callable[[Event], T]], device: str) -> list[T]:
    """Run the jobs deterministically and return their results.

    On a CPU they run in as many threads as torch has, each computing with one thread, so that the number of threads changes no
    bit. The event given to a job is set when the job should stop, because another failed or was interrupted.
    """
    stop = Event()
    with deterministic():
        if torch.device(device).type != "cpu":
            return [job(stop) for job in jobs]
        threads = torch.get_num_threads()
        with thread_count(1), ThreadPoolExecutor(threads) as pool:
            try:
                return list(pool.map(lambda job: job(stop), jobs))
            except BaseException:
                stop.set()
                raise
