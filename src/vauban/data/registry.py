"""Loads a data set from its text form, whole or in part, and lists what can be loaded."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vauban.data import cifar10, gtsrb, idx, imagenet, images, npz, table  # noqa: F401 (each registers its kind)
from vauban.data.dataset import Dataset, selected
from vauban.data.kinds import KINDS
from vauban.data.locations import SPLIT
from vauban.data.pictures import ENDINGS, is_picture
from vauban.errors import BadInput
from vauban.runs.sections import Selection
from vauban.specs import Parameter, Spec, read_params
from vauban.streamed import Streamed

ENDINGS_OF = {".npz": "npz", ".csv": "table", ".tsv": "table", ".parquet": "table"}
"""The kinds of data by the endings of their files; those of pictures are `images`."""

_FEW = 5  # inputs of one class: fewer may well be so by chance


@dataclass(frozen=True)
class DataListing:
    """A row of `vauban data`; found is None if it depends on the path= given."""

    name: str
    written: str
    reads: str
    looks: str
    found: bool | None


def load(spec: str | Spec, *, stream: bool = False) -> Dataset:
    """Return the data set that `spec` names, for example `load("mnist:split=test")`, or that of a file or folder.

    `stream`: pictures in files of their own are decoded when they are read, not now.
    """
    parsed = parse(spec)
    kind = KINDS[parsed.name]
    read = kind.read(read_params(parsed, kind.parameters), _normalised(parsed, kind.parameters))
    return read if stream else read.held()


def load_some(
    spec: str | Spec,
    every: int = 1,
    limit: int | None = None,
    *,
    shuffle: int | None = None,
    skip_bad: bool = False,
    stream: bool = False,
    workers: int | None = None,
) -> Dataset:
    """Return inputs 0, every, 2*every, … (at most `limit`) of a data set; its `index` says which they are.

    `shuffle`: the seed of an order in which inputs are taken. If each input has its own file, the other files are not opened;
    `skip_bad` leaves out those that cannot be read, with a warning, and the selection records them; `stream` decodes files when
    they are read, in `workers` threads.
    """
    parsed = parse(spec)
    kind = KINDS[parsed.name]
    if not kind.selects or shuffle is not None or every < 1 or (limit is not None and limit < 1):
        some = load(parsed, stream=True).select(every, limit, shuffle)
    else:
        read = kind.read(read_params(parsed, kind.parameters), _normalised(parsed, kind.parameters), every, limit)
        taken = read.taken or selected(Selection(every=1), every, limit)
        some = replace(read, index=np.arange(0, len(read) * every, every, dtype=np.int64), taken=taken)
    if isinstance(some.images, Streamed) and workers is not None:
        some = replace(some, images=some.images.with_workers(workers))
    if skip_bad:
        some = _readable(some)
    if every > 1 or limit is not None:
        _warn_of_one_class(some)
    return some if stream else some.held()


def parse(spec: str | Spec) -> Spec:
    """The spec of a data set, or of a file or folder by its ending and content: `cat.jpg` is `images:path=cat.jpg`."""
    if isinstance(spec, Spec):
        return spec
    path = Path(os.path.expanduser(spec))
    if not os.path.exists(path) or spec.partition(":")[0] in KINDS.names():
        return Spec.parse(spec)
    if path.suffix.lower() in ENDINGS_OF:
        return Spec(ENDINGS_OF[path.suffix.lower()], {"path": spec})
    if path.is_dir() or is_picture(path):
        return Spec("images", {"path": spec})
    known = ", ".join([*ENDINGS_OF, *ENDINGS])
    raise BadInput(
        f"{spec} is a file of unknown kind: known endings are {known}; or say how to read it (see: vauban data)"
    )


def _readable(some: Dataset) -> Dataset:
    """The data set without the inputs whose files cannot be read."""
    bad = some.unreadable()
    if bad:
        named = [str(bad[0])] if some.names is None else [some.names[position] for position in bad]
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        warnings.warn(
            f"{len(bad)} of {len(some)} selected inputs cannot be read and are skipped, which the run records: "
            f"{', '.join(named[:3])}{more}",
            stacklevel=4,
        )
    return some.without([int(some.index[position]) for position in bad])


def _warn_of_one_class(some: Dataset) -> None:
    """Warn of a selection of `_FEW` inputs or more that are all of one class, as the first of a sorted folder are."""
    if some.labels is not None and len(some) >= _FEW and some.num_classes > 1 and (some.labels == some.labels[0]).all():
        label = int(some.labels[0])
        named = "" if some.class_names[label] == str(label) else f" ({some.class_names[label]})"
        warnings.warn(
            f"all {len(some)} inputs selected from {some.name} are of class {label}{named}: it may be sorted by class; to take "
            "inputs of every class, shuffle it (--shuffle 1, shuffle=1), or select every n-th one (--every, every=)",
            stacklevel=3,
        )


def with_split(spec: str, split: str) -> Spec:
    """`spec` with that split, unless it names one itself or its kind has no train and test split."""
    parsed = parse(spec)
    if "split" in parsed.params or KINDS[parsed.name].parameters.get("split") is not SPLIT:
        return parsed
    return Spec(parsed.name, {**parsed.params, "split": split})


def in_test_split(spec: str) -> Spec | None:
    """The test split of the data set of a text that is, or by default was, its train split; None where there is none."""
    parsed = parse(spec)
    parameter = KINDS[parsed.name].parameters.get("split")
    chosen = parsed.params.get("split") == "train"
    if parameter is SPLIT or (parameter is not None and parameter.read is SPLIT.read and chosen):
        return Spec(parsed.name, {**parsed.params, "split": "test"})
    return None


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
