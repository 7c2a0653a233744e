"""Names and what they stand for: registered by a decorator here, or by another package through an entry point."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points, packages_distributions, version
from typing import Any, Generic, TypeVar

from vauban.errors import BadInput
from vauban.specs import choose

T = TypeVar("T")


@dataclass(frozen=True)
class Origin:
    """The installed package that registered a name, and its version."""

    package: str
    version: str


class Registry(Generic[T]):
    """Maps names to objects of one kind; `group` names the entry points by which other packages add theirs.

    An entry point is loaded when its name is first asked for, and never replaces a name that is registered here.

    >>> shapes: Registry[type] = Registry("vauban.shapes", "shape")
    >>> @shapes.register("square")
    ... class Square: ...
    >>> shapes["square"] is Square, list(shapes), "circle" in shapes
    (True, ['square'], False)
    """

    def __init__(self, group: str, kind: str):
        self.group, self.kind = group, kind
        self._here: dict[str, T] = {}
        self._loaded: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers an object under `name`; a name that is taken is refused."""

        def keep(thing: T) -> T:
            if name in self._here:
                raise BadInput(f"the {self.kind} {name!r} is registered already: choose another name")
            self._here[name] = thing
            return thing

        return keep

    def __getitem__(self, name: str) -> T:
        """The object of this name; an unknown name is answered with the known ones."""
        if name in self._here:
            return self._here[name]
        choose(self.kind, name, self)
        if name not in self._loaded:
            self._loaded[name] = self._load(self._foreign()[name])
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._here or name in self._foreign()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._here, *self._foreign()}))

    def origin(self, name: str) -> Origin | None:
        """The package that brought a name; None for Vauban's own."""
        if name in self._here:
            module = getattr(self._here[name], "__module__", "vauban").partition(".")[0]
            if module == "vauban":
                return None
            packages = packages_distributions().get(module, [])
            return Origin(packages[0], version(packages[0])) if packages else Origin(module, "not installed")
        point = self._foreign()[name]
        return Origin(point.dist.name, point.dist.version) if point.dist else Origin(point.module, "unknown")

    def _foreign(self) -> dict[str, EntryPoint]:
        """Entry points of other packages by name, those left out that would replace a name of Vauban's own."""
        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            if point.name in self._here:
                warnings.warn(
                    f"{_package(point)} brings a {self.kind} {point.name!r}, a name Vauban has already: it is ignored",
                    stacklevel=3,
                )
            elif point.name in found and found[point.name].value != point.value:
                raise BadInput(
                    f"{_package(found[point.name])} and {_package(point)} both bring a {self.kind} {point.name!r}: "
                    "uninstall one of them"
                )
            else:
                found[point.name] = point
        return found

    def _load(self, point: EntryPoint) -> T:
        try:
            return self._accept(point.load())
        except Exception as problem:
            raise BadInput(
                f"the {self.kind} {point.name!r} of {_package(point)} cannot be loaded ({type(problem).__name__}: "
                f"{problem}): mend or uninstall that package"
            ) from problem

    def _accept(self, thing: Any) -> T:
        """What an entry point's object is kept as."""
        return thing


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.module
