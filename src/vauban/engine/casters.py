"""Threads that cast compute shapes side by side, each with a network of its own whose tensors are those of the others.

The other way to use several processors is to split each operation between them. Here no thread waits for another at the end of
every operation, and noise, network and counting of different shapes overlap, which is meant for small networks.
"""

from __future__ import annotations

import copy
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from vauban.engine.network import Network
from vauban.engine.scheduler import ViewBlock
from vauban.errors import BadInput

if TYPE_CHECKING:
    from vauban.engine.sampler import Answer, Sampler

T = TypeVar("T")

_REPEATS = 3  # shapes that every network casts when they are tried together


def fulfil(future: Future[Any], function: Callable[[], Any]) -> None:
    """Call a function for whoever waits for the future; it is not called where they cancelled it, as a caller who leaves does."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except Exception as problem:
        future.set_exception(problem)


def can_be_copied(network: Network) -> bool:
    """Whether several threads may each have their own copy: a torch module on the CPU that always gives the same answer."""
    return (
        network.device.type == "cpu"
        and network.stochastic is None
        and network.runner is None
        and network.backend in (None, "torch")
        and isinstance(network.source, nn.Module)
    )


def copied(network: Network) -> Network:
    """The network with a module of its own: what a call notes in the module is its own, parameters and buffers are shared."""
    module: Any = network.model
    shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    try:
        own = copy.deepcopy(module, shared)
    except Exception as problem:
        raise BadInput(
            f"the model cannot be copied ({problem}), and each worker needs a copy: start with one worker (--workers 1)"
        ) from None
    twin = copy.copy(network)
    twin.model = own
    return twin


class Casters:
    """`count` threads, each of which lets torch compute with `threads` threads. `on_cast` is called, in one of them, whenever a
    shape is cast."""

    def __init__(self, network: Network, count: int, threads: int, on_cast: Callable[[], None]):
        self.networks = [copied(network) for _ in range(count)]
        self._threads, self._on_cast = threads, on_cast
        self._asked: queue.SimpleQueue[tuple[Callable[[int], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._running = [
            threading.Thread(target=self._loop, args=(i,), name=f"casting {i}", daemon=True) for i in range(count)
        ]
        for thread in self._running:
            thread.start()

    def samplers(self, sampler: Sampler) -> list[Sampler]:
        """The same sampler for each thread, with its own network."""
        return [replace(sampler, network=network) for network in self.networks]

    def cast(self, samplers: list[Sampler], blocks: Sequence[ViewBlock]) -> Future[Answer]:
        """The answer of one shape, as soon as a thread has cast it; `samplers`: those of `samplers()`."""
        return self._submit(lambda number: samplers[number].answer(samplers[number].made(blocks)))

    def use(self, sampler: Sampler, function: Callable[[Sampler], T]) -> Future[T]:
        """Let one of the threads call a function with the same sampler, whose network is its own."""
        return self._submit(lambda number: function(replace(sampler, network=self.networks[number])))

    def _submit(self, function: Callable[[int], T]) -> Future[T]:
        future: Future[T] = Future()
        self._asked.put((function, future))
        return future

    def check(self, sampler: Sampler, inputs: torch.Tensor) -> None:
        """Refuse a model that scores views of `inputs` [m, ...] otherwise where several threads call it at the same time."""
        blocks, each = sampler.probe_blocks(inputs, range(sampler.blocks)), self.samplers(sampler)
        alone = sampler.answer(sampler.made(blocks)).scores
        together = [self.cast(each, blocks) for _ in range(_REPEATS * len(each))]
        if not all(torch.equal(future.result().scores, alone) for future in together):
            raise BadInput(
                "the model gives other scores where several threads call copies of it at the same time, so it keeps something "
                "outside itself: start with one worker (--workers 1)"
            )

    def close(self) -> None:
        """End the threads after what they were asked for."""
        for _ in self._running:
            self._asked.put(None)
        for thread in self._running:
            thread.join()

    def _loop(self, number: int) -> None:
        torch.set_num_threads(self._threads)
        while (asked := self._asked.get()) is not None:
            function, future = asked
            fulfil(future, partial(function, number))
            self._on_cast()
