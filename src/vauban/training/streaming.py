"""Items of training sets that are read when they are needed: of loaders, of picture files, with random changes that repeat."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import data as torch_data

from vauban.data import Dataset
from vauban.errors import BadInput
from vauban.streamed import Streamed as StreamedImages

NOT_NUMBERED = (
    "a {what} cannot be trained on, since its items have no numbers: give a data set of vauban.data, a pair of arrays (x, y), or "
    "a torch data set with __getitem__ and __len__"
)
_SHARE = 0.3  # of the machine's memory that pictures decoded from files may take


def items_of_loader(loader: torch_data.DataLoader[Any]) -> Any:
    """The data set of a loader, or the part of it that its sampler draws from.

    The trainer orders and batches items itself, so a loader that would give other items than its data set is refused.
    """
    sampler, items = loader.sampler, loader.dataset
    if isinstance(items, torch_data.IterableDataset):
        raise BadInput(NOT_NUMBERED.format(what=type(items).__name__))
    if loader.batch_size is None:
        raise BadInput(
            "the loader has batch_size=None or a batch_sampler of its own, and training makes batches itself: give the data set, "
            "whose items are single inputs"
        )
    if loader.collate_fn is not torch_data.default_collate:
        raise BadInput(
            "the loader has a collate_fn, which training would not call: change items in the data set's __getitem__, and give "
            "the data set"
        )
    if type(sampler) is torch_data.SubsetRandomSampler:
        return torch_data.Subset(items, [int(number) for number in sampler.indices])
    if getattr(sampler, "data_source", None) is items:
        if type(sampler) is torch_data.SequentialSampler:
            return items
        size = len(items)
        if type(sampler) is torch_data.RandomSampler and not sampler.replacement and sampler.num_samples == size:
            return items
    raise BadInput(
        f"the loader draws items by a {type(sampler).__name__}, and training takes every item of a data set equally often, and "
        "divides batches among processes itself: give the data set, or torch.utils.data.Subset(data, numbers) for a part of it"
    )


def fits_into_memory(data: Dataset) -> bool:
    """Whether pictures that are decoded when they are read would all fit into a share of the machine's memory."""
    images: Any = data.images
    if not isinstance(images, StreamedImages) or not hasattr(os, "sysconf"):
        return True
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(np.prod(images.shape, dtype=np.int64)) * images.dtype.itemsize <= _SHARE * memory


class Decoded:
    """Pictures of files with their labels, each decoded when it is read, as a torch data set."""

    def __init__(self, data: Dataset):
        images: Any = data.images
        self.images: StreamedImages = images.with_workers(0)
        self.labels, self.name = data.labels, data.name
        self._listing = (data.index, data.names)

    def listing(self) -> str:
        """The sha256, in hex, of the numbers, names and labels of the pictures; the pictures themselves are not read for it."""
        index, names = self._listing
        hashed = hashlib.sha256(np.asarray(index, "<i8").tobytes())
        hashed.update(b"" if self.labels is None else np.asarray(self.labels, "<i8").tobytes())
        hashed.update("\n".join(names or ()).encode())
        return hashed.hexdigest()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> Any:
        picture = self.images[number]
        return picture if self.labels is None else (picture, int(self.labels[number]))


@dataclass(frozen=True)
class Repeatable:
    """Items whose random changes, by the generators of Python, numpy and torch, depend on the seed and on their place in the
    training alone; keys are (number, place). An item that is refused is given as the problem, to which torch would otherwise add
    a traceback."""

    items: Any
    seed: int

    def __getitem__(self, key: tuple[int, int]) -> Any:
        number, place = key
        with _random_numbers_of(self.seed, place):
            try:
                return self.items[number]
            except BadInput as problem:
                return problem

    def __len__(self) -> int:
        return len(self.items)


@contextmanager
def _random_numbers_of(seed: int, place: int) -> Iterator[None]:
    """Seeds the generators of Python, numpy and torch; they go on afterwards as before."""
    word = int(np.random.SeedSequence((seed, place)).generate_state(1)[0])
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(word)
    np.random.seed(word)
    torch.random.default_generator.manual_seed(word)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])
