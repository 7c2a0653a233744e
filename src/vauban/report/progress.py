"""Progress of long work on stderr: a bar in a terminal, a line every ten seconds elsewhere; or a function of the caller's."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vauban.methods import Method
    from vauban.votes import VoteTable

Callback = Callable[[int], None]

PATIENCE = 2.0
"""Seconds before a bar appears: what is quicker needs none."""

_EVERY = 10.0


@dataclass(frozen=True)
class Progress:
    """How far a call has come: `done` of `total` (None: there is no end) in `unit` "votes" or "inputs", in so many seconds."""

    done: int
    total: int | None
    unit: str
    inputs: int
    seconds: float


@contextmanager
def reporting(
    progress: bool | Callable[[Progress], None], doing: str, method: Method, votes: VoteTable, seconds: float | None
) -> Iterator[tuple[Callback | None, Callback | None]]:
    """Functions that are called with votes as they are counted, and with inputs as they are decided; one of them is None.

    What is measured is votes where their number is known or has no end, else inputs.
    """
    left, inputs = method.votes_left(votes), len(votes.index)
    pending = len(method.pending(votes))
    by_vote = left is not None or method.endless
    total = None if method.endless else left if by_vote else pending
    unit = "votes" if by_vote else "inputs"
    if callable(progress):
        began, done = time.monotonic(), 0

        def tell(more: int) -> None:
            nonlocal done
            done += more
            progress(Progress(done, total, unit, inputs, time.monotonic() - began))

        yield (tell, None) if by_vote else (None, tell)
        return
    label = f"{doing} {pending} inputs"
    if pending < inputs and not method.endless:
        label += f" ({inputs - pending} of {inputs} are done already)"
    if method.endless:
        until = "until Ctrl-C, which keeps what was certified" if seconds is None else f"for {seconds:g} s"
        with counter(f"{label} {until}", unit) as advance:
            yield advance, None
        return
    with bar(label, total or 0, unit) as advance:
        yield (advance, None) if by_vote else (None, advance)


@contextmanager
def bar(label: str, total: int, unit: str, quiet: bool = False) -> Iterator[Callback]:
    """Show how far work has come, with rate and time left, once it has taken two seconds; yields a function to call with the
    amount of work done."""
    if quiet or total == 0:
        yield lambda _: None
    elif sys.stderr.isatty():
        yield from _bar(label, total, unit)
    else:
        yield from _lines(label, total, unit)


def _bar(label: str, total: int, unit: str) -> Iterator[Callback]:
    from contextlib import ExitStack

    began, done = time.monotonic(), 0
    shown: list[Any] = []

    def advance(more: int) -> None:
        nonlocal done
        done += more
        if shown:
            shown[0].advance(shown[1], more)
        elif time.monotonic() - began > PATIENCE:
            shown.extend(_start(stack, label, total, unit, done))

    with ExitStack() as stack:
        yield advance


def _start(stack: Any, label: str, total: int, unit: str, done: int) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(f"{task.completed:,.0f}/{task.total:,.0f} {unit}  {task.speed or 0:,.0f}/s")

    columns = (TextColumn("{task.description}"), BarColumn(), Rate(), TimeElapsedColumn(), TextColumn("left"))
    console = Console(stderr=True)
    rich = stack.enter_context(RichProgress(*columns, TimeRemainingColumn(), console=console, speed_estimate_period=10))
    return rich, rich.add_task(label, total=total, completed=done)


def _lines(label: str, total: int, unit: str, every: float = _EVERY) -> Iterator[Callback]:
    """Without a terminal: a line every ten seconds."""
    began = told = time.monotonic()
    done = 0

    def advance(more: int) -> None:
        nonlocal told, done
        done += more
        now = time.monotonic()
        if now - told >= every:
            told, rate = now, done / (now - began)
            left = (total - done) / rate
            print(f"{label}: {done:,}/{total:,} {unit}, {rate:,.0f}/s, {left:,.0f} s left", file=sys.stderr, flush=True)

    yield advance


@contextmanager
def counter(label: str, unit: str, quiet: bool = False, every: float = _EVERY) -> Iterator[Callback]:
    """Where nobody knows how much there is to do: say what is being done, and every ten seconds how far it is."""
    began = told = time.monotonic()
    done = 0

    def advance(more: int) -> None:
        nonlocal told, done
        done += more
        now = time.monotonic()
        if now - told >= every and not quiet:
            told = now
            print(f"{done:,} {unit}, {done / (now - began):,.0f}/s", file=sys.stderr, flush=True)

    if not quiet:
        print(label, file=sys.stderr, flush=True)
    yield advance
