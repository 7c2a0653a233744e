"""Sparse views: every pixel is kept in exactly one view, against attacks on few pixels. [Levine2023] section 4.5"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from vauban.bounds.clopper_pearson import Floats
from vauban.errors import BadInput
from vauban.laws.exact import ExactLaw, Ints, check_view_list, digest, points_of
from vauban.laws.law import register
from vauban.specs import Parameter, choose, natural
from vauban.threats import L0, L0_FEATURES, Threat

UNITS = ("pixel", "feature")


@register
@dataclass(frozen=True)
class SparseLaw(ExactLaw):
    """`scale` views; each pixel, or each of its channels (`unit=feature`), is kept in one of them, chosen by the seed `offsets`
    or, with `layout=lattice`, so that each view keeps pixels that are spread evenly over the picture.

    A changed pixel changes one view, so T tolerated views are T pixels. [Levine2023] section 4.5

    >>> SparseLaw(scale=25).radius_tolerating([3])
    array([3.])
    """

    scale: int
    unit: str = "pixel"
    offsets: int = 0
    levels: int = 255
    layout: str = "random"
    name: ClassVar[str] = "sparse"
    parameters: ClassVar[dict[str, Parameter]] = {
        "scale": Parameter(natural, required=True, example="25"),
        "unit": Parameter(str, default="pixel"),
        "offsets": Parameter(natural, default=0),
        "levels": Parameter(natural, default=255),
        "layout": Parameter(str, default="random", example="lattice"),
    }

    def __post_init__(self) -> None:
        choose("unit of sparse", self.unit, UNITS)
        if not isinstance(self.scale, int) or self.scale < 1:
            raise BadInput(f"scale={self.scale}: the number of views, a whole number above zero, is needed")
        check_view_list(self.scale, self.offsets, self.layout, "make scale smaller")

    @property
    def threat(self) -> Threat:
        return L0 if self.unit == "pixel" else L0_FEATURES

    @property
    def views(self) -> int:
        return self.scale

    def view_of_feature(self, shape: Sequence[int]) -> Ints:
        """The index of the view that keeps each feature [...shape]; a pixel's channels share one unless `unit` is feature.

        Units are assigned in a shuffled order, or along a lattice: no view keeps more than one unit more than another.
        """
        separate = self.unit == "feature" or len(shape) == 1
        unit_shape = tuple(shape) if separate else (1, *shape[1:])
        units = math.prod(unit_shape)
        if self.layout == "random":
            keys, numbers = np.random.Philox(key=self.offsets).random_raw(units), np.arange(units) % self.scale
        else:
            keys, numbers = points_of(unit_shape).ravel(), np.arange(units) * self.scale // units
        view_of_unit = np.empty(units, dtype=np.int64)
        view_of_unit[np.argsort(keys, kind="stable")] = numbers
        return np.broadcast_to(view_of_unit.reshape(unit_shape), tuple(shape))

    def views_hash(self, shape: Sequence[int]) -> str:
        return digest(self.view_of_feature(shape))

    def radius_tolerating(self, changed: ArrayLike) -> Floats:
        return np.asarray(changed, dtype=float)
