"""The pictures of every training step: on the device where they fit, else streamed to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from vauban.data import Dataset
from vauban.errors import BadInput
from vauban.inputs import prepare
from vauban.seed import Seed

UNKNOWN = -1  # the label of a picture that has none
_SHARE = 0.3  # of a GPU's free memory that a data set may take

Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Order:
    """Which pictures are in which step: every picture once in `size` places, in an order that depends on the seed and the epoch.

    Steps are full: one may end an epoch and begin the next. Process `rank` of `world` takes its own part of each step.
    """

    size: int
    batch: int
    seed: int
    rank: int = 0
    world: int = 1

    def rows(self, step: int) -> torch.Tensor:
        """The numbers of this process's pictures in a step, int64 [batch / world]."""
        local = self.batch // self.world
        first = step * self.batch + self.rank * local
        places = np.arange(first, first + local)
        epochs = places // self.size
        rows = np.empty(local, np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            rows[here] = _permutation(int(epoch), self.size, self.seed)[places[here] % self.size]
        return torch.from_numpy(rows)


@lru_cache(maxsize=4)
def _permutation(epoch: int, size: int, seed: int) -> np.ndarray:
    generator = np.random.Generator(np.random.Philox(key=Seed.of(seed).key, counter=epoch << 192))
    return generator.permutation(size)


class Held:
    """A data set in memory: on the device if it takes less than 30 % of the free memory there, else copied batch by batch.

    `labels`: whether they are needed; where they are not, those that are not known are -1.
    """

    def __init__(self, data: Dataset, device: torch.device, labels: bool = True):
        if data.labels is None and labels:
            raise BadInput(f"{data.name} has no labels to train on: give data with labels, or train a denoiser by mse")
        inputs = prepare(data.images, input_range=None)
        self.levels, self.classes, self.device = inputs.levels, data.num_classes, device
        self.shape, self.size = inputs.values.shape[1:], len(inputs.values)
        values = inputs.values
        known = torch.full((self.size,), UNKNOWN) if data.labels is None else torch.from_numpy(data.labels)
        self.on_device = device.type == "cpu" or _fits(values, device)
        if device.type != "cpu":
            values, known = (t.to(device) if self.on_device else t.pin_memory() for t in (values, known))
        self.values, self.labels = values, known
        self._data = data

    def described(self) -> dict[str, str]:
        """What identifies the pictures in a checkpoint."""
        return {"data": self._data.name, "data_sha256": self._data.fingerprint()}

    def pairs(self, order: Order, first: int, last: int) -> Iterator[Pair]:
        """Pictures and labels of the steps first..last-1, on the device."""
        for step in range(first, last):
            rows = order.rows(step)
            if self.on_device:
                if self.device.type == "cuda":
                    rows = rows.pin_memory().to(self.device, non_blocking=True)
                yield self.values[rows], self.labels[rows]
            else:
                pair = (self.values[rows].pin_memory(), self.labels[rows].pin_memory())
                yield pair[0].to(self.device, non_blocking=True), pair[1].to(self.device, non_blocking=True)


@dataclass(frozen=True)
class _Steps:
    """The numbers of the pictures of every step, made when they are asked for: those of all steps may not fit into memory."""

    order: Order
    first: int
    last: int

    def __iter__(self) -> Iterator[list[int]]:
        return (self.order.rows(step).tolist() for step in range(self.first, self.last))

    def __len__(self) -> int:
        return self.last - self.first


class Streamed:
    """A torch data set of (picture, label), read by worker processes in the order that the trainer asks for.

    `labels`: whether they are needed; where they are not, items may be pictures alone.
    """

    def __init__(self, data: Any, device: torch.device, classes: int | None, workers: int = 2, labels: bool = True):
        self.data, self.device, self.workers, self.size = data, device, workers, len(data)
        if self.size == 0:
            raise BadInput("the data set is empty: at least one picture with its label is needed")
        self.labels, self._collate = labels, self._pair if labels else self._picture
        x, _ = self._collate([data[0]])
        self.shape, self.levels = x.shape[1:], 255 if x.dtype == torch.uint8 else None
        if classes is None and labels:
            raise BadInput(f"a {type(data).__name__} does not say how many classes it has: give classes=")
        self.classes = classes or 0

    def described(self) -> dict[str, str]:
        """As `Held.described`: of the pictures only their number is known."""
        return {"data": f"{type(self.data).__name__} of {self.size}"}

    @staticmethod
    def _pair(items: list[Any]) -> Pair:
        if not all(isinstance(item, tuple | list) and len(item) == 2 for item in items):
            raise BadInput(
                f"the data set gives a {type(items[0]).__name__}: pairs (picture, label) are needed to train on"
            )
        pictures = torch.stack([torch.as_tensor(np.asarray(x)) for x, _ in items])
        if pictures.dtype != torch.uint8:
            pictures = pictures.float()
        return pictures, torch.tensor([int(y) for _, y in items])

    @classmethod
    def _picture(cls, items: list[Any]) -> Pair:
        return cls._pair([item if isinstance(item, tuple | list) else (item, UNKNOWN) for item in items])

    def pairs(self, order: Order, first: int, last: int) -> Iterator[Pair]:
        """As `Held.pairs`."""
        loader = torch.utils.data.DataLoader(
            self.data,
            batch_sampler=_Steps(order, first, last),
            collate_fn=self._collate,
            num_workers=self.workers,
            pin_memory=self.device.type == "cuda",
        )
        for x, y in loader:
            if self.labels and not 0 <= int(y.min()) <= int(y.max()) < self.classes:
                raise BadInput(
                    f"labels from {int(y.min())} to {int(y.max())}: labels below classes={self.classes} are needed"
                )
            yield x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)


def source_of(
    data: Any, device: torch.device, classes: int | None = None, workers: int = 2, labels: bool = True
) -> Held | Streamed:
    """The source of training pictures for a data set of `vauban.data`, arrays (x, y), or a torch data set or loader.

    `labels`: whether they are needed; where they are not, pictures x alone will do.
    """
    if isinstance(data, Dataset):
        return Held(data.held(), device, labels)
    if isinstance(data, torch.utils.data.DataLoader):
        data, workers = data.dataset, data.num_workers
    if isinstance(data, np.ndarray | torch.Tensor):
        data = (data, None)
    if isinstance(data, tuple) and len(data) == 2:
        return Held(_from_arrays(*data, classes), device, labels)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return Streamed(data, device, classes, workers, labels)
    raise BadInput(
        f"a {type(data).__name__} cannot be trained on: give a data set of vauban.data, a pair of arrays (x, y), or a torch "
        "data set or loader whose items are numbered"
    )


def _from_arrays(x: Any, y: Any, classes: int | None) -> Dataset:
    """A data set of arrays or tensors x [m, ...] and y [m], or None."""
    if y is None:
        return Dataset(_array(x), None, classes or 0, tuple(map(str, range(classes or 0))), "arrays")
    labels = np.asarray(y.cpu() if isinstance(y, torch.Tensor) else y)
    if not np.issubdtype(labels.dtype, np.integer):
        raise BadInput(f"y is of type {labels.dtype}: labels must be whole numbers, one for each input")
    count = classes if classes is not None else int(labels.max(initial=0)) + 1
    return Dataset(_array(x), labels.astype(np.int64), count, tuple(map(str, range(count))), "arrays")


def _array(x: Any) -> np.ndarray:
    """Pictures as uint8 or float32."""
    pictures = np.asarray(x.cpu() if isinstance(x, torch.Tensor) else x)
    return pictures if pictures.dtype == np.uint8 else pictures.astype(np.float32)


def _fits(values: torch.Tensor, device: torch.device) -> bool:
    free, _ = torch.cuda.mem_get_info(device)
    return values.nbytes <= _SHARE * free
