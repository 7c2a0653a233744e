"""Base class and registry of smoothings, which make the views of an input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import torch

from vauban.laws import law as law_of
from vauban.laws.law import AnyLaw
from vauban.registry import Registry
from vauban.specs import Spec
from vauban.threats import Threat


class Smoothing(ABC):
    """Makes views of an input from words; its law turns votes on the views into certificates.

    Random words make random views. An exact law has a list of views, each made from one word: the view index is `word % views`.
    The words 0, 1, … make the whole list, random words a sample of it.

    Inputs come in one of two arithmetics. "grid": integers 0..levels that represent [0, 1] (8-bit pictures: 255 levels); noise
    is drawn and added in integers and the sum divided once. "float" (levels None): real numbers without a grid.
    """

    law: AnyLaw

    @classmethod
    def from_spec(cls, spec: Spec) -> Self:
        """Build the smoothing from its text form."""
        self = cls.__new__(cls)
        self.law = law_of(spec)
        return self

    @property
    def spec(self) -> Spec:
        """The text form that rebuilds this smoothing."""
        return self.law.spec

    @property
    def threat(self) -> Threat:
        """The threat that its certificates are about."""
        return self.law.threat

    @abstractmethod
    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        """The number of random words that one view of an input of this shape takes."""

    @abstractmethod
    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        """One view per row of `words` [count, self.words(shape, levels)], float32 [count, ...shape].

        `x` is [1, ...shape] for views of one input or [count, ...shape] for one view of each; integers if `levels` is given.
        """

    def check(self, x: torch.Tensor) -> None:  # noqa: B027
        """Refuse inputs [m, ...] that have no views, naming the first."""

    def view_shape(self, shape: torch.Size) -> torch.Size:
        """The shape of a view of an input of this shape."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in self.spec.params.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Smoothing) and self.spec == other.spec

    def __hash__(self) -> int:
        return hash(str(self.spec))


class SmoothingRegistry(Registry[type[Smoothing]]):
    """Smoothings by the name of their law."""

    group, kind = "vauban.smoothings", "smoothing"


SMOOTHINGS = SmoothingRegistry()

register = SMOOTHINGS.register
