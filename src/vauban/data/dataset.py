"""What every reader returns: inputs, their labels and the names of the classes, checked once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.errors import BadInput
from vauban.files import arrays_sha256


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Inputs on the 8-bit grid or as floats, and what they show.

    images: uint8 [m, channels, height, width], or float32 [m, ...]; labels: int64 [m] or None;
    num_classes: 0 when nothing says how many there are; name: the spec that loads it again; classes_fixed: whether
    the number of classes is stated, not read off the labels or folders.
    """

    images: NDArray[Any]
    labels: NDArray[np.int64] | None
    num_classes: int
    class_names: tuple[str, ...]
    name: str
    classes_fixed: bool = False

    def __post_init__(self) -> None:
        if self.images.dtype not in (np.uint8, np.float32):
            raise BadInput(f"{self.name}: images are {self.images.dtype}; uint8 or float32 is needed")
        if self.images.ndim < 2 or self.images.size == 0:
            raise BadInput(
                f"{self.name}: images have shape {self.images.shape}; at least one input is needed, [m, ...]"
            )
        if len(self.class_names) != self.num_classes:
            raise BadInput(
                f"{self.name}: {len(self.class_names)} class names for {self.num_classes} classes; give each one"
            )
        _check_finite(self.images, self.name)
        if self.labels is not None:
            _check_labels(self.labels, len(self.images), self.num_classes, self.name)

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.images.shape[1:]))
        return f"Dataset({self.name!r}: {len(self)} x {shape} {self.images.dtype}, {self.num_classes} classes)"

    def select(self, every: int = 1, limit: int | None = None) -> tuple[Dataset, NDArray[np.int64]]:
        """Return inputs 0, every, 2*every, … (at most `limit` of them) and their indices, int64 [selected]."""
        if every < 1 or (limit is not None and limit < 1):
            raise BadInput(f"every={every}, limit={limit} selects nothing; both must be 1 or more")
        indices = np.arange(0, len(self), every, dtype=np.int64)[:limit]
        if len(indices) == len(self):
            return self, indices
        labels = None if self.labels is None else self.labels[indices]
        return replace(self, images=self.images[indices], labels=labels), indices

    def fingerprint(self) -> str:
        """Return the sha256, in hex, of the shape, dtype and bytes of images and labels."""
        return arrays_sha256(self.images, self.labels)


def numbered(num_classes: int) -> tuple[str, ...]:
    """Return the class names "0", "1", … where nothing better is known."""
    return tuple(map(str, range(num_classes)))


def _check_finite(images: NDArray[Any], name: str) -> None:
    if images.dtype == np.uint8:
        return
    for index, image in enumerate(images):
        if not np.isfinite(image).all():
            raise BadInput(f"{name}: input {index} holds NaN or infinity; every value must be a finite number")


def _check_labels(labels: NDArray[Any], count: int, num_classes: int, name: str) -> None:
    if labels.dtype != np.int64 or labels.ndim != 1:
        raise BadInput(f"{name}: labels are {labels.dtype} of shape {labels.shape}; int64 [{count}] is needed")
    if len(labels) != count:
        raise BadInput(
            f"{name}: {count} inputs and {len(labels)} labels, so the first without a partner is "
            f"{min(count, len(labels))}; there must be one label an input"
        )
    outside = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if outside.size:
        raise BadInput(
            f"{name}: the label of input {outside[0]} is {labels[outside[0]]}; with {num_classes} classes "
            f"labels are 0 to {num_classes - 1}"
        )
