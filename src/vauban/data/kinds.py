"""Registry of kinds of data sets; other packages add theirs through the entry point group vauban.data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vauban.data.dataset import Dataset
from vauban.errors import BadInput
from vauban.registry import Registry
from vauban.specs import Parameter

Reader = Callable[..., Dataset]


@dataclass(frozen=True)
class Kind:
    """One kind of data: its parameters, its reader, and the texts of its row in `vauban data`.

    `read(values, name)` returns the data set for the parameters' values; `selects`: whether it also takes `every` and `limit`
    and then opens only the selected files; `streams`: whether its inputs are `streamed.Streamed`, decoded when they are read.
    `found`: returns whether the data is available without a path.
    """

    parameters: Mapping[str, Parameter]
    read: Reader
    written: str
    reads: str
    looks: str
    found: Callable[[], bool] | None = None
    selects: bool = False
    streams: bool = False


class KindRegistry(Registry[Kind]):
    """Kinds of data by name."""

    group, kind = "vauban.data", "data set"


KINDS = KindRegistry()


def register(
    name: str,
    *,
    parameters: Mapping[str, Parameter],
    written: str,
    reads: str,
    looks: str = "path=",
    found: Callable[[], bool] | None = None,
    selects: bool = False,
    streams: bool = False,
) -> Callable[[Reader], Reader]:
    """Decorator that registers `read(values: dict, name: str) -> Dataset` as a kind of data, loaded as `name:key=value`."""

    def add(read: Reader) -> Reader:
        if name in KINDS:
            raise BadInput(f"the data set {name!r} is registered already: choose another name")
        KINDS[name] = Kind(dict(parameters), read, written, reads, looks, found, selects, streams)
        return read

    return add
