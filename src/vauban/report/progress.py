"""Progress on stderr (a bar in a terminal, a line every ten seconds elsewhere) or through the caller's callback."""

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
"""Seconds before a bar appears; shorter work shows none."""

_EVERY = 10.0


@dataclass(frozen=True)
class Progress:
    """Progress of a call: `done` of `total` (None: there is no end) in `unit` "votes" or "inputs", after `seconds`."""

    done: int
    total: int | None
    unit: str
    inputs: int
    seconds: float


@contextmanager
def reporting(
    progress: bool | Callable[[Progress], None], doing: str, method: Method, votes: VoteTable, seconds: float | None
) -> Iterator[tuple[Callback | None, Callback | None]]:
    """Yields two callbacks, for votes as they are counted and for inputs as they are decided; one of them is None.

    Progress is measured in votes where their number is known or unlimited, else in inputs.
    """
    left, inputs = method.votes_left(votes), len(votes.index)
    pending = len(method.pending(votes))
    by_vote = left is not None or method.endless
    total = None if method.endless else left if by_vote else pending
    unit = "votes" if by_vote else "inputs"
    if callable(progress):
        began, done = time.monotonic(), 0

        def report(more: int) -> None:
            nonlocal done
            done += more
            progress(Progress(done, total, unit, inputs, time.monotonic() - began))

        yield (report, None) if by_vote else (None, report)
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
def bar(label: str, total: int, unit: str, quiet: bool = False, at_once: bool = False) -> Iterator[Callback]:
    """Show progress with rate and time left, once the work has taken two seconds; yields a callback for the amount of work
    done. `at_once`: show the label before any work is done, where the first part takes long."""
    if quiet or total == 0:
        yield lambda _: None
    elif sys.stderr.isatty():
        yield from _bar(label, total, unit, at_once)
    else:
        if at_once:
            print(label, file=sys.stderr, flush=True)
        yield from _lines(label, total, unit)


def _bar(label: str, total: int, unit: str, at_once: bool = False) -> Iterator[Callback]:
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
        if at_once:
            shown.extend(_start(stack, label, total, unit, 0))
        yield advance


def _rate(each_second: float) -> str:
    """A rate as text; a slow one by the minute.

    >>> _rate(1407.2), _rate(0.15), _rate(0)
    ('1,407/s', '9/min', '0/s')
    """
    return f"{each_second * 60:,.0f}/min" if 0 < each_second < 2 else f"{each_second:,.0f}/s"


def _start(stack: Any, label: str, total: int, unit: str, done: int) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(f"{task.completed:,.0f}/{task.total:,.0f} {unit}  {_rate(task.speed or 0)}")

    columns = (TextColumn("{task.description}"), BarColumn(), Rate(), TimeElapsedColumn(), TextColumn("left"))
    console = Console(stderr=True)
    rich = stack.enter_context(RichProgress(*columns, TimeRemainingColumn(), console=console, speed_estimate_period=10))
    return rich, rich.add_task(label, total=total, completed=done)


def _lines(label: str, total: int, unit: str, every: float = _EVERY) -> Iterator[Callback]:
    """Without a terminal: a line every ten seconds."""
    began = reported = time.monotonic()
    done = 0

    def advance(more: int) -> None:
        nonlocal reported, done
        done += more
        now = time.monotonic()
        if now - reported >= every:
            reported, rate = now, done / (now - began)
            left = f", {(total - done) / rate:,.0f} s left" if rate else ""
            print(f"{label}: {done:,}/{total:,} {unit}, {_rate(rate)}{left}", file=sys.stderr, flush=True)

    yield advance


@contextmanager
def counter(label: str, unit: str, quiet: bool = False, every: float = _EVERY) -> Iterator[Callback]:
    """For work without a known total: print the label once, and every ten seconds the amount and the rate."""
    began = reported = time.monotonic()
    done = 0

    def advance(more: int) -> None:
        nonlocal reported, done
        done += more
        now = time.monotonic()
        if now - reported >= every and not quiet:
            reported = now
            print(f"{done:,} {unit}, {_rate(done / (now - began))}", file=sys.stderr, flush=True)

    if not quiet:
        print(label, file=sys.stderr, flush=True)
    yield advance
