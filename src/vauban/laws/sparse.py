"""Every pixel shown in exactly one view and hidden in all others, against few changed pixels. [Levine2023] section 4.5"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws.exact import ExactLaw, Ints, check_list, digest
from vauban.laws.law import register
from vauban.specs import Parameter, choose, natural
from vauban.threats import L0, L0_FEATURES, Threat

UNITS = ("pixel", "feature")


@register
@dataclass(frozen=True)
class SparseLaw(ExactLaw):
    """`scale` views; each pixel, or each of its channels (`unit=feature`), is kept in one of them, chosen by the seed `offsets`.

    A changed pixel changes one view, so T tolerated views are T pixels. [Levine2023] section 4.5

    >>> SparseLaw(scale=25).within([3])
    array([3.])
    """

    scale: int
    unit: str = "pixel"
    offsets: int = 0
    levels: int = 255
    name: ClassVar[str] = "sparse"
    parameters: ClassVar[dict[str, Parameter]] = {
        "scale": Parameter(natural, required=True, example="25"),
        "unit": Parameter(str, default="pixel"),
        "offsets": Parameter(natural, default=0),
        "levels": Parameter(natural, default=255),
    }

    def __post_init__(self) -> None:
        choose("unit of sparse", self.unit, UNITS)
        if not isinstance(self.scale, int) or self.scale < 1:
            raise BadInput(f"scale={self.scale}: the number of views, a whole number above zero, is needed")
        check_list(self.scale, self.offsets, "make scale smaller")

    @property
    def threat(self) -> Threat:
        return L0 if self.unit == "pixel" else L0_FEATURES

    @property
    def views(self) -> int:
        return self.scale

    def homes(self, shape: Sequence[int]) -> Ints:
        """The view that keeps each feature [...shape] of such inputs; a pixel's channels share theirs unless `unit` is feature.

        Numbers are dealt out in a shuffled order, so that every view keeps as many as any other, or one more.
        """
        apart = self.unit == "feature" or len(shape) == 1
        units = math.prod(shape) if apart else math.prod(shape[1:])
        order = np.argsort(np.random.Philox(key=self.offsets).random_raw(units), kind="stable")
        homes = np.empty(units, dtype=np.int64)
        homes[order] = np.arange(units) % self.scale
        spread = tuple(shape) if apart else (1, *shape[1:])
        return np.broadcast_to(homes.reshape(spread), tuple(shape))

    def listed(self, shape: Sequence[int]) -> str:
        return digest(self.homes(shape))

    def within(self, changed: ArrayLike) -> Floats:
        return np.asarray(changed, dtype=float)
