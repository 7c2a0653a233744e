"""Compares votes that an interrupted call left in a run folder with what the model gives now."""

from __future__ import annotations

from typing import Any

import numpy as np

from vauban.counted_votes import CountedVotes
from vauban.engine.scheduler import Scheduler, Work
from vauban.errors import Lie, RunRefused
from vauban.inputs import Batch
from vauban.last_votes import LastVotes
from vauban.replay import refuse_other_vote, replay_exactly
from vauban.report.progress import bar
from vauban.runs.store import RunRecord, extensions_of
from vauban.seed import Seed
from vauban.votes import BallotVotes, SampledVotes, Tally, counts_at

_FEW = 1_000  # votes of an early look, which cost little to cast again


def refuse_other_votes(
    record: RunRecord, sampler: Any, batch: Batch, secret: Seed | None, extending: bool, quiet: bool
) -> None:
    """Cast a few of the votes again that a run keeps and has not sealed, and refuse it if its model gives others now.

    An earlier call may have ended before it looked whether its model still gave the answers with which it had begun. The last
    votes that were written are compared, which a change that lasted has reached, and some early ones. `extending`: all votes
    before the last extension are sealed.
    """
    votes: Any = record.votes
    finished = isinstance(votes, LastVotes) and votes.rewritten and not extensions_of(record.method)
    if sampler.network.stochastic is not None or finished:
        return
    try:
        if secret is not None:
            sealed = [record.manifest.settings.n or 0, *extensions_of(record.method)][-2] if extending else 0
            _compare_looks(votes, sampler, batch, secret, telling(votes, sealed), quiet)
        elif isinstance(votes, CountedVotes):
            some = [votes.index.index(piece.input) for piece in votes.recent][-1:]
            replay_exactly(record, sampler, batch, some, lambda _: None)
        else:
            _compare_views(votes, sampler, batch)
    except Lie as problem:
        raise RunRefused(f"{problem}. A model that stays as it is is needed, and another --out") from None


def telling(votes: SampledVotes, sealed: int) -> dict[int, int]:
    """Which looks tell most of a changed model, beyond `sealed` votes: {position: which of its looks}.

    Where all views agree, a changed model shows least. So these are the last look that was written and the most divided of the
    last ten; and of each third of the inputs the most divided first look, if it is of few votes.
    """
    recent = [_place(votes, tally) for tally in votes.recent if tally.votes > sealed]
    chosen = [*recent[-1:], *_most_divided(votes, recent)]
    first = {p: sum(int(counts.sum()) <= sealed for counts in looks) for p, looks in enumerate(votes.looks)}
    early = [
        (p, look) for p, look in first.items() if look < len(votes.looks[p]) and _added(votes, p, look).sum() <= _FEW
    ]
    for third in np.array_split(np.arange(len(early)), 3):
        chosen += _most_divided(votes, [early[i] for i in third])
    return dict(reversed(chosen))  # of two looks of one input the one that was written last


def _place(votes: SampledVotes, tally: Tally) -> tuple[int, int]:
    position = votes.index.index(tally.input)
    return position, [int(counts.sum()) for counts in votes.looks[position]].index(tally.votes)


def _added(votes: SampledVotes, position: int, look: int) -> Any:
    """The votes that an input got between a look and the one before it."""
    looks = votes.looks[position]
    return looks[look] - looks[look - 1] if look else looks[look]


def _most_divided(votes: SampledVotes, places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    def share(place: tuple[int, int]) -> float:
        added = _added(votes, *place)
        return float(added.max() / added.sum())

    return [min(places, key=share)] if places else []


def _compare_looks(
    votes: SampledVotes, sampler: Any, batch: Batch, secret: Seed, chosen: dict[int, int], quiet: bool
) -> None:
    kept, works = {}, []
    for p, look in chosen.items():
        counts, before = votes.looks[p][look], votes.looks[p][look - 1] if look else None
        kept[votes.index[p]] = counts
        requests = counts_at("count", [int(counts.sum())], 0 if before is None else int(before.sum()), before)
        works.append(Work(votes.index[p], batch.inputs.values[p], requests))
    with bar("comparing kept votes", len(works), "inputs", quiet=quiet) as done:
        for tally, _ in Scheduler(sampler, secret).run(works):
            refuse_other_vote(tally.input, f"at {tally.votes} votes", kept[tally.input], tally.counts)
            done(1)


def _compare_views(votes: BallotVotes, sampler: Any, batch: Batch) -> None:
    """Compare the last views of the pieces that were written last, and the first ones of three inputs."""
    complete = votes.complete
    some = {complete[0], complete[len(complete) // 2], complete[-1]} if complete else set()
    places = {(p, min(votes.views, sampler.rows)) for p in some}
    places |= {(votes.index.index(piece.input), piece.first + len(piece.votes)) for piece in list(votes.recent)[-3:]}
    for p, end in sorted(places):
        begin, row = max(0, end - sampler.rows), p * votes.views
        again = np.concatenate([part for _, part in sampler.cast(batch.inputs.values, row + begin, row + end)])
        known = votes.cast[p, begin:end]
        refuse_other_vote(votes.index[p], "view by view", votes.votes[p, begin:end][known], again[known])
