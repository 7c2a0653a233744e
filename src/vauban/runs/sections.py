"""The sections of a manifest, as plain values (docs/run-folder.md says what each field means)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DIVIDED, AS_GIVEN = "8-bit values divided by 255", "floats as given"
"""What `inputs.preprocessing` of a manifest says."""


@dataclass(frozen=True)
class InputSection:
    """How inputs are read: 8-bit pictures on a grid (`levels` 255) or floats (None); `range` None allows any value.

    `standardised`: mean and scale of each feature, and of which data they are statistics (`vauban.standardise`).
    """

    levels: int | None
    arithmetic: str
    range: tuple[float, float] | None
    deviation_per_view: float
    preprocessing: str
    standardised: dict[str, Any] | None = None


@dataclass(frozen=True)
class Selection:
    """Which inputs of a data set were taken: 0, every, 2 * every, …, at most `limit`; by hand where `every` is None.

    `size`, `sha256`: of the whole data set; None where they are not known. `shuffle`: the seed of the order in which inputs were
    counted (`runs.selection.shuffled`), None for that of the data set. `skipped`: numbers of inputs that the rule takes and
    whose files could not be read, None if there are none.
    """

    size: int | None = None
    sha256: str | None = None
    every: int | None = None
    limit: int | None = None
    shuffle: int | None = None
    skipped: list[int] | None = None


@dataclass(frozen=True)
class DataSection:
    """Which inputs: `index` [m] in their data set, true labels [m] or None, file names [m] where there are any.

    `selection`: how they were taken from the whole data set; None in runs that did not record it. `features`: the names of the
    columns of a table, None for other inputs.
    """

    spec: str
    sha256: str
    shape: tuple[int, ...]
    num_classes: int
    index: list[int]
    label: list[int] | None
    names: list[str] | None = None
    selection: Selection | None = None
    features: list[str] | None = None


@dataclass(frozen=True)
class ModelSection:
    """The base classifier: its text form, and the hash of its code and tensors.

    `depends`: hashes of the files it is declared to read, by name. `views`, `scores`: hashes of fixed views and of its scores,
    of which `kept_scores` holds some rows (`files.floats_hex`).
    """

    spec: str
    sha256: str
    depends: dict[str, str] | None = None
    views: str | None = None
    scores: str | None = None
    kept_scores: str | None = None


@dataclass(frozen=True)
class ComputeSection:
    """What the network's answers depend on besides its weights: compute shape, precision, device, threads, layout.

    `backend`: of a network that torch does not run, the library: name, version, precision, hash of the model's ONNX form.
    """

    rows: int
    precision: str
    device: str
    threads: int
    channels_last: bool
    torch: str
    block: int | None = None
    compile: bool | str | None = None
    by_blocks: list[str] | None = None
    stochastic: str | None = None
    rows_differ: bool | None = None
    backend: dict[str, str] | None = None


@dataclass(frozen=True)
class SeedSection:
    """The hash that commits to the secret, and where that comes from (`vauban.seed.KINDS`; None in older runs).

    `nonce_from`: of an announced run, where its nonce will come from.
    """

    commitment: str
    kind: str | None = None
    nonce_from: str | None = None
