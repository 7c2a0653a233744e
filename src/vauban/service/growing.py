"""Certifies one input while its radius grows: what a request is told at every look, and the sealed record at the end."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Any

import numpy as np

from vauban.certificates import Certificates
from vauban.errors import Incomplete, VaubanError
from vauban.report.numbers import radius_text
from vauban.service.lanes import Item, Ticket
from vauban.service.served import Asked, Served, record_files
from vauban.service.voting import SharedVoting
from vauban.stopping.anytime import AnytimeRule
from vauban.votes import Tally

LOG = logging.getLogger("vauban.service")

Event = tuple[str, dict[str, Any]]

_GROWTH = 1.5  # how many times more votes a new radius needs
_PAUSE = 0.1  # seconds between two events at least


class Inbox:
    """Items that the voting thread tells, for a coroutine that waits for them.

    The coroutine is woken for counts of at least as many votes as it waits for, for the end of a job, and for what is no count:
    waking it costs as much as a vote or more, and most counts change nothing that a caller is told.
    """

    def __init__(self) -> None:
        self._loop, self._fresh = asyncio.get_running_loop(), asyncio.Event()
        self._items: deque[Item | Exception | None] = deque()
        self._votes = 0

    def tell(self, item: Item | Exception | None) -> None:
        """Called in a thread that votes."""
        self._items.append(item)
        if not self._due(item):
            return
        try:
            self._loop.call_soon_threadsafe(self._fresh.set)
        except RuntimeError:  # the loop has ended, and with it whoever waited
            return

    def _due(self, item: Item | Exception | None) -> bool:
        if not isinstance(item, tuple) or not isinstance(item[1], Tally):
            return True
        return item[1].stage == "count" and item[1].votes >= self._votes

    async def take(self, seconds: float, votes: int = 0) -> list[Item | Exception | None]:
        """All items that came, after waiting at most so long for the count of so many votes, or for the end."""
        self._votes = votes
        try:
            if not any(self._due(item) for item in self._items.copy()):
                async with asyncio.timeout(max(0.0, seconds)):
                    await self._fresh.wait()
        except TimeoutError:
            pass
        self._fresh.clear()
        found = []
        while self._items:
            found.append(self._items.popleft())
        return found


class Growing:
    """The radius of one input, look by look. `text` of a radius is rounded down, as claims are written."""

    def __init__(self, asked: Asked):
        self.asked = asked
        self.lower, self.votes, self.radius, self._shown = 0.0, 0, math.nan, 1
        self.counts: list[int] = [0] * asked.method.num_classes

    def add(self, records: list[Any]) -> None:
        """Count records."""
        for record in records:
            self.asked.votes.add(record)
            if self.asked.secret is None:
                self._add_ballots(record)
            elif record.stage == "count":
                self.counts, self.votes = record.counts.tolist(), record.votes

    def _add_ballots(self, piece: Any) -> None:
        table = piece.votes
        new = table.sum(axis=0) if table.ndim == 2 else np.bincount(table, minlength=len(self.counts))
        self.counts = (np.array(self.counts) + new[: len(self.counts)]).tolist()
        self.votes += len(table)

    @property
    def next_votes(self) -> int:
        """How many votes a new radius needs: half as many again, since telling it costs as much as many votes."""
        return math.ceil(self._shown * _GROWTH)

    def look(self) -> None:
        """Compute the radius of the last look; bounds of all looks hold at once, so the largest so far is used."""
        self._shown = self.votes
        if self.asked.secret is None or not self.votes:
            return
        rule = self.asked.method.rule  # type: ignore[attr-defined]
        assert isinstance(rule, AnytimeRule)
        assert self.asked.label is not None
        lower = _bound(rule, self.counts[self.asked.label], self.votes)
        if lower > self.lower:
            self.lower, self.radius = lower, _radius(rule, lower)

    @property
    def text(self) -> str | None:
        """The radius so far; None where nothing is certified."""
        return None if math.isnan(self.radius) else radius_text(self.radius, self.asked.method.law.threat)


@lru_cache(10_000)
def _bound(rule: AnytimeRule, wins: int, votes: int) -> float:
    """The lower bound of the label's probability from one look; the same looks come again and again."""
    return float(rule.lower_bound([wins], votes)[0])


@lru_cache(10_000)
def _radius(rule: AnytimeRule, lower: float) -> float:
    """The radius of a lower bound."""
    return float(rule.radius(np.array([lower]))[0])


async def certify_events(
    served: Served,
    voting: SharedVoting,
    asked: Asked,
    *,
    seconds: float,
    votes: int | None,
    radius: float | None,
    views: int,
) -> AsyncIterator[Event]:
    """What a request to certify is told: accepted, views, radius, …, and done with the sealed record, or error.

    Voting ends after `seconds`, at the last look within `votes`, once `radius` is certified, when no larger one can be, or when
    the caller leaves: under the anytime rule the claim holds whenever that is. An exact claim needs all its views.
    """
    began = time.monotonic()
    growing, inbox = Growing(asked), Inbox()
    ticket = Ticket(asked.job(served), inbox.tell, most=votes)
    try:
        yield "accepted", _accepted(asked)
        if views:
            shown = await asyncio.wrap_future(voting.call(lambda: served.shown_views(asked, views)))
            yield "views", {"views": shown[0].tolist(), "votes": shown[1]}
        going = time.monotonic() - began < seconds
        if going:
            voting.submit(ticket)
        while going:
            items = await inbox.take(began + seconds - time.monotonic(), growing.next_votes)
            for item in items:
                if isinstance(item, Exception):
                    raise item
            growing.add([item[1] for item in items if isinstance(item, tuple)])
            going = None not in items and time.monotonic() - began < seconds
            if growing.votes >= growing.next_votes or (not going and growing.votes):
                growing.look()
                yield "radius", _state(growing, began)
            going = going and not (radius is not None and growing.radius >= radius)
            if going and growing.text is not None:
                await asyncio.sleep(_PAUSE)
        voting.cancel(ticket)
        yield "done", await _done(served, voting, growing, began)
    except VaubanError as problem:
        yield "error", {"detail": str(problem)}
    except Exception as problem:
        LOG.exception("a request to certify")
        yield "error", {"detail": f"the service failed on this request: {type(problem).__name__}"}
    finally:
        voting.cancel(ticket)


def _accepted(asked: Asked) -> dict[str, Any]:
    """What is fixed before the first vote: the hash of the input, the settings, and the commitment to the seed."""
    seed = None if asked.secret is None else asked.secret.commitment
    return {"input": asked.batch.sha256, "settings": asked.method.settings.to_json(), "commitment": seed}


def _state(growing: Growing, began: float) -> dict[str, Any]:
    asked = growing.asked
    return {
        "votes": growing.votes,
        "counts": growing.counts,
        "label": asked.label,
        "radius": growing.text,
        "seconds": round(time.monotonic() - began, 3),
    }


async def _done(served: Served, voting: SharedVoting, growing: Growing, began: float) -> dict[str, Any]:
    """The last event: the claim, and the files of its run folder."""
    asked = growing.asked
    if not asked.method.finished(asked.votes, sealed=True):
        raise Incomplete("the time was too short for a first claim about this input: ask for more seconds")
    sampler, inputs = served.sampler(asked.batch, asked.method), asked.batch.inputs.values
    probed = await asyncio.wrap_future(voting.use(sampler, lambda own: own.probe_entries(inputs)))
    claim, certs, files = await asyncio.to_thread(_sealed, served, asked, probed)
    abstained = bool(certs.abstained[0])
    text = None if abstained else radius_text(float(certs.radius[0]), asked.method.law.threat)
    state = {**_state(growing, began), "label": int(certs.label[0]), "radius": text, "abstained": abstained}
    return {**state, "claim": claim, "files": files}


def _sealed(served: Served, asked: Asked, probed: tuple[str, str, str]) -> tuple[str, Certificates, dict[str, str]]:
    """The claim in words, the certificates, and the files of the run folder."""
    record = served.record(asked, probed)
    certs = record.certificates()
    return record.manifest.claim, certs, record_files(record, certs)
