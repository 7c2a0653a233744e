"""Inputs that come and go, each with a seed of its own, get the votes they would get alone, and a fair share."""

import itertools
from collections.abc import Callable

import numpy as np
import torch

from vauban.engine.network import Network
from vauban.engine.sampler import Sampler
from vauban.engine.scheduler import Scheduler, Work
from vauban.engine.shared import SharedScheduler, SharedWork
from vauban.laws import law
from vauban.seed import Seed
from vauban.smoothing import Gaussian
from vauban.stopping import AnytimeRule
from vauban.stopping.policies import until_decided
from vauban.votes import CountRequests, KeptCounts, counts_at

X = torch.randint(0, 256, (6, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
RULE = AnytimeRule(law("gaussian:sigma=0.25"), 0.01)
Model = Callable[[torch.Tensor], torch.Tensor]


def sampler(model: Model) -> Sampler:
    return Sampler(Network(model, torch.device("cpu")), Gaussian(0.25), 3, 255, 40, 2, block=10)


def requests(most: int) -> CountRequests:
    found, counts = until_decided(RULE, None, 30, KeptCounts()), None
    while (request := next(found) if counts is None else found.send(counts)).look <= most or request.stage == "choose":
        counts = yield request


def test_inputs_of_many_callers_get_the_votes_they_would_get_alone(half_spaces: Model) -> None:
    shared = SharedScheduler(sampler(half_spaces))
    works = [SharedWork(0, x, requests(200 + 50 * i), Seed.of(i), caller=i) for i, x in enumerate(X)]
    found: dict[int, list[tuple[str, int, tuple[int, ...]]]] = {i: [] for i in range(len(X))}
    coming = iter(works)
    for step in itertools.count():
        if step % 3 == 0 and (work := next(coming, None)) is not None:
            assert shared.admit(work)
        for work, tally, _ in shared.step():
            found[work.caller].append((tally.stage, tally.votes, tuple(tally.counts.tolist())))
        if not shared.busy and step > 3 * len(X):
            break
    for i, x in enumerate(X):
        alone = Scheduler(sampler(half_spaces), Seed.of(i)).run([Work(0, x, requests(200 + 50 * i))])
        assert found[i] == [(tally.stage, tally.votes, tuple(tally.counts.tolist())) for tally, _ in alone]


def test_an_input_that_leaves_is_counted_no_more_and_others_go_on(half_spaces: Model) -> None:
    shared = SharedScheduler(sampler(half_spaces))
    gone, stays = (SharedWork(0, X[i], requests(2_000), Seed.of(i)) for i in range(2))
    assert shared.admit(gone)
    assert shared.admit(stays)
    for _ in range(4):
        shared.step()
    shared.drop(gone)
    shared.drop(gone)
    later = [work for _ in range(60) for work, _, _ in shared.step()]
    assert later
    assert all(work is stays for work in later)
    assert not shared.busy
    assert shared.step() == []


def test_who_comes_late_is_served_first_and_then_fairly(half_spaces: Model) -> None:
    counted = 0

    def count(votes: int) -> None:
        nonlocal counted
        counted += votes

    shared = SharedScheduler(sampler(half_spaces), count)
    early = [SharedWork(0, X[i], requests(10**6), Seed.of(i), caller=i) for i in range(3)]
    for work in early:
        shared.admit(work)
    votes = dict.fromkeys(range(4), 0)

    def steps(many: int) -> None:
        for _ in range(many):
            for work, tally, _ in shared.step():
                votes[work.caller] = tally.votes if tally.stage == "count" else 0

    steps(300)
    before = dict(votes)
    late = SharedWork(0, X[3], requests(10**6), Seed.of(3), caller=3)
    shared.admit(late)
    steps(4)
    assert votes[3] >= 10
    steps(300)
    gained = [votes[i] - before[i] for i in range(3)]
    assert max(gained) < 1.5 * min(gained)
    assert votes[3] < 1.6 * max(gained)
    assert counted >= sum(votes.values())


def test_inputs_that_come_at_once_get_their_first_votes_together(half_spaces: Model) -> None:
    shared = SharedScheduler(sampler(half_spaces))
    for i in range(12):
        shared.admit(SharedWork(0, X[i % 6], requests(10**6), Seed.of(i), caller=i))
    votes, cast = dict.fromkeys(range(12), 0), 0
    while min(votes.values()) < 10:
        for work, tally, _ in shared.step():
            votes[work.caller] = tally.votes if tally.stage == "count" else 0
        cast += 1
        assert cast < 100
    assert max(votes.values()) <= 40


def test_a_dear_input_gets_a_smaller_share(half_spaces: Model) -> None:
    shared = SharedScheduler(sampler(half_spaces))
    looks = list(range(100, 50_000, 100))
    for i, cost in enumerate((1.0, 4.0)):
        work = SharedWork(0, X[i], counts_at("count", looks), Seed.of(i), caller=i, urgent=False, cost=cost)
        shared.admit(work)
    votes = [0, 0]
    for _ in range(200):
        for work, tally, _ in shared.step():
            votes[work.caller] = tally.votes
    assert 3 < votes[0] / votes[1] < 5


def test_an_input_that_needs_no_votes_is_not_admitted(half_spaces: Model) -> None:
    shared = SharedScheduler(sampler(half_spaces))
    assert not shared.admit(SharedWork(0, X[0], counts_at("count", []), Seed.of(0)))
    assert not shared.busy
    assert np.array_equal(shared.step(), [])
