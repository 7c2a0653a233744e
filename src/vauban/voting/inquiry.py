"""What is asked about one input: a conversation that wishes for counts at looks and hears them, until it knows enough."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vauban.stopping import Rule

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Wish:
    """The counts of the first `look` votes in a stage.

    `sure`: how many votes will be wanted whatever these counts say [look]; `most`: how many may ever be, None for no end.
    `after`, `before`: where a stage does not begin with its first vote, how many votes are counted already, and their counts.
    """

    stage: str
    look: int
    sure: int = 0
    most: int | None = None
    after: int = 0
    before: Counts | None = None


Inquiry = Generator[Wish, Counts, None]


def counted_at(stage: str, looks: Sequence[int], after: int = 0, before: Counts | None = None) -> Inquiry:
    """Counts at each of the looks, rising and above `after`, whatever they are."""
    for look in looks:
        yield Wish(stage, look, looks[-1], looks[-1], after, before)


def for_all_votes(looks: Sequence[int], n0: int, chosen: bool, after: int = 0, before: Counts | None = None) -> Inquiry:
    """First `n0` votes that choose a label, unless there are none to cast or they are `chosen`; then counts at the looks."""
    if n0 and not chosen:
        yield Wish("choose", n0, most=n0)
    yield from counted_at("count", [look for look in looks if look > after], after, before)


def until_decided(
    rule: Rule, label: int | None, n0: int, chosen: Counts | None = None, earlier: Sequence[Counts] = ()
) -> Inquiry:
    """Counts at the rule's looks until it has decided about `label`, which `n0` uncounted votes choose if it is None.

    `chosen`: counts of those votes, if they are cast already; `earlier`: counts at the first looks, if any are in already.
    """
    if label is None:
        if chosen is None:
            chosen = yield Wish("choose", n0, most=n0)
        label = int(chosen.argmax())
    wins = [int(counts[label]) for counts in earlier]
    after = votes = rule.votes_at(len(wins))
    before = earlier[-1] if len(earlier) else None
    while not wins or rule.goes_on(wins):
        look = rule.next_look(votes)
        if look is None:
            return
        counts = yield Wish("count", look, most=rule.last_look, after=after, before=before)
        wins.append(int(counts[label]))
        votes = look
