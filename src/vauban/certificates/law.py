"""What a smoothing must know to be certified: how far an attack of size r can move a probability."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from numpy.typing import ArrayLike

from vauban.bounds.clopper_pearson import Floats
from vauban.certificates.rounding import RoundedNoise
from vauban.specs import Parameter, Spec, read_params
from vauban.threats import Threat


class Law(ABC):
    """A law of noise through its shifts; a subclass is a frozen dataclass whose fields are the spec's parameters."""

    name: ClassVar[str]
    threat: ClassVar[Threat]
    parameters: ClassVar[dict[str, Parameter]]

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

    def rounded(self, levels: int) -> RoundedNoise:
        """The law rounded to the grid of step 1 / levels, as an integer table with its deviation."""
        raise NotImplementedError(f"{self.name} has no form on a grid")

    @property
    def spec(self) -> Spec:
        """The text form that rebuilds this law."""
        return Spec(self.name, {key: f"{getattr(self, key):.12g}" for key in self.parameters})

    @classmethod
    def from_spec(cls, spec: Spec) -> Self:
        """Build the law from its text form."""
        return cls(**read_params(spec, cls.parameters))
