"""Exact certificates for any elementwise-concave metric. [Levine2023] Definition 4.1"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws.designs.law import LIST_PARAMETERS, DesignLaw, fraction
from vauban.laws.designs.metrics import Tabulated
from vauban.laws.exact import ExactLaw
from vauban.specs import Parameter, Spec
from vauban.threats import Threat

FEATURES = Threat(
    "concave-features",
    "sum of g_i(|change|), g_i of its feature, over all numbers",
    "units of g, pictures in [0,1]",
    "closed",
)
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
    layout: str = "random"
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


@dataclass(frozen=True)
class ConcavePartsLaw(ExactLaw):
    """A different g for every feature of a table, or for every channel of pictures: part i of `parts` is the law of its numbers.

    All parts have lists of the same length V and the same rate R. Part i separates values k steps apart in at most R g_i(k /
    levels) of the V views, so an attack changes at most R times the sum of g_i(|change_i|) of them, whatever the coupling
    between parts: [Levine2023] Definition 4.1 and Theorem 4.3 with g_i in place of g. Parts have offsets of their own, so that
    they are not all cut in the same views.
    """

    parts: tuple[ConcaveLaw, ...]
    name: ClassVar[str] = "concave"
    parameters: ClassVar[dict[str, Parameter]] = {}

    def __post_init__(self) -> None:
        if not self.parts:
            raise BadInput("g=[]: one function for each feature is needed")
        first = self.parts[0]
        if first.layout != "random":
            raise BadInput(f"layout={first.layout}: a different g for every feature has random offsets; leave it out")
        parts = tuple(replace(part, offsets=part.offsets + number) for number, part in enumerate(self.parts))
        same = ("scale", "representation", "coupling", "budget", "levels", "layout")
        if any(getattr(part, name) != getattr(first, name) for part in parts for name in same):
            raise BadInput(f"the laws of the features differ in {', '.join(same)}: only g may differ")
        object.__setattr__(self, "parts", parts)

    @property
    def levels(self) -> int:  # type: ignore[override]
        """Steps of the grid."""
        return self.parts[0].levels

    @property
    def representation(self) -> str:
        """How bins are shown."""
        return self.parts[0].representation

    @property
    def views(self) -> int:
        return self.parts[0].views

    @property
    def rate(self) -> Fraction:
        """R: the number of views that an attack of size 1 may change."""
        return self.parts[0].rate

    @property
    def threat(self) -> Threat:
        return FEATURES

    @property
    def spec(self) -> Spec:
        hashes = hashlib.sha256(" ".join(part.g.hash for part in self.parts).encode()).hexdigest()[:16]
        return Spec(self.name, {"g": f"{len(self.parts)}x{hashes}", **_without_g(self.parts[0].spec)})

    def for_shape(self, shape: Sequence[int]) -> Self:
        """The same law; refused unless inputs have as many features, or channels, as there are functions."""
        if len(self.parts) != shape[0]:
            what = "features" if len(shape) == 1 else "channels"
            raise BadInput(
                f"{len(self.parts)} functions g for inputs of shape {tuple(shape)}: {shape[0]} {what} need {shape[0]}"
            )
        return self

    def views_hash(self, shape: Sequence[int]) -> str:
        hashes = [part.views_hash((1, *shape[1:])) for part in self.for_shape(shape).parts]
        return hashlib.sha256(" ".join(hashes).encode()).hexdigest()

    def manifest_fields(self) -> dict[str, Any]:
        return {"designs": [part.manifest_fields()["design"] for part in self.parts]}

    def radius_tolerating(self, changed: ArrayLike) -> Floats:
        return self.parts[0].radius_tolerating(changed)


def _without_g(spec: Spec) -> dict[str, str]:
    return {key: value for key, value in spec.params.items() if key != "g"}
