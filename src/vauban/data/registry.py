"""Names the kinds of data Vauban reads and how each is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.data import cifar10, idx, images, npz
from vauban.data.dataset import Dataset
from vauban.data.places import SEARCHED
from vauban.specs import Parameter, Spec, choose, read_params


@dataclass(frozen=True)
class Kind:
    """One kind of data: its parameters, its reader (values and name to a data set), and what a listing says of it."""

    parameters: Mapping[str, Parameter]
    read: Callable[[Mapping[str, Any], str], Dataset]
    written: str
    reads: str
    looks: str
    found: Callable[[], bool] | None = None
    read_some: Callable[[Mapping[str, Any], str, int, int | None], Dataset] | None = None


@dataclass(frozen=True)
class Listing:
    """A row of `vauban data`; found is None where that depends on the path= given."""

    name: str
    written: str
    reads: str
    looks: str
    found: bool | None


KINDS: dict[str, Kind] = {
    "mnist": Kind(
        idx.MNIST_PARAMETERS,
        idx.mnist,
        "mnist:split=test",
        "60,000 + 10,000 digits, 1x28x28; split=test, train or all",
        "inside the package",
        idx.mnist_found,
    ),
    "cifar10": Kind(
        cifar10.PARAMETERS,
        cifar10.read,
        "cifar10:path=FOLDER,split=test",
        "50,000 + 10,000 pictures, 3x32x32; binary or pickled batches",
        f"path=, else {SEARCHED}",
        cifar10.found,
    ),
    "idx": Kind(
        idx.IDX_PARAMETERS,
        idx.folder,
        "idx:path=FOLDER,split=test,classes=10",
        "IDX files, plain or .gz, under MNIST's names (Fashion-MNIST, KMNIST, …)",
        "path=",
    ),
    "images": Kind(
        images.PARAMETERS,
        images.read,
        "images:path=FOLDER,split=SUBFOLDER,size=224,channels=3",
        f"FOLDER/CLASS/picture{{{','.join(images.ENDINGS)}}}",
        "path=",
        read_some=images.read,
    ),
    "npz": Kind(
        npz.PARAMETERS,
        npz.read,
        "npz:path=FILE.npz,images=images,labels=labels,classes=10,layout=chw",
        "arrays of numpy.savez, uint8 or floats, labels optional",
        "path=",
    ),
}


def load(spec: str | Spec) -> Dataset:
    """Return the data set that `spec` names, for example `load("mnist:split=test")`."""
    parsed = Spec.parse(spec) if isinstance(spec, str) else spec
    kind = KINDS[choose("data set", parsed.name, KINDS)]
    values = read_params(parsed, kind.parameters)
    return kind.read(values, _normalised(parsed, kind.parameters))


def load_some(spec: str | Spec, every: int = 1, limit: int | None = None) -> tuple[Dataset, NDArray[np.int64]]:
    """Return inputs 0, every, 2*every, … (at most `limit`) of a data set, and their indices.

    Where each input has a file of its own the others are not even opened.
    """
    parsed = Spec.parse(spec) if isinstance(spec, str) else spec
    kind = KINDS[choose("data set", parsed.name, KINDS)]
    if kind.read_some is None or every < 1 or (limit is not None and limit < 1):
        return load(parsed).select(every, limit)
    some = kind.read_some(read_params(parsed, kind.parameters), _normalised(parsed, kind.parameters), every, limit)
    return some, np.arange(0, len(some) * every, every, dtype=np.int64)


def with_split(spec: str, split: str) -> Spec:
    """`spec` with that split, unless it names one itself or its kind has none."""
    parsed = Spec.parse(spec)
    kind = KINDS[choose("data set", parsed.name, KINDS)]
    if "split" in parsed.params or "split" not in kind.parameters or parsed.name == "images":
        return parsed
    return Spec(parsed.name, {**parsed.params, "split": split})


def describe() -> list[Listing]:
    """Return one row for each kind of data: how it is written, what it reads, where it looks, whether it is there."""
    return [
        Listing(name, kind.written, kind.reads, kind.looks, kind.found() if kind.found else None)
        for name, kind in KINDS.items()
    ]


def _normalised(spec: Spec, parameters: Mapping[str, Parameter]) -> str:
    """Write `spec` with its defaults filled in and its keys in one order, so that equal data have equal names."""
    filled = {key: spec.params.get(key, parameter.default) for key, parameter in parameters.items()}
    return str(Spec(spec.name, {key: str(text) for key, text in filled.items() if text is not None}))
