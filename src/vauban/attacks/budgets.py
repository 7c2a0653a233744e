"""What an attack may cost, and what is left of it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vauban.errors import BadInput


@dataclass(frozen=True)
class Budget:
    """How much an attack may cost: views, or seconds. Inputs share it; with `whole` each takes what it needs while it lasts, and
    as many as this number are attacked at first (True: one)."""

    views: float = math.inf
    seconds: float = math.inf
    whole: bool | int = False

    @classmethod
    def of(cls, given: Budget | str | int | float | None) -> Budget:
        """Read "60s", "5min", "2h", or a number of views; None is no limit.

        >>> Budget.of("5min"), Budget.of("2000000").views
        (Budget(views=inf, seconds=300.0, whole=False), 2000000.0)
        """
        if given is None or isinstance(given, Budget):
            return given or cls()
        text = str(given).replace("_", "").strip()
        for unit, seconds in (("min", 60), ("h", 3600), ("s", 1)):
            if text.endswith(unit):
                return cls(seconds=seconds * _above_zero(text, text.removesuffix(unit)))
        return cls(views=_above_zero(text, text))


def _above_zero(text: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise BadInput(f"budget {text}: a time (60s, 5min, 2h) or a number of views (2000000) above zero is needed")
    return value


class Allowance:
    """Counts the views that searches make, and stops a search at a limit.

    `views`: how many were made. `stopped`: whether a search was stopped since this was last set to False.
    """

    def __init__(self) -> None:
        self.views, self.stopped = 0, False
        self._view_limit, self._deadline = math.inf, math.inf

    def allow(self, views: float = math.inf, seconds: float = math.inf) -> None:
        """Let `steps` go on for this many more views and seconds."""
        self._view_limit, self._deadline = self.views + views, time.monotonic() + seconds

    @property
    def exhausted(self) -> bool:
        """Whether the budget that `allow` gave is spent. A search that reads True here ends, and is recorded as stopped."""
        spent = self.views >= self._view_limit or time.monotonic() >= self._deadline
        self.stopped |= spent
        return spent

    def steps(self, count: int) -> Iterator[int]:
        """0, 1, …, count - 1, ending where the budget is spent."""
        for step in range(count):
            if self.exhausted:
                return
            yield step


class Meter:
    """What is left of a budget on a target, whose views count."""

    def __init__(self, target: Allowance, budget: Budget):
        self._target, self._budget = target, budget
        self._first, self._began = target.views, time.monotonic()
        self._size, self._costs = 0, (0.0, 0.0)

    @property
    def spent(self) -> bool:
        """Whether nothing is left."""
        return min(self._left()) <= 0

    @property
    def cut_short(self) -> bool:
        """Whether the budget stopped an attack on the inputs that were timed last. An attack whose last step spent what was left
        was not stopped."""
        return self._target.stopped

    def fitting(self, count: int) -> int:
        """How many of `count` inputs to attack at once: all; of a `whole` budget at first so many, then at most twice as many
        as before, and no more than would fit into what is left at 1.25 times what an input took so far."""
        if not self._budget.whole:
            return count
        if not self._size:
            return min(count, int(self._budget.whole))
        room = [left / (1.25 * cost) for left, cost in zip(self._left(), self._costs, strict=True) if cost]
        return int(min(count, 2 * self._size, *room))

    @contextmanager
    def timing(self, size: int) -> Iterator[None]:
        """Remember what the `size` inputs that are attacked inside cost, and whether an attack on them was cut short."""
        before, self._target.stopped = self._used(), False
        yield
        self._size = size
        views, seconds = self._used()
        self._costs = (views - before[0]) / size, (seconds - before[1]) / size

    def share(self, part: float) -> None:
        """Let the target go on for a part of what is left; of a `whole` budget, for all of it."""
        views, seconds = self._left()
        part = 1.0 if self._budget.whole else part
        self._target.allow(part * views, part * seconds)

    def _used(self) -> tuple[float, float]:
        return self._target.views - self._first, time.monotonic() - self._began

    def _left(self) -> tuple[float, float]:
        views, seconds = self._used()
        return self._budget.views - views, self._budget.seconds - seconds
