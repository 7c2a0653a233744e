"""Base classes and registry of laws. A law says how far an attack of size r can move a probability of votes."""

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
    """Base of sampled and exact laws; a subclass is a frozen dataclass of the spec's parameters."""

    name: ClassVar[str]
    parameters: ClassVar[dict[str, Parameter]]
    exact: ClassVar[bool]  # True: every view votes; False: a sample of them
    on_grid: ClassVar[bool] = True  # views of an 8-bit picture are computed in integers and divided once
    proof_only: ClassVar[frozenset[str]] = frozenset({"bound"})  # parameters that change the proof and not the views

    @property
    @abstractmethod
    def threat(self) -> Threat:
        """The threat that its certificates are about."""

    def without_determinism(self) -> Self:
        """The same law by a proof that holds for a random base classifier too."""
        return self

    def for_shape(self, shape: Sequence[int]) -> Self:
        """The law on inputs of this shape; the same object, unless the law depends on it."""
        return self

    @property
    def spec(self) -> Spec:
        """The text form that rebuilds this law: required parameters, and those that differ from their defaults."""
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
    """A sampled law, given by its shifts U (`most`) and L (`least`): a sample of views votes, and claims are confident."""

    exact: ClassVar[bool] = False

    @abstractmethod
    def most(self, p: ArrayLike, r: ArrayLike) -> Floats:
        """U(p, r): the largest probability, at any point within distance r, of an event of probability p at the input."""

    @abstractmethod
    def least(self, p: ArrayLike, r: ArrayLike) -> Floats:
        """L(p, r): the least probability, at any point within distance r, of an event of probability p at the input."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """A distance of the order of the radii this law certifies, where the search for a radius starts."""

    @property
    def max_distance(self) -> float:
        """The largest distance between two inputs: no radius exceeds it."""
        return float("inf")

    def rounded(self, levels: int) -> RoundedNoise:
        """The law rounded to the grid of step 1 / levels, as an integer table with its deviation."""
        raise NotImplementedError(f"{self.name} has no form on a grid")

    def calibrated(self, bounds: ProbabilityBounds) -> ProbabilityBounds:
        """The bounds, sharpened if only some probabilities are possible under this law."""
        return bounds

    def deviation(self, shape: Sequence[int], levels: int | None) -> float:
        """Upper bound on the total variation between the sampled views of such inputs and this law.

        The rounding of floating-point sums (`levels` None) is not counted.
        """
        return 0.0


def _text(value: Any) -> str:
    """A parameter's value as text in a spec."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "/".join(map(_text, value))
    return repr(value) if isinstance(value, float) else str(value)


class LawRegistry(Registry[tuple[type[AnyLaw], ...]]):
    """Laws by name: the sampled form, the exact form, or both. An entry point gives one class, or a list of both forms."""

    group, kind = "vauban.laws", "smoothing"

    def accept(self, thing: Any) -> tuple[type[AnyLaw], ...]:
        forms = tuple(thing) if isinstance(thing, tuple | list) else (thing,)
        if not forms or not all(isinstance(form, type) and issubclass(form, AnyLaw) for form in forms):
            raise BadInput(f"{thing!r} is no law: a subclass of vauban.laws.Law or vauban.laws.ExactLaw is needed")
        return forms


LAWS = LawRegistry()

L = TypeVar("L", bound=type[AnyLaw])


def register(form: L) -> L:
    """Class decorator: register a law under its name; one package may give a name one sampled and one exact form."""
    registered = LAWS.get(form.name, ())
    package = form.__module__.partition(".")[0]
    if any(other.exact == form.exact or other.__module__.partition(".")[0] != package for other in registered):
        raise BadInput(f"the law {form.name!r} is registered already: choose another name")
    LAWS[form.name] = (*registered, form)
    return form
