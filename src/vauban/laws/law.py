"""What a smoothing must know to be certified: how far an attack of size r can move a probability."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeVar

from numpy.typing import ArrayLike

from vauban.bounds.clopper_pearson import Floats
from vauban.bounds.simultaneous import ProbabilityBounds
from vauban.errors import BadInput
from vauban.laws.rounded_noise import RoundedNoise
from vauban.registry import Registry
from vauban.specs import Parameter, Spec, read_params
from vauban.threats import Threat


class AnyLaw(ABC):
    """How views are made and what votes on them prove; a subclass is a frozen dataclass of the spec's parameters."""

    name: ClassVar[str]
    parameters: ClassVar[dict[str, Parameter]]
    exact: ClassVar[bool]  # whether every view votes, or a sample of them
    on_grid: ClassVar[bool] = True  # views of an 8-bit picture are exact integers, divided once
    proof_only: ClassVar[frozenset[str]] = frozenset({"bound"})  # parameters that change the proof and not the views

    @property
    @abstractmethod
    def threat(self) -> Threat:
        """What its certificates speak of."""

    def for_shape(self, shape: Sequence[int]) -> Self:
        """The law on inputs of this shape; itself, unless it depends on it."""
        return self

    @property
    def spec(self) -> Spec:
        """The text form that rebuilds this law: parameters that differ from their defaults, or have none."""
        values = {key: getattr(self, key) for key in self.parameters}
        shown = {k: v for k, v in values.items() if self.parameters[k].required or v != self.parameters[k].default}
        return Spec(self.name, {key: _text(value) for key, value in shown.items()})

    def same_views(self, other: AnyLaw) -> bool:
        """Whether votes cast under the other law are votes under this one."""
        mine, theirs = (
            {key: value for key, value in law.spec.params.items() if key not in law.proof_only} for law in (self, other)
        )
        return (self.name, self.exact) == (other.name, other.exact) and mine == theirs

    @classmethod
    def from_spec(cls, spec: Spec) -> Self:
        """Build the law from its text form."""
        return cls(**read_params(spec, cls.parameters))


class Law(AnyLaw):
    """A law of noise through its shifts: votes are a sample of its views, and what they prove is confident."""

    exact: ClassVar[bool] = False

    @abstractmethod
    def most(self, p: ArrayLike, r: ArrayLike) -> Floats:
        """The most that an event of probability p at the input can weigh at a point within distance r."""

    @abstractmethod
    def least(self, p: ArrayLike, r: ArrayLike) -> Floats:
        """The least that an event of probability p at the input can weigh at a point within distance r."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """A distance of the order of the radii this law certifies, where the search for a radius begins."""

    @property
    def farthest(self) -> float:
        """The largest distance there is: no radius exceeds it."""
        return float("inf")

    def rounded(self, levels: int) -> RoundedNoise:
        """The law rounded to the grid of step 1 / levels, as an integer table with its deviation."""
        raise NotImplementedError(f"{self.name} has no form on a grid")

    def calibrated(self, bounds: ProbabilityBounds) -> ProbabilityBounds:
        """The bounds, sharpened where only some probabilities are possible under this law."""
        return bounds

    def deviation(self, shape: Sequence[int], levels: int | None) -> float:
        """Total variation between the views that are made of such an input and this law; floats are taken as they are."""
        return 0.0


def _text(value: Any) -> str:
    """A parameter's value as the grammar writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)


class LawRegistry(Registry[tuple[type[AnyLaw], ...]]):
    """Laws by name: the sampled form, the exact form, or both. An entry point brings a class, or several of one name."""

    group, kind = "vauban.laws", "smoothing"

    def accept(self, thing: Any) -> tuple[type[AnyLaw], ...]:
        forms = tuple(thing) if isinstance(thing, tuple | list) else (thing,)
        if not forms or not all(isinstance(form, type) and issubclass(form, AnyLaw) for form in forms):
            raise BadInput(f"{thing!r} is no law: a subclass of vauban.laws.Law or ExactLaw is needed")
        return forms


LAWS = LawRegistry()

L = TypeVar("L", bound=type[AnyLaw])


def register(form: L) -> L:
    """Class decorator: register a law under its name; a name has at most one sampled and one exact form, of one package."""
    there = LAWS.get(form.name, ())
    package = form.__module__.partition(".")[0]
    if any(other.exact == form.exact or other.__module__.partition(".")[0] != package for other in there):
        raise BadInput(f"the law {form.name!r} is registered already: choose another name")
    LAWS[form.name] = (*there, form)
    return form
