"""Threads that cast shapes side by side change no tally, and a model that they would disturb is refused."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from vauban.engine.casters import Casters, can_be_copied, copied
from vauban.engine.network import Network
from vauban.engine.sampler import Sampler
from vauban.engine.scheduler import Scheduler, Work
from vauban.engine.shared import PooledScheduler, SharedWork
from vauban.errors import BadInput
from vauban.laws import law
from vauban.seed import Seed
from vauban.smoothing import Gaussian
from vauban.stopping import AnytimeRule
from vauban.votes import CountRequests, counts_at

X = torch.randint(0, 256, (6, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
Model = Callable[[torch.Tensor], torch.Tensor]


class Wrapped(torch.nn.Module):
    """A function as a module that notes its calls."""

    def __init__(self, function: Model):
        super().__init__()
        self.function, self.calls = function, 0
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.function(views) * self.weight


def sampler(model: torch.nn.Module) -> Sampler:
    return Sampler(Network(model, torch.device("cpu")), Gaussian(0.25), 3, 255, 40, 2, block=10)


@contextmanager
def casting(network: Network, count: int = 3) -> Iterator[tuple[Casters, threading.Event]]:
    cast = threading.Event()
    casters = Casters(network, count, 1, cast.set)
    try:
        yield casters, cast
    finally:
        casters.close()


def looks(most: int) -> CountRequests:
    rule = AnytimeRule(law("gaussian:sigma=0.25"), 0.01)
    return counts_at("count", rule.looks_until(most))


def test_threads_change_no_tally(half_spaces: Model) -> None:
    one = sampler(Wrapped(half_spaces))
    found: dict[int, list[tuple[int, tuple[int, ...]]]] = {i: [] for i in range(len(X))}
    with casting(one.network) as (casters, cast):
        pooled = PooledScheduler(one, casters)
        for i, x in enumerate(X):
            assert pooled.admit(SharedWork(0, x, looks(200 + 50 * i), Seed.of(i), caller=i))
        while pooled.busy:
            for work, tally, _ in pooled.step():
                found[work.caller].append((tally.votes, tuple(tally.counts.tolist())))
            if pooled.busy and pooled.waiting:
                cast.wait(60)
                cast.clear()
    for i, x in enumerate(X):
        alone = Scheduler(sampler(Wrapped(half_spaces)), Seed.of(i)).run([Work(0, x, looks(200 + 50 * i))])
        assert found[i] == [(tally.votes, tuple(tally.counts.tolist())) for tally, _ in alone]


def test_a_copy_shares_tensors_and_nothing_else(half_spaces: Model) -> None:
    network = Network(Wrapped(half_spaces), torch.device("cpu"))
    twin = copied(network)
    twin.model(torch.rand(2, 8))
    assert (network.model.calls, twin.model.calls) == (0, 1)
    assert network.model.weight is twin.model.weight


def test_a_model_that_keeps_something_outside_itself_is_refused(half_spaces: Model) -> None:
    calls = [0]

    def outside(views: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return half_spaces(views) + (calls[0] > 2)

    one = sampler(Wrapped(outside))
    with casting(one.network) as (casters, _), pytest.raises(BadInput, match="--workers 1"):
        casters.check(one, X)
    fine = sampler(Wrapped(half_spaces))
    with casting(fine.network) as (casters, _):
        casters.check(fine, X)


def test_a_failure_in_a_thread_is_the_callers(half_spaces: Model) -> None:
    def failing(views: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no memory")

    one = sampler(Wrapped(failing))
    with casting(one.network, 2) as (casters, _):
        future = casters.cast(casters.samplers(one), one.probe_blocks(X, range(one.blocks)))
        with pytest.raises(Exception, match="no memory"):
            future.result(60)


def test_a_caller_who_leaves_does_not_end_a_thread(half_spaces: Model) -> None:
    one, begun, go_on, called = sampler(Wrapped(half_spaces)), threading.Event(), threading.Event(), []

    def hold(_: Sampler) -> None:
        begun.set()
        go_on.wait(60)

    with casting(one.network, 1) as (casters, _):
        held, left, late = (casters.use(one, function) for function in (hold, called.append, lambda s: s.rows))
        assert begun.wait(60)
        assert left.cancel()
        assert not held.cancel()  # it has begun, and its thread will tell it the result
        go_on.set()
        assert late.result(60) == one.rows
        assert not called


def test_functions_random_models_and_other_devices_are_not_copied(half_spaces: Model) -> None:
    cpu = torch.device("cpu")
    assert can_be_copied(Network(Wrapped(half_spaces), cpu))
    assert not can_be_copied(Network(half_spaces, cpu))
    assert not can_be_copied(Network(Wrapped(half_spaces), cpu, stochastic="rows"))
    assert not can_be_copied(Network(Wrapped(half_spaces), torch.device("cuda")))
