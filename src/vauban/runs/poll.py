"""Casts the votes that inputs still lack and says each tally as it is reached; knows nothing of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.inputs import Inputs
from vauban.runs.tallies import Tally
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier, Tick
from vauban.stopping.rules import Rule
from vauban.voting.inquiry import Inquiry, for_all_votes, until_decided

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
    asked = (
        (position, job.inquiry(position, done.get(numbers[position], _NOTHING)))
        for position in (range(len(numbers)) if order is None else order)
    )
    endless = job.rule is not None and job.rule.last_look is None
    for counted in smoothed.poll(
        inputs,
        asked,
        secret,
        voter=smoothed.voter(inputs, share=job.rule is not None),
        numbers=numbers,
        together=endless,
        tick=tick,
        deadline=deadline,
    ):
        yield Tally(counted.number, counted.stage, counted.votes, counted.counts), counted.last
