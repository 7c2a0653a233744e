"""Exact certificates for any elementwise-concave metric. [Levine2023] Definition 4.1"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

from vauban.errors import BadInput
from vauban.laws.designs.law import LIST_PARAMETERS, DesignLaw, fraction
from vauban.laws.designs.metrics import Tabulated
from vauban.specs import Parameter, Spec
from vauban.threats import Threat

CONCAVE = Threat("concave", "sum of g(|change|) over all numbers", "units of g, pictures in [0,1]", "closed")


@dataclass(frozen=True)
class ConcaveLaw(DesignLaw):
    """A list of views of which at most the rate times the sum of g(|change|) change; radii are such sums.

    [Levine2023] Theorem 4.3. The law cannot be built from text: its spec holds only a hash of g.

    >>> law = ConcaveLaw(Tabulated.of(lambda z: min(2 * z, 1), 10), budget=40, levels=10)
    >>> law.views, law.design.weights, law.radius_tolerating([3])
    (40, ((5, 8),), array([0.1]))
    """

    g: Tabulated
    scale: Fraction = Fraction(1)
    offsets: int = 0
    representation: str = "upper_lower"
    coupling: str = "cyclic"
    budget: int = 1000
    levels: int = 255
    name: ClassVar[str] = "concave"
    parameters: ClassVar[dict[str, Parameter]] = {"scale": Parameter(fraction, default=Fraction(1)), **LIST_PARAMETERS}

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.g.values) != self.levels + 1:
            raise BadInput(f"g has {len(self.g.values)} values: levels={self.levels} needs {self.levels + 1}")

    @property
    def metric(self) -> Tabulated:
        return self.g

    @property
    def threat(self) -> Threat:
        return CONCAVE

    @property
    def spec(self) -> Spec:
        return Spec(self.name, {"g": self.g.hash, **super().spec.params})

    @classmethod
    def from_spec(cls, spec: Spec) -> Self:
        raise BadInput(f"{spec} cannot be built from text: make it in Python with vauban.Concave(g)")
