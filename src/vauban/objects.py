"""Reads data set objects of other libraries: torch, torchvision, Hugging Face; pictures among them are streamed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.errors import BadInput
from vauban.streamed import Source, Streamed

_PICTURES = ("image", "img", "picture")
_LABELS = ("label", "labels", "fine_label", "target")


def is_data_set(x: Any) -> bool:
    """Whether an object is a data set of another library, and neither an array nor a list."""
    if isinstance(x, torch.utils.data.DataLoader | torch.utils.data.Dataset):
        return True
    listed = isinstance(x, list | tuple | str | bytes | Mapping) or hasattr(x, "__array__")
    return not listed and hasattr(x, "__getitem__") and hasattr(x, "__len__")


def read_object(x: Any) -> tuple[Any, np.ndarray | None]:
    """Inputs [m, ...] and labels [m], or None, of a data set object.

    Where items are pictures of Pillow, pairs (picture, label), or mappings with a picture, as torchvision and Hugging Face give
    them, they are streamed: every item is read once now, for its label and its hash, and again when it is needed. Other items
    are read once and kept.
    """
    numbered = hasattr(x, "__len__") and not isinstance(
        x, torch.utils.data.DataLoader | torch.utils.data.IterableDataset
    )
    if not numbered or len(x) == 0 or not _shows_a_picture(x[0]):
        return read_all(x)
    found: dict[int, Any] = {}
    items = Items.like(x[0])

    def read(number: int) -> NDArray[np.uint8]:
        values, found[number] = items.read(x[number], f"item {number}")
        return values

    streamed = Streamed(Source(len(x), read, lambda number: f"item {number} of the {type(x).__name__}"), workers=0)
    for _ in streamed:
        pass
    labels = [found[number] for number in range(len(x))]
    return streamed, None if any(label is None for label in labels) else np.asarray(labels)


@dataclass(frozen=True)
class Items:
    """Reads the items of a data set, all of the kind of its first one.

    `pictures`: whether items are pictures of Pillow, pairs (picture, label) or mappings with a picture; others are arrays, or
    pairs (array, label). `grey`: whether the first picture is grey.
    """

    pictures: bool
    grey: bool = False

    @classmethod
    def like(cls, first: Any) -> Items:
        """The reader of a data set with this first item."""
        shows = _shows_a_picture(first)
        return cls(shows, shows and _picture(first).mode == "L")

    def read(self, item: Any, name: str) -> tuple[Any, Any]:
        """The input of an item and its label, or None: pictures are uint8 [channels, height, width]. `name`: for messages."""
        if self.pictures:
            return _pixels(_picture(item), self.grey, name), _label(item)
        return to_array(item[0] if isinstance(item, tuple | list) and item else item), _label(item)


def _shows_a_picture(item: Any) -> bool:
    if isinstance(item, Mapping):
        return True
    first = item[0] if isinstance(item, tuple | list) and item else item
    return hasattr(first, "convert") and hasattr(first, "mode")


def _picture(item: Any) -> Any:
    """The picture of an item."""
    if isinstance(item, Mapping):
        key = _key(item, _PICTURES, "a picture")
        if not (hasattr(item[key], "convert") and hasattr(item[key], "mode")):
            raise BadInput(
                f"{key!r} of an item is a {type(item[key]).__name__}: a picture of Pillow is needed; give arrays as x and y"
            )
        return item[key]
    return item[0] if isinstance(item, tuple | list) else item


def _label(item: Any) -> Any:
    if isinstance(item, Mapping):
        return item[_key(item, _LABELS, "a label")] if any(key in item for key in _LABELS) else None
    if isinstance(item, tuple | list):
        if len(item) != 2:
            raise BadInput(f"items of {len(item)} elements: pictures, or pairs (picture, label), are needed")
        return item[1]
    return None


def _key(item: Mapping[str, Any], known: tuple[str, ...], what: str) -> str:
    there = [key for key in known if key in item]
    if len(there) != 1:
        raise BadInput(
            f"items have {', '.join(map(repr, item))}, of which {len(there)} are known as {what} ({', '.join(known)}): rename "
            f"one column to {known[0]!r} and leave out the others"
        )
    return there[0]


def _pixels(picture: Any, grey: bool, name: str) -> NDArray[np.uint8]:
    """The values of a picture, uint8 [channels, height, width]: one channel if it and the first are grey, else three."""
    if picture.mode[0] in "IF":
        raise BadInput(f"{name} has more than 8 bits for each value: round it to 8 first")
    values = np.asarray(picture if picture.mode == "L" and grey else picture.convert("RGB"), np.uint8)
    return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)


def read_all(source: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Inputs [m, ...] and labels [m] or None of a torch data set or loader, read once and in order."""
    loads = isinstance(source, torch.utils.data.DataLoader)
    read = source.dataset if loads else source
    streams = isinstance(read, torch.utils.data.IterableDataset)
    if streams:
        warnings.warn(
            f"a {type(read).__name__} has no order that can be checked: inputs are numbered as it yields them now. A run that is "
            "resumed needs the same order, and is refused with another",
            stacklevel=7,
        )
    elif loads:
        _refuse_other_order(source)
    counted = not loads and not streams and hasattr(source, "__len__")
    items = [source[i] for i in range(len(source))] if counted else list(source)
    if not items:
        raise BadInput("the data set is empty: at least one input is needed")
    pairs = [item if isinstance(item, tuple | list) else (item, None) for item in items]
    if any(len(pair) != 2 for pair in pairs):
        raise BadInput(f"items of {len(pairs[0])} elements: inputs, or pairs (input, label), are needed")
    xs, ys = ([to_array(pair[i]) for pair in pairs] for i in range(2))
    join = np.concatenate if isinstance(source, torch.utils.data.DataLoader) else np.stack
    try:
        return join(xs), None if any(y is None for y in ys) else join(ys)  # type: ignore[arg-type]
    except ValueError as problem:
        raise BadInput(f"inputs of different shapes cannot be certified together: {problem}") from None


def _refuse_other_order(loader: Any) -> None:
    """Refuse a loader unless torch's own samplers make it read in order: those of others may shuffle."""
    batches = loader.batch_sampler
    own = batches is None or type(batches) is torch.utils.data.BatchSampler
    sampler = loader.sampler if batches is None else batches.sampler if own else batches
    if type(sampler) is not torch.utils.data.SequentialSampler:
        raise BadInput(
            f"this loader reads in the order of a {type(sampler).__name__}: inputs are numbered by position, so a loader "
            "that reads in order is needed (shuffle=False, no sampler or batch_sampler of your own), or the inputs as an array"
        )


def to_array(value: Any) -> np.ndarray | None:
    """The array of a tensor or of anything like an array; None stays None."""
    if value is None:
        return None
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
