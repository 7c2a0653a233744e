"""Several processes that train one network together, started by torchrun."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import distributed

from vauban.errors import BadInput
from vauban.smoothing import Smoothing

PAUSE = 1.0  # seconds between the last exchange of processes and the end of their group


@dataclass(frozen=True)
class Processes:
    """This process's number, and how many there are."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes files and reports progress."""
        return self.rank == 0

    def wrapped(self, network: torch.nn.Module, device: torch.device) -> torch.nn.Module:
        """The network whose gradients are averaged over all processes; batch norms on GPUs see the whole batch."""
        if self.world == 1:
            return network
        if device.type == "cuda":
            network = torch.nn.SyncBatchNorm.convert_sync_batchnorm(network)
            return torch.nn.parallel.DistributedDataParallel(network, device_ids=[device])
        return torch.nn.parallel.DistributedDataParallel(network)

    def check_batch(self, batch: int, accumulate: int, smoothing: Smoothing) -> None:
        """Refuse a batch that cannot be shared equally by all processes, their parts, and smoothings that take turns."""
        parts, by_turns = self.world * accumulate, smoothing.turns
        views = f" and {by_turns} smoothings by turns" if by_turns > 1 else ""
        parts *= by_turns
        if batch % parts:
            raise BadInput(
                f"batch={batch} on {self.world} processes with accumulate={accumulate}{views}: give a multiple of {parts}, "
                f"such as {-(-batch // parts) * parts}"
            )

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether a flag is set in some process."""
        if self.world == 1:
            return flag
        flags = torch.tensor(float(flag), device=device)
        distributed.all_reduce(flags)
        return bool(flags > 0)

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """The mean of a value over all processes."""
        if self.world > 1:
            distributed.all_reduce(value)
            value /= self.world
        return value


def in_first_process() -> bool:
    """Whether this process is the one that writes and prints, of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def processes(device: torch.device) -> Iterator[tuple[Processes, torch.device]]:
    """The processes that torchrun started, or this one alone; with the device of this one."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or "RANK" not in os.environ:
        yield Processes(), device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    ours = not distributed.is_initialized()
    if ours:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(distributed.get_rank(), world), device
    finally:
        if ours:
            # A thread of gloo lets go of the last tensor it was sent with the GIL. The group's destructor waits for that thread
            # and holds the GIL, so a process that leaves at once can hang: the pause, without the GIL, lets the thread finish.
            time.sleep(PAUSE)
            distributed.destroy_process_group()
