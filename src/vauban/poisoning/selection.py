"""Selects the samples of a data set that an ensemble is trained on or votes on; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.data import Dataset, load_some
from vauban.data.classes import stating
from vauban.data.originals import Originals
from vauban.data.registry import with_split
from vauban.errors import BadInput
from vauban.poisoning.votes.run_folder import InputSource


@dataclass(frozen=True, eq=False)
class Selection:
    """Inputs `x` [n, ...], labels `y` [n] or None, and the index [n] of each input in its data set.

    `data` is what was selected by position, before classes were left out. `originals`: keys of the pictures that the inputs are
    scaled copies of, if the data set has them.
    """

    x: NDArray[Any]
    y: NDArray[np.int64] | None
    index: NDArray[np.int64]
    num_classes: int
    data: Dataset
    originals: Originals | None = None

    @property
    def source(self) -> InputSource:
        """The manifest's entries for these inputs."""
        return InputSource(self.data.name, self.data.fingerprint(), self.index, selected=True)


def select(
    data: str | Dataset,
    *,
    split: str,
    every: int = 1,
    limit: int | None = None,
    classes: str | None = None,
    labels_needed: bool = True,
) -> Selection:
    """Inputs 0, every, 2*every, … (at most `limit`) of a data set; of its `split`, unless `data` names another.

    `classes` keeps those classes only, written as "1,7", which become 0, 1, …
    """
    named = data if isinstance(data, Dataset) else with_split(data, split)
    chosen = named.select(every, limit) if isinstance(named, Dataset) else load_some(named, every, limit)
    index = chosen.index
    if chosen.labels is None:
        if labels_needed or classes is not None:
            raise BadInput(f"{chosen.name} has no labels: they are needed to train, and to keep some classes only")
        return Selection(chosen.images, None, index, chosen.num_classes, chosen)
    if classes is None:
        return Selection(chosen.images, chosen.labels, index, chosen.num_classes, chosen, chosen.originals)
    wanted = _read_classes(classes, chosen)
    rows = np.flatnonzero(np.isin(chosen.labels, wanted))
    if not len(rows):
        raise BadInput(f"--classes {classes}: none of the samples chosen from {chosen.name} is of these classes")
    renumbered = np.array([wanted.index(label) for label in chosen.labels[rows]], dtype=np.int64)
    originals = None if chosen.originals is None else chosen.originals.at(rows)
    return Selection(chosen.images[rows], renumbered, index[rows], len(wanted), chosen, originals)


def check_fixed_beforehand(data: Dataset) -> None:
    """Refuse a training set of which one poisoned sample could change every base classifier.

    So it is where the number of classes is read off the labels, and where codes of categories are read off the inputs.
    """
    if not data.codes_fixed:
        raise BadInput(
            f"{data.name}: codes would be places among the values of the training rows, and one poisoned row with a new value "
            "could change the codes of all others; name a table that is fixed beforehand, with every value: codes_from=VALUES.csv"
        )
    if not data.classes_fixed:
        raise BadInput(
            f"{data.name}: how many classes there are would be read off the training labels, and one poisoned label could "
            f"change every base classifier; state them, {stating(data.class_names, data=data.spec)}"
        )


def _read_classes(text: str, data: Dataset) -> list[int]:
    parts = text.split(",")
    wanted = [int(part) for part in parts if part.isascii() and part.isdigit()]
    if len(wanted) < max(2, len(parts)) or len(set(wanted)) < len(wanted):
        raise BadInput(f"--classes {text}: two or more different numbers are needed, for example 1,7")
    if max(wanted) >= data.num_classes:
        raise BadInput(f"--classes {text}: {data.name} has the classes 0 to {data.num_classes - 1}")
    return wanted
