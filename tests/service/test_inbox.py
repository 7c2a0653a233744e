"""A request is woken for what its caller is told, and not for every count."""

import asyncio

import numpy as np

from vauban.service.growing import Inbox
from vauban.votes import Tally


def counted(votes: int, stage: str = "count") -> tuple[int, Tally, bool]:
    return 0, Tally(0, stage, votes, np.array([votes, 0])), False


async def _woken(*items: object, votes: int) -> tuple[bool, int]:
    """Whether a request that waits for so many votes is woken by these items, and how many items it then gets."""
    inbox = Inbox()
    waiting = asyncio.ensure_future(inbox.take(60.0, votes))
    await asyncio.sleep(0)
    for item in items:
        inbox.tell(item)  # type: ignore[arg-type]
    for _ in range(10):
        await asyncio.sleep(0)
    woken = waiting.done()
    waiting.cancel()
    return woken, len(waiting.result()) if woken else 0


def test_counts_below_what_is_waited_for_wake_nobody_and_are_not_lost() -> None:
    assert asyncio.run(_woken(counted(20, "choose"), counted(10), counted(20), votes=30)) == (False, 0)
    assert asyncio.run(_woken(counted(10), counted(20), counted(30), votes=30)) == (True, 3)


def test_an_end_or_a_failure_wakes_at_once() -> None:
    assert asyncio.run(_woken(counted(10), None, votes=30)) == (True, 2)
    assert asyncio.run(_woken(ValueError("failed"), votes=30)) == (True, 1)


def test_counts_that_came_before_are_taken_without_waiting() -> None:
    async def late() -> int:
        inbox = Inbox()
        inbox.tell(counted(40))
        return len(await inbox.take(60.0, 30))

    assert asyncio.run(late()) == 1


def test_after_its_time_a_request_gets_the_counts_so_far() -> None:
    async def short() -> int:
        inbox = Inbox()
        inbox.tell(counted(10))
        return len(await inbox.take(0.0, 30))

    assert asyncio.run(short()) == 1
