"""Casts the votes that inputs still lack and says each tally as it is reached; knows nothing of files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.asking import Tick
from vauban.inputs import Inputs
from vauban.runs.tallies import Tally
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.stopping import Rule
from vauban.voting.inquiry import Inquiry, for_all_votes, until_decided
from vauban.voting.poll import Poll
from vauban.voting.voter import Voter

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Done:
    """The tallies an input has already: counts that chose its label, and counts at its first looks, in order."""

    chosen: Counts | None = None
    looks: Sequence[Counts] = field(default_factory=list)


_NOTHING = Done()


@dataclass(frozen=True)
class Job:
    """What every input of a run is asked: `statistics` as in its manifest, and the rule behind them, if there is one.

    `labels` by position: the given ones, None where votes choose.
    """

    statistics: Mapping[str, Any]
    rule: Rule | None
    labels: Sequence[int] | None

    @property
    def shares(self) -> bool:
        """Whether inputs share shapes, if nobody said otherwise."""
        return self.rule is not None

    @property
    def endless(self) -> bool:
        """Whether an input may always get more votes."""
        return self.rule is not None and self.rule.last_look is None

    def inquiry(self, position: int, done: Done) -> Inquiry:
        """What is still to be asked about one input."""
        n0 = self.statistics["n0"]
        if self.rule is not None:
            label = None if self.labels is None else self.labels[position]
            return until_decided(self.rule, label, n0, done.chosen, done.looks)
        looks = self.statistics["looks"]
        after = looks[len(done.looks) - 1] if done.looks else 0
        before = done.looks[-1] if done.looks else None
        return for_all_votes(looks, n0, done.chosen is not None, after, before)


@dataclass(frozen=True)
class Wanted:
    """An input that lacks votes: its number in the data set, its position in the run, itself [...], and what is in already."""

    number: int
    position: int
    x: torch.Tensor
    done: Done = _NOTHING


def poll(
    smoothed: SmoothedClassifier,
    inputs: Inputs,
    numbers: Sequence[int],
    secret: Seed,
    job: Job,
    done: Mapping[int, Done],
    *,
    order: Sequence[int] | None = None,
    tick: Tick | None = None,
    deadline: float | None = None,
) -> Iterator[tuple[Tally, bool]]:
    """Every tally that inputs lack, as it is reached, and whether it is its input's last one.

    `numbers` [m]: which inputs these are in their data set, which addresses their randomness; `done`: by number, what is in
    already. The compute shape is the smoothed classifier's (`rows`, `block`). Neither the order of inputs, nor which of them
    are polled here, nor where they begin changes a tally.
    """
    voter = smoothed.voter(inputs, share=job.shares)
    waiting = wanted(inputs, numbers, done, order)
    return tallies(voter, inputs.levels, secret, job, waiting, tick=tick, deadline=deadline)


def wanted(
    inputs: Inputs, numbers: Sequence[int], done: Mapping[int, Done], order: Sequence[int] | None = None
) -> Iterator[Wanted]:
    """The inputs in the order in which they are polled."""
    for position in range(len(numbers)) if order is None else order:
        number = int(numbers[position])
        yield Wanted(number, position, inputs.values[position], done.get(number, _NOTHING))


def lacking_votes(inputs: Iterable[Wanted], job: Job) -> list[Wanted]:
    """Those of the inputs that lack votes."""
    return [one for one in inputs if next(job.inquiry(one.position, one.done), None) is not None]


def tallies(
    voter: Voter,
    levels: int | None,
    secret: Seed,
    job: Job,
    waiting: Iterable[Wanted],
    *,
    tick: Tick | None = None,
    deadline: float | None = None,
) -> Iterator[tuple[Tally, bool]]:
    """As `poll`, of inputs that are taken from `waiting` when there is room for them."""
    inquiries = ((one.number, one.x, job.inquiry(one.position, one.done)) for one in waiting)
    for counted in Poll(voter, levels, secret, together=job.endless, tick=tick, deadline=deadline).run(inquiries):
        yield Tally(counted.number, counted.stage, counted.votes, counted.counts), counted.last
