"""The data set that every reader returns: checked inputs, labels and class names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.data.originals import Originals
from vauban.errors import BadInput
from vauban.files import arrays_sha256
from vauban.runs.sections import Selection
from vauban.runs.selection import shuffled
from vauban.specs import Spec
from vauban.streamed import Streamed
from vauban.validation import check_labels, check_shuffle

MOST_CLASSES = 10**6

_ANY_SAMPLES: ContextVar[bool] = ContextVar("any samples", default=False)


@contextmanager
def any_samples() -> Iterator[None]:
    """Let data sets that are read hold NaN, and labels that are no classes, as a poisoned training set may."""
    before = _ANY_SAMPLES.set(True)
    try:
        yield
    finally:
        _ANY_SAMPLES.reset(before)


def samples_may_be_any() -> bool:
    """Whether data sets are read as in `any_samples`."""
    return _ANY_SAMPLES.get()


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Inputs on the 8-bit grid or as floats, and their labels.

    images: uint8 [m, channels, height, width], or float32 [m, ...], an array or `streamed.Streamed`; labels: int64 [m] or None;
    num_classes: 0 if it is unknown; name: the spec that loads it again. index: int64 [m], the number of
    each input in the whole data set; names: the file of each input, if it has one; classes_fixed: whether the number of
    classes is given and not inferred from the labels or folders. taken: how these inputs were taken from the whole data set;
    None if this is the whole one. features: the names of the columns of a table, None for other inputs. originals: keys of the
    pictures that `images` are scaled copies of, where a reader was asked for them; parts of a training set are made from these.
    codes_fixed: False where the codes of categories were read off these very inputs, so that one more may change them all.
    """

    images: NDArray[Any]
    labels: NDArray[np.int64] | None
    num_classes: int
    class_names: tuple[str, ...]
    name: str
    classes_fixed: bool = False
    index: NDArray[np.int64] = field(default=None)  # type: ignore[arg-type]
    names: tuple[str, ...] | None = None
    taken: Selection | None = None
    features: tuple[str, ...] | None = None
    originals: Originals | None = None
    codes_fixed: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.images, Streamed):
            if len(self.images) == 0:
                raise BadInput(f"{self.name}: no input is left; at least one is needed")
        else:
            self._check_images()
        if len(self.class_names) != self.num_classes:
            raise BadInput(
                f"{self.name}: {len(self.class_names)} class names for {self.num_classes} classes; give each one"
            )
        if self.index is None:
            object.__setattr__(self, "index", np.arange(len(self.images), dtype=np.int64))
        if self.originals is not None and len(self.originals) != len(self.images):
            raise BadInput(
                f"{self.name}: {len(self.originals)} keys of originals for {len(self.images)} inputs: give one for each input"
            )
        if self.labels is not None:
            _check_labels(self.labels, len(self.images), self.num_classes, self.name)

    def _check_images(self) -> None:
        """Refuse inputs of another type, none at all, and NaN; streamed ones are checked as they are read."""
        if self.images.dtype not in (np.uint8, np.float32):
            raise BadInput(f"{self.name}: images are {self.images.dtype}; uint8 or float32 is needed")
        if self.images.ndim < 2 or self.images.size == 0:
            raise BadInput(
                f"{self.name}: images have shape {self.images.shape}; at least one input is needed, [m, ...]"
            )
        if not _ANY_SAMPLES.get():
            _check_finite(self.images, self.name)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def spec(self) -> Spec | None:
        """The spec that loads it again; None where it has no such name."""
        try:
            return Spec.parse(self.name)
        except BadInput:
            return None

    def used_classes(self) -> set[str]:
        """The names of the classes that labels are of."""
        return set() if self.labels is None else {self.class_names[label] for label in np.unique(self.labels)}

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.images.shape[1:]))
        return f"Dataset({self.name!r}: {len(self)} x {shape} {self.images.dtype}, {self.num_classes} classes)"

    def select(self, every: int = 1, limit: int | None = None, shuffle: int | None = None) -> Dataset:
        """Return inputs 0, every, 2*every, … (at most `limit` of them); `index` says which they are.

        `shuffle`: a seed that orders the inputs first (`runs.selection.shuffled`).
        """
        if every < 1 or (limit is not None and limit < 1):
            raise BadInput(f"every={every}, limit={limit} selects nothing; both must be 1 or more")
        if shuffle is None:
            chosen = np.arange(0, len(self), every, dtype=np.int64)[:limit]
        else:
            chosen = np.array(shuffled(len(self), check_shuffle(shuffle)), dtype=np.int64)[::every][:limit]
        if shuffle is None and len(chosen) == len(self):
            return self
        return self._at(chosen, selected(self.selection, every, limit, shuffle))

    def _at(self, chosen: NDArray[np.int64], taken: Selection) -> Dataset:
        """The inputs at these positions."""
        labels = None if self.labels is None else self.labels[chosen]
        names = None if self.names is None else tuple(self.names[i] for i in chosen)
        return replace(
            self,
            images=self.images[chosen],
            labels=labels,
            index=self.index[chosen],
            names=names,
            taken=taken,
            originals=None if self.originals is None else self.originals.at(chosen),
        )

    def unreadable(self, numbers: Sequence[int] | None = None) -> list[int]:
        """The positions of inputs whose files cannot be read, among all or among those of these numbers."""
        wanted = np.arange(len(self)) if numbers is None else np.flatnonzero(np.isin(self.index, numbers))
        if not isinstance(self.images, Streamed):
            return []
        return [int(wanted[position]) for position in self.images[wanted].unreadable()]

    def without(self, numbers: Sequence[int]) -> Dataset:
        """The data set without the inputs of these numbers, which its selection lists as skipped."""
        if not numbers:
            return self
        kept = np.flatnonzero(~np.isin(self.index, numbers))
        return self._at(kept, replace(self.selection, skipped=sorted(numbers)))

    def held(self) -> Dataset:
        """The data set in memory: every input that is streamed is read."""
        return replace(self, images=np.asarray(self.images)) if isinstance(self.images, Streamed) else self

    @property
    def selection(self) -> Selection:
        """How these inputs were taken, with size and fingerprint of the whole data set."""
        if self.taken is not None:
            return self.taken
        if not np.array_equal(self.index, np.arange(len(self))):
            return Selection()
        return Selection(len(self), self.fingerprint(), every=1)

    def fingerprint(self) -> str:
        """Return the sha256, in hex, of the shape, dtype and bytes of images and labels."""
        return arrays_sha256(self.images, self.labels)


def selected(before: Selection, every: int, limit: int | None, shuffle: int | None = None) -> Selection:
    """The selection of every n-th input, at most `limit`, from one; by hand unless that one has every input.

    A limit that leaves nothing out is None, so that equal selections are written alike.
    """
    if before != Selection(before.size, before.sha256, every=1):
        return Selection(before.size, before.sha256)
    if limit is not None and before.size is not None and limit * every >= before.size:
        limit = None
    return Selection(before.size, before.sha256, every, limit, shuffle)


def numbered(num_classes: int, of: str = "") -> tuple[str, ...]:
    """Return the class names "0", "1", …, used if no others are known; errors begin with `of`, the data set."""
    if num_classes > MOST_CLASSES:
        raise BadInput(
            f"{of}{': ' if of else ''}{num_classes} classes, and at most {MOST_CLASSES:,} are possible; without classes= there "
            "are as many as the largest label + 1: correct that label or the number"
        )
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
            f"{min(count, len(labels))}; one label per input is needed"
        )
    try:
        check_labels(labels, count, None if _ANY_SAMPLES.get() else num_classes)
    except BadInput as problem:
        raise BadInput(f"{name}: {problem}") from None
