"""Variable-width splitting without randomness, against fractional Lp attacks. [Levine2023] chapter 4"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from vauban.errors import BadInput
from vauban.laws.designed import LISTED, DesignedLaw, fraction
from vauban.laws.metrics import Power
from vauban.specs import Parameter
from vauban.threats import Threat, lp


@dataclass(frozen=True)
class ExactFractionalLaw(DesignedLaw):
    """A list of views for which the sum of |change|^p is a bound on how many of them change; radii in Lp units.

    [Levine2023] Theorem 4.3, C.3. T tolerated views make r the largest number with B r^p < T + 1: never less than C.77 has it.

    >>> law = ExactFractionalLaw(Fraction(1, 2), Fraction(18))
    >>> law.views, law.within([4000, 8999])
    (18000, array([16.008001, 81.      ]))
    >>> law.within([8999]) < 81, round(law.error, 4)
    (array([ True]), 0.0172)
    """

    p: Fraction
    scale: Fraction = Fraction(1)
    offsets: int = 0
    representation: str = "upper_lower"
    coupling: str = "cyclic"
    budget: int = 1000
    levels: int = 255
    name: ClassVar[str] = "fractional"
    parameters: ClassVar[dict[str, Parameter]] = {
        "p": Parameter(Fraction, required=True, example="1/2"),
        "scale": Parameter(fraction, default=Fraction(1), example="18"),
        **LISTED,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        Power(self.p)
        if self.p == 1 and self.budget % self.levels:
            raise BadInput(
                f"budget={self.budget}: at p=1 (the L1 norm) every width is the widest, and the budget must be a multiple of "
                f"levels={self.levels}: write budget={self.levels * max(1, round(self.budget / self.levels))}"
            )

    @property
    def metric(self) -> Power:
        return Power(self.p)

    @property
    def threat(self) -> Threat:
        return replace(lp(self.p), ball="closed")
