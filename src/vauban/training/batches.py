"""The pictures of every training step: on the device where they fit, else streamed to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from vauban.certificates import UNIT_RANGE
from vauban.data import Dataset
from vauban.errors import BadInput
from vauban.inputs import Inputs, prepare
from vauban.interrupts import children_as_before
from vauban.objects import Items
from vauban.seed import Seed
from vauban.smoothing import Smoothing
from vauban.training.streaming import NOT_NUMBERED, Decoded, Repeatable, fits_into_memory, items_of_loader

UNKNOWN = -1  # the label of a picture that has none
Range = tuple[float, float] | None  # of the values of pictures; None: any
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

    def places(self, step: int) -> np.ndarray:
        """The places of this process's pictures of a step in the whole training, int64 [batch / world]."""
        local = self.batch // self.world
        first = step * self.batch + self.rank * local
        return np.arange(first, first + local)

    def rows(self, step: int) -> torch.Tensor:
        """The numbers of this process's pictures in a step, int64 [batch / world]."""
        places = self.places(step)
        epochs = places // self.size
        rows = np.empty(len(places), np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            rows[here] = _permutation(int(epoch), self.size, self.seed)[places[here] % self.size]
        return torch.from_numpy(rows)


@lru_cache(maxsize=4)
def _permutation(epoch: int, size: int, seed: int) -> np.ndarray:
    generator = np.random.Generator(np.random.Philox(key=Seed.of(seed).key, counter=epoch << 192))
    return generator.permutation(size)


def read_inputs(
    x: Any, exact: bool, arithmetic: str = "auto", first: int = 0, input_range: Range = UNIT_RANGE
) -> Inputs:
    """Inputs [m, ...] read and checked as `certify` does. `exact`: whether every view votes.

    Pictures [m, channels, height, width] are of 8 bits or floats in `input_range`. A table may hold any numbers, whole ones too,
    unless its views are those of an exact smoothing: these are on the 8-bit grid. `first`: the number of the first input, for
    messages.
    """
    if exact:
        return prepare(x, "grid", input_range if x.ndim == 4 else None, first)
    if x.ndim == 4:
        return prepare(x, arithmetic, input_range, first)
    return prepare(_floats(x), arithmetic, None, first)


def is_exact(smoothing: Smoothing | None) -> bool:
    """Whether a smoothing has a law (features are learned without one), and an exact one."""
    law = getattr(smoothing, "law", None)
    return law is not None and bool(law.exact)


class Held:
    """A data set in memory: on the device if it takes less than 30 % of the free memory there, else copied batch by batch.

    `labels`: whether they are needed; where they are not, those that are not known are -1. `smoothing`: the one whose views are
    made of them; inputs that `certify` would refuse are refused. `input_range`: of the values of pictures.
    """

    def __init__(
        self,
        data: Dataset,
        device: torch.device,
        labels: bool = True,
        smoothing: Smoothing | None = None,
        input_range: Range = UNIT_RANGE,
    ):
        if labels:
            _check_labels(data)
        inputs = read_inputs(data.images, is_exact(smoothing), input_range=input_range)
        if smoothing is not None:
            inputs.check_with(smoothing.check)
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
    """The keys of the items of every step, (number, place), made when they are asked for: those of all steps may not fit into
    memory."""

    order: Order
    first: int
    last: int

    def keys(self, step: int) -> list[tuple[int, int]]:
        """Those of one step."""
        return list(zip(self.order.rows(step).tolist(), self.order.places(step).tolist(), strict=True))

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return (self.keys(step) for step in range(self.first, self.last))

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True)
class _Reader:
    """Makes a batch of items: read as `certify` reads them, and checked, in the worker processes.

    `labels`: whether they are needed. `exact`, `input_range`: see `read_inputs`. `like`: shape and type of every input, those of
    the first.
    """

    items: Items
    labels: bool
    exact: bool
    input_range: Range
    like: tuple[tuple[int, ...], Any] | None = None

    def __call__(self, items: list[Any]) -> Pair | BadInput:
        """Inputs and labels; a problem is returned, because torch would add the worker's traceback to one that is raised."""
        try:
            return self.read(items)
        except BadInput as problem:
            return problem

    def read(self, items: list[Any], first: int = 0) -> Pair:
        """Inputs and labels of items; `first`: the number of the first, for messages."""
        inputs, labels = [], []
        for number, item in enumerate(items, first):
            if isinstance(item, BadInput):
                raise item
            x, y = self.items.read(item, f"item {number}")
            if y is None and self.labels:
                raise BadInput(
                    f"item {number}, a {type(item).__name__}, has no label: pairs (picture, label) are needed"
                )
            shape, kind = self.like or (x.shape, x.dtype)
            if (x.shape, x.dtype) != (shape, kind):
                raise BadInput(
                    f"input {number} is {list(x.shape)} of {x.dtype}, and the first is {list(shape)} of {kind}: give all of them "
                    "one shape and type"
                )
            inputs.append(x)
            labels.append(UNKNOWN if y is None else _whole(y, number))
        together = np.stack(inputs)
        how = "auto" if together.dtype == np.uint8 else "float"
        return read_inputs(together, self.exact, how, first, self.input_range).values, torch.tensor(labels)


def _whole(label: Any, number: int) -> int:
    """The label of an item as a number; refused where it is not a whole one."""
    array = label.detach().cpu().numpy() if isinstance(label, torch.Tensor) else label
    value = array.item() if isinstance(array, np.ndarray | np.generic) and array.size == 1 else label
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise BadInput(f"item {number} has the label {label!r}: a whole number is needed, from 0 to classes - 1")
    return value


class Streamed:
    """A torch data set of (picture, label), read by worker processes in the order that the trainer asks for.

    `labels`: whether they are needed; where they are not, items may be pictures alone. `smoothing`, `input_range`: as for
    `Held`.
    """

    def __init__(
        self,
        data: Any,
        device: torch.device,
        classes: int | None,
        workers: int = 2,
        labels: bool = True,
        smoothing: Smoothing | None = None,
        input_range: Range = UNIT_RANGE,
    ):
        self.data, self.device, self.workers, self.size = data, device, workers, len(data)
        if self.size == 0:
            raise BadInput("the data set is empty: at least one picture with its label is needed")
        refuses = smoothing is not None and type(smoothing).check is not Smoothing.check
        self.labels, self._check = labels, smoothing.check if smoothing and refuses else None
        item = Repeatable(data, 0)[0, 0]
        reader = _Reader(Items.like(item), labels, is_exact(smoothing), input_range)
        x, _ = reader.read([item])
        read, _ = reader.items.read(item, "item 0")
        self._read = replace(reader, like=(read.shape, read.dtype))
        self.shape, self.levels = x.shape[1:], 255 if x.dtype == torch.uint8 else None
        if classes is None and labels:
            raise BadInput(f"a {type(data).__name__} does not say how many classes it has: give classes=")
        if classes is not None and labels:
            _refuse_one_class(type(data).__name__, classes)
        self.classes = classes or 0

    def described(self) -> dict[str, str]:
        """As `Held.described`: of pictures in files the names and labels identify them, of other items only their number."""
        if isinstance(self.data, Decoded):
            return {"data": f"{self.data.name} of {self.size}", "data_listing_sha256": self.data.listing()}
        return {"data": f"{type(self.data).__name__} of {self.size}"}

    def _checked(self, read: Pair | BadInput, items: Repeatable, keys: list[tuple[int, int]]) -> Pair:
        """What was read of the items of these keys; refused where that is a problem, or where the smoothing has no views."""
        if isinstance(read, BadInput):
            for number, place in keys:
                self._read.read([items[number, place]], number)  # raises it with the number of the item
            raise read
        if self._check is not None:
            for (number, _), x in zip(keys, read[0], strict=True):
                try:
                    self._check(x[None])
                except BadInput as problem:
                    raise BadInput(f"input {number}: {problem}") from None
        return read

    def pairs(self, order: Order, first: int, last: int) -> Iterator[Pair]:
        """As `Held.pairs`."""
        items, steps = Repeatable(self.data, order.seed), _Steps(order, first, last)
        loader: torch.utils.data.DataLoader[Pair | BadInput] = torch.utils.data.DataLoader(
            items,  # type: ignore[arg-type]
            batch_sampler=steps,
            collate_fn=self._read,
            num_workers=self.workers,
            pin_memory=self.device.type == "cuda",
        )
        with children_as_before():
            for step, read in enumerate(loader, first):
                x, y = self._checked(read, items, steps.keys(step))
                if self.labels and not 0 <= int(y.min()) <= int(y.max()) < self.classes:
                    raise BadInput(
                        f"labels from {int(y.min())} to {int(y.max())}: labels below classes={self.classes} are needed"
                    )
                yield x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)


def source_of(
    data: Any,
    device: torch.device,
    classes: int | None = None,
    workers: int = 2,
    labels: bool = True,
    smoothing: Smoothing | None = None,
    input_range: Range = UNIT_RANGE,
) -> Held | Streamed:
    """The source of training pictures for a data set of `vauban.data`, arrays (x, y), or a torch data set or loader.

    Pictures in files that do not fit into memory are decoded as they are needed, by `workers` processes, as items of torch data
    sets are. `labels`: whether they are needed; where they are not, pictures x alone will do. `smoothing`: the one to train with;
    inputs that it cannot be certified on are refused, in memory all of them now, streamed ones when they are read. `input_range`:
    of the values of pictures.
    """
    if isinstance(data, Dataset) and fits_into_memory(data):
        return Held(data.held(), device, labels, smoothing, input_range)
    if isinstance(data, Dataset):
        if labels:
            _check_labels(data)
        classes, data = data.num_classes, Decoded(data)
    if isinstance(data, torch.utils.data.DataLoader):
        data, workers = items_of_loader(data), data.num_workers
    if isinstance(data, np.ndarray | torch.Tensor):
        data = (data, None)
    if isinstance(data, tuple) and len(data) == 2:
        arrays = _from_arrays(*data, classes, is_exact(smoothing), input_range)
        return Held(arrays, device, labels, smoothing, input_range)
    numbered = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if numbered and not isinstance(data, torch.utils.data.IterableDataset):
        return Streamed(data, device, classes, workers, labels, smoothing, input_range)
    raise BadInput(NOT_NUMBERED.format(what=type(data).__name__))


def _from_arrays(x: Any, y: Any, classes: int | None, exact: bool, input_range: Range) -> Dataset:
    """A data set of arrays or tensors x [m, ...] and y [m], or None."""
    x = x.detach().cpu() if isinstance(x, torch.Tensor) else np.asarray(x)
    if x.ndim > 1 and len(x):
        read_inputs(x[:1], exact, input_range=input_range)  # the type, before numbers are made floats
    if y is None:
        return Dataset(np.asarray(_floats(x)), None, classes or 0, tuple(map(str, range(classes or 0))), "arrays")
    labels = np.asarray(y.cpu() if isinstance(y, torch.Tensor) else y)
    if not np.issubdtype(labels.dtype, np.integer):
        raise BadInput(f"y is of type {labels.dtype}: labels must be whole numbers, one for each input")
    count = classes if classes is not None else int(labels.max(initial=0)) + 1
    return Dataset(np.asarray(_floats(x)), labels.astype(np.int64), count, tuple(map(str, range(count))), "arrays")


def _floats(x: Any) -> Any:
    """An array or a tensor of 8-bit numbers as it is, of others as float32."""
    if isinstance(x, torch.Tensor):
        return x if x.dtype == torch.uint8 else x.float()
    return x if x.dtype == np.uint8 else x.astype(np.float32)


def _check_labels(data: Dataset) -> None:
    if data.labels is None:
        raise BadInput(f"{data.name} has no labels to train on: give data with labels, or train a denoiser by mse")
    _refuse_one_class(data.name, len(np.unique(data.labels)))


def _refuse_one_class(name: str, classes: int) -> None:
    if classes < 2:
        raise BadInput(f"{name}: one class only: two or more are needed to train a classifier")


def _fits(values: torch.Tensor, device: torch.device) -> bool:
    free, _ = torch.cuda.mem_get_info(device)
    return values.nbytes <= _SHARE * free
