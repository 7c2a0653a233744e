"""Registries of named objects, filled by a decorator here or by other packages through entry points."""

from __future__ import annotations

import pkgutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, packages_distributions, version
from typing import Any, ClassVar, TypeVar

from vauban.errors import BadInput
from vauban.specs import choose

T = TypeVar("T")


@dataclass(frozen=True)
class Origin:
    """The installed package that registered a name, and its version."""

    package: str
    version: str


class Registry(dict[str, T]):
    """Maps names to objects of one kind; a subclass names the kind and the entry point group by which other packages add theirs.

    An entry point is loaded when its name is first looked up, and never replaces a name that is registered here.

    >>> class Shapes(Registry[type]):
    ...     group, kind = "vauban.shapes", "shape"
    >>> shapes = Shapes()
    >>> @shapes.register("square")
    ... class Square: ...
    >>> shapes["square"] is Square, shapes.names()
    (True, ['square'])
    """

    group: ClassVar[str]
    kind: ClassVar[str]

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers an object under `name`; a name that is taken is refused."""

        def add(thing: T) -> T:
            if name in self:
                raise BadInput(f"the {self.kind} {name!r} is registered already: choose another name")
            self[name] = thing
            return thing

        return add

    def __missing__(self, name: str) -> T:
        """Load another package's entry point of this name; for an unknown name the error lists the known ones."""
        foreign = self._foreign()
        choose(self.kind, name, {*self, *foreign})
        point = foreign[name]
        try:
            self[name] = self.accept(point.load())
        except Exception as problem:
            raise BadInput(
                f"the {self.kind} {name!r} of {_package(point)} cannot be loaded ({type(problem).__name__}: {problem}): "
                "fix or uninstall that package"
            ) from problem
        return self[name]

    def names(self) -> list[str]:
        """Every name that is registered here or by another package, sorted."""
        return sorted({*self, *self._foreign()})

    def accept(self, thing: Any) -> T:
        """Convert an entry point's object to what the registry stores; a subclass may check it."""
        return thing

    def origin(self, name: str) -> Origin | None:
        """The package that registered a name; None for Vauban's own."""
        for point in entry_points(group=self.group):
            if point.name == name and point.dist is not None and name in self._foreign():
                return Origin(point.dist.name, point.dist.version)
        module = _module(self[name])
        if module in ("vauban", "builtins"):
            return None
        packages = packages_distributions().get(module, [])
        return Origin(packages[0], version(packages[0])) if packages else Origin(module, "not installed")

    def _foreign(self) -> dict[str, EntryPoint]:
        """Entry points of other packages by name, without those that would replace a name registered here."""
        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            if point.name in self and _module(self[point.name]) != point.module.partition(".")[0]:
                warnings.warn(
                    f"{_package(point)} registers the {self.kind} {point.name!r}, a name that is taken: it is ignored",
                    stacklevel=3,
                )
            elif point.name in found and found[point.name].value != point.value:
                raise BadInput(
                    f"{_package(found[point.name])} and {_package(point)} both register the {self.kind} {point.name!r}: "
                    "uninstall one of them"
                )
            else:
                found[point.name] = point
        return found


def import_modules(package: str) -> None:
    """Import every module of a package, so that each registers what it defines."""
    for found in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
        import_module(found.name)


def _module(thing: Any) -> str:
    """The top-level package of an object's code; for a tuple of objects, that of the first."""
    one = thing[0] if isinstance(thing, tuple) else thing
    return str(getattr(one, "__module__", "vauban")).partition(".")[0]


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.module
