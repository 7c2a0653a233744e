"""Flow noise, mass moved between neighbouring pixels, against Wasserstein attacks. [Levine2023] chapter 5"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws.laplace import LaplaceLaw
from vauban.laws.law import Law, register
from vauban.laws.uniform import UniformLaw
from vauban.specs import Parameter, choose, one_sigma, positive
from vauban.threats import OWN_MASS, WASSERSTEIN, WASSERSTEIN_L2, Threat

LAWS = ("laplace", "uniform")
GROUNDS = {"l1": WASSERSTEIN, "l2": WASSERSTEIN_L2}
BOUNDS = {"exact": "exact", "paper": "lecuyer"}

MASSES = ("one", "own")

_ROOT_TWO = math.nextafter(math.sqrt(2), 2)


@register
@dataclass(frozen=True)
class FlowLaw(Law):
    """Independent noise of standard deviation sigma on the flow across every border between two neighbouring pixels.

    Pictures are normalised to mass 1 over all channels. Two of them with the same mass in each channel differ by a flow plan,
    and the least L1 norm of such a plan is their 1-Wasserstein distance with ground metric l1, nothing moving between
    channels: [Levine2023] Lemma 5.1, Corollary D.2. With D the view made by a flow, D(x', z) = D(x, z + plan), so the votes
    are those of h(z) = f(D(x, z)) under L1 smoothing in flow space, and the Laplace or uniform shift holds at the plan's norm
    (Theorem 5.1). Only additive noise has this property: under splitting noise views depend on the choice of plan (section
    D.4). In one dimension plans are unique and the shifts exact. `ground` l2: |z|_1 <= sqrt 2 |z|_2 makes r at most sqrt 2 r
    in l1 (Corollary D.3); in one dimension both grounds are the same, and l1 gives the larger radius. `bound`: "exact", or
    "paper" for the thesis' e^(+-r/b) p, which for the top class is R = b/2 log(p / (1 - p)), b = sigma / sqrt 2 (equation 5.18).
    `mass`: "one", or "own": views are multiplied by the mass that the picture had, as the published code does. The claim is then
    about attacks that leave this mass as it is: h(z) = f(m D(x, z)) with the same m for both pictures, and the proof is the same.

    Views are floating point even for 8-bit pictures: the picture divided by its mass and the noise are float64, and their sum
    is rounded to float32 once. The deviation of 0 does not account for that rounding.

    >>> FlowLaw(sigma=0.01).spec
    Spec(name='flow', params={'sigma': '0.01'})
    """

    sigma: float
    law: str = "laplace"
    ground: str = "l1"
    bound: str = "exact"
    mass: str = "one"
    name: ClassVar[str] = "flow"
    on_grid: ClassVar[bool] = False
    proof_only: ClassVar[frozenset[str]] = frozenset({"bound", "ground"})
    parameters: ClassVar[dict[str, Parameter]] = {
        "sigma": Parameter(positive, required=True, example="0.01"),
        "law": Parameter(str, default="laplace"),
        "ground": Parameter(str, default="l1"),
        "bound": Parameter(str, default="exact"),
        "mass": Parameter(str, default="one"),
    }

    def __post_init__(self) -> None:
        one_sigma(self.sigma)
        choose("law of flow noise", self.law, LAWS)
        choose("ground metric", self.ground, GROUNDS)
        choose("bound under flow noise", self.bound, BOUNDS)
        choose("mass of views", self.mass, MASSES)
        if self.law == "uniform" and self.bound != "exact":
            raise BadInput(f"bound={self.bound} is for Laplace noise: leave it out, or leave law=uniform out")

    @property
    def threat(self) -> Threat:
        threat = GROUNDS[self.ground]
        return threat if self.mass == "one" else replace(threat, unit=OWN_MASS)

    @property
    def in_flow_space(self) -> LaplaceLaw | UniformLaw:
        """The law of each flow; its L1 shifts are this law's shifts."""
        return UniformLaw(self.sigma) if self.law == "uniform" else LaplaceLaw(self.sigma, BOUNDS[self.bound])

    def most(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return self.in_flow_space.most(p, self._plan_norm(r))

    def least(self, p: ArrayLike, r: ArrayLike) -> Floats:
        return self.in_flow_space.least(p, self._plan_norm(r))

    def _plan_norm(self, r: ArrayLike) -> Floats:
        """Upper bound on the L1 norm of a shortest plan to a picture within r."""
        return np.asarray(r, dtype=float) * (_ROOT_TWO if self.ground == "l2" else 1.0)

    @property
    def scale(self) -> float:
        return self.in_flow_space.scale

    def for_shape(self, shape: Sequence[int]) -> Self:
        edges(shape)
        return self


def planes(shape: Sequence[int]) -> tuple[int, int, int]:
    """Channels, height and width of an input [w], [h, w] or [c, h, w]; refuses inputs without neighbouring pixels."""
    if not 1 <= len(shape) <= 3:
        raise BadInput(f"inputs of shape {list(shape)}: flow noise needs pictures [c, h, w] or [h, w], or lines [w]")
    channels, height, width = (1,) * (3 - len(shape)) + tuple(shape)
    if height * width < 2:
        raise BadInput(f"inputs of shape {list(shape)}: flow noise needs at least two pixels for mass to flow between")
    return channels, height, width


def edges(shape: Sequence[int]) -> int:
    """The number of entries of a flow plan: one per channel and pair of neighbouring pixels.

    >>> edges((3, 32, 32))
    5952
    """
    channels, height, width = planes(shape)
    return channels * ((height - 1) * width + height * (width - 1))
