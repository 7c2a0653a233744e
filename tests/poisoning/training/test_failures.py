"""Failures: those of a part count if they repeat, those of the machine stop everything."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from vauban.errors import BadInput, NotRepeated
from vauban.poisoning.training.failures import Failure, about_the_machine, attempt


def raising(*problems: BaseException | None) -> Callable[[], str]:
    """Work that raises these one after another, and returns where there is None."""
    calls = iter(problems)

    def work() -> str:
        problem = next(calls)
        if problem is not None:
            raise problem
        return "done"

    return work


def test_a_failure_counts_if_it_repeats() -> None:
    assert attempt(raising(None)) == "done"
    assert attempt(raising(ValueError("too few"), KeyError("other"))) == Failure("ValueError: too few")
    with pytest.raises(NotRepeated, match=r"too few.*not when it was tried again"):
        attempt(raising(ValueError("too few"), None))


MACHINE = [
    MemoryError(),
    OSError("disk"),
    TimeoutError("late"),
    ConnectionError("gone"),
    ImportError("no such package"),
    RecursionError(),
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    BadInput("settings"),
    KeyboardInterrupt(),
    SystemExit(),
]


@pytest.mark.parametrize("problem", MACHINE, ids=lambda p: type(p).__name__)
def test_the_machine_stops_training(problem: BaseException) -> None:
    with pytest.raises(type(problem)):
        attempt(raising(problem, problem))
    with pytest.raises(type(problem)):
        attempt(raising(ValueError("first"), problem))


@pytest.mark.parametrize("explicit", [True, False])
def test_an_error_that_lack_of_memory_led_to_is_the_machines(explicit: bool) -> None:
    def wrapped() -> Any:
        try:
            raise MemoryError
        except MemoryError as cause:
            if explicit:
                raise ValueError("cannot fit") from cause
            raise ValueError("cannot fit")  # noqa: B904

    with pytest.raises(ValueError, match="cannot fit"):
        attempt(wrapped)
    assert not about_the_machine(ValueError("cannot fit"))


def test_an_error_that_a_caller_handles_has_nothing_to_do_with_it() -> None:
    try:
        raise FileNotFoundError("no ensemble there yet")
    except FileNotFoundError:
        assert attempt(raising(ValueError("a"), ValueError("b"))) == Failure("ValueError: a")


def test_what_is_kept_of_a_problem_can_be_written() -> None:
    failure = attempt(raising(*[ValueError("\ud800" * 9000)] * 2))
    assert isinstance(failure, Failure)
    assert failure.problem.isascii()
