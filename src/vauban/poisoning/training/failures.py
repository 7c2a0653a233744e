"""Tells failures that are a function of a base classifier's part and number from those of the machine; imports no torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from multiprocessing import ProcessError
from subprocess import SubprocessError
from typing import TypeVar

from vauban.errors import NotRepeated, VaubanError

RULE = (
    "A base classifier scores every class 0, and so ranks them 0, 1, 2, …, if its part is empty or holds a sample with NaN or "
    "infinity or a label that is none of the classes, or if its learner fails on the part, in training or in scoring an input of "
    "zeros. It does so for one input if it fails or returns NaN on that input. A failure counts if a second attempt fails too."
)

T = TypeVar("T")

_MACHINE = (
    VaubanError,
    MemoryError,
    RecursionError,
    OSError,  # includes TimeoutError
    ImportError,
    BrokenExecutor,
    ProcessError,
    SubprocessError,
)
_MACHINE_NAMES = ("OutOfMemoryError", "AcceleratorError")  # torch's, which are RuntimeErrors
_MACHINE_WORDS = ("out of memory", "allocate memory", "not enough memory", "cuda error", "cublas", "cudnn")


@dataclass(frozen=True)
class Failure:
    """Why a base classifier cannot be trained on its part, or cannot score an input."""

    problem: str


def attempt(work: Callable[[], T]) -> T | Failure:
    """What `work` returns, or why it failed; tried twice, since only a failure that repeats can be part of a claim."""
    handled = sys.exc_info()[1]
    try:
        return work()
    except Exception as problem:
        if about_the_machine(problem, handled):
            raise
        first = describe(problem)
    try:
        work()
    except Exception as problem:
        if about_the_machine(problem, handled):
            raise
        return Failure(first)
    raise NotRepeated(
        f"a base classifier failed ({first}), and not when it was tried again: its votes are no function of its samples, so "
        "nothing can be certified; make the learner repeatable, for example by fixing its seed"
    )


def about_the_machine(problem: BaseException, handled: BaseException | None = None) -> bool:
    """Whether an error is about memory, time, files, other processes or Vauban's settings, and not about samples.

    So is an error that such an error caused, or that was raised while one was handled; but not if that was the one that a caller
    had `handled` before.
    """
    return any(
        isinstance(one, _MACHINE)
        or not isinstance(one, Exception)
        or any(kind.__name__ in _MACHINE_NAMES for kind in type(one).__mro__)
        or (isinstance(one, RuntimeError) and any(word in str(one).lower() for word in _MACHINE_WORDS))
        for one in _chain(problem, handled)
    )


def describe(problem: BaseException) -> str:
    """The type and the text of an error, in ASCII."""
    text = f"{type(problem).__name__}: {problem}"
    return text[:500].encode("ascii", "backslashreplace").decode()


def _chain(problem: BaseException, last: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that led to it, before `last`."""
    one: BaseException | None = problem
    seen: set[int] = set()
    while one is not None and one is not last and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__
