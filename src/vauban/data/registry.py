"""Loads a data set from its text form, whole or in part, and lists what can be loaded."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from vauban.data import cifar10, gtsrb, idx, images, npz  # noqa: F401 (each registers its kind)
from vauban.data.dataset import Dataset, selected
from vauban.data.kinds import KINDS
from vauban.data.locations import SPLIT
from vauban.runs.sections import Selection
from vauban.specs import Parameter, Spec, read_params

_FEW = 5  # inputs of one class: fewer may well be so by chance


@dataclass(frozen=True)
class DataListing:
    """A row of `vauban data`; found is None if it depends on the path= given."""

    name: str
    written: str
    reads: str
    looks: str
    found: bool | None


def load(spec: str | Spec) -> Dataset:
    """Return the data set that `spec` names, for example `load("mnist:split=test")`."""
    parsed = Spec.parse(spec) if isinstance(spec, str) else spec
    kind = KINDS[parsed.name]
    values = read_params(parsed, kind.parameters)
    return kind.read(values, _normalised(parsed, kind.parameters))


def load_some(spec: str | Spec, every: int = 1, limit: int | None = None) -> Dataset:
    """Return inputs 0, every, 2*every, … (at most `limit`) of a data set; its `index` says which they are.

    If each input has its own file, the other files are not opened.
    """
    parsed = Spec.parse(spec) if isinstance(spec, str) else spec
    kind = KINDS[parsed.name]
    if not kind.selects or every < 1 or (limit is not None and limit < 1):
        some = load(parsed).select(every, limit)
    else:
        read = kind.read(read_params(parsed, kind.parameters), _normalised(parsed, kind.parameters), every, limit)
        taken = read.taken or selected(Selection(every=1), every, limit)
        some = replace(read, index=np.arange(0, len(read) * every, every, dtype=np.int64), taken=taken)
    if every > 1 or limit is not None:
        _warn_of_one_class(some)
    return some


def _warn_of_one_class(some: Dataset) -> None:
    """Warn of a selection of `_FEW` inputs or more that are all of one class, as the first of a sorted folder are."""
    if some.labels is not None and len(some) >= _FEW and some.num_classes > 1 and (some.labels == some.labels[0]).all():
        label = int(some.labels[0])
        named = "" if some.class_names[label] == str(label) else f" ({some.class_names[label]})"
        warnings.warn(
            f"all {len(some)} inputs selected from {some.name} are of class {label}{named}: it may be sorted by class; to take "
            "inputs of every class, select every n-th one (--every, every=) over the whole data set",
            stacklevel=3,
        )


def with_split(spec: str, split: str) -> Spec:
    """`spec` with that split, unless it names one itself or its kind has no train and test split."""
    parsed = Spec.parse(spec)
    if "split" in parsed.params or KINDS[parsed.name].parameters.get("split") is not SPLIT:
        return parsed
    return Spec(parsed.name, {**parsed.params, "split": split})


def describe() -> list[DataListing]:
    """Return one row per kind of data: how it is written, what it reads, where it looks, whether it is found."""
    kinds = {name: KINDS[name] for name in KINDS.names()}
    return [
        DataListing(name, kind.written, kind.reads, kind.looks, kind.found() if kind.found else None)
        for name, kind in kinds.items()
    ]


def _normalised(spec: Spec, parameters: Mapping[str, Parameter]) -> str:
    """The text of `spec` with defaults filled in and keys in a fixed order, so that equal data have equal names."""
    filled = {key: spec.params.get(key, parameter.default) for key, parameter in parameters.items()}
    return str(Spec(spec.name, {key: str(text) for key, text in filled.items() if text is not None}))
