"""Base class and registry of smoothings, which make the views of an input."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import Any, Self

import torch

from vauban.errors import BadInput
from vauban.inputs import LEVELS
from vauban.laws import law as law_of
from vauban.laws.law import AnyLaw
from vauban.registry import Registry
from vauban.smoothing.grid import GridNoise, to_unit
from vauban.specs import Spec
from vauban.threats import Threat
from vauban.validation import refuse_bools


class Smoothing(ABC):
    """Makes views of an input from words; its law turns votes on the views into certificates.

    Random words make random views. An exact law has a list of views, each made from one word: the view index is `word % views`.
    The words 0, 1, … make the whole list, random words a sample of it.

    Inputs come in one of two arithmetics. "grid": integers 0..levels that represent [0, 1] (8-bit pictures: 255 levels); noise
    is drawn and added in integers and the sum divided once. "float" (levels None): real numbers without a grid.
    """

    law: AnyLaw
    turns = 1
    """How many smoothings take turns in a batch; above 1 only in `Several`, where a part of a batch must be a multiple of it."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Let every smoothing, also of other packages, refuse True and False where its parameters are no flags."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _without_bools(cls.__init__)  # type: ignore[method-assign]

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

    @property
    def first(self) -> Smoothing:
        """The first of those that take turns, by which held-out inputs are judged."""
        return self

    @abstractmethod
    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        """The number of random words that one view of an input of this shape takes."""

    @abstractmethod
    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        """One view per row of `words` [count, self.words(shape, levels)], float32 [count, ...shape].

        `x` is [1, ...shape] for views of one input or [count, ...shape] for one view of each; integers if `levels` is given.
        """

    def differentiable(self, x: torch.Tensor, words: torch.Tensor, levels: int | None = LEVELS) -> torch.Tensor:
        """The views that `views` makes from the same words, of float pictures x in [0, 1], differentiable in x.

        `x`: [1 or count, ...shape]. `words`: those of the grid of `levels`, to which x is rounded to make the view; None for
        words and views of floats. Where x is on the grid, values are those of `views`, bit for bit; `follow` says what is added
        where it is not, and how gradients pass. Numbers outside [0, 1] are allowed.
        """
        if levels is None and self.law.exact:
            raise BadInput(f"{self.spec} is exact, and its views are made on a grid: give levels={LEVELS}")
        with torch.no_grad():
            if levels is None:
                near, views = x, self.views(x.detach().clone(), words, None)
            else:
                steps = (x * levels).round().clamp(0, levels).to(torch.uint8 if levels <= LEVELS else torch.int32)
                near, views = to_unit(steps, levels), self.views(steps, words, levels)
        return self.follow(views, x - near.detach(), words)

    def follow(self, views: torch.Tensor, change: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Views made from `words` after a `change` of their pictures by less than a step of the grid.

        Here the gradient alone passes, as if a view were its picture (straight-through): right for views that are steps of
        their picture. A subclass adds the change where views move with it.
        """
        if views.shape[1:] != change.shape[1:]:
            raise BadInput(
                f"views of {self.spec} have another shape than pictures: {type(self).__name__}.follow is needed"
            )
        return views + without_value(change)

    def sample(
        self, x: torch.Tensor, generator: torch.Generator | None = None, levels: int | None = LEVELS
    ) -> torch.Tensor:
        """One random view of each float picture x [b, ...] in [0, 1], differentiable in x (see `differentiable`)."""
        if not x.is_floating_point():
            raise BadInput(f"pictures of type {x.dtype}: floats in [0, 1] are needed; divide 8-bit values by 255")
        return self.differentiable(x, self.random_words(x, generator, levels), levels)

    def random_words(
        self, x: torch.Tensor, generator: torch.Generator | None = None, levels: int | None = LEVELS
    ) -> torch.Tensor:
        """Words for one view of each picture of x [b, ...], int64 [b, words of a view], from torch's generator."""
        device = x.device if generator is None else generator.device
        size = (len(x), self.words(x.shape[1:], levels))
        return torch.randint(2**63 - 1, size, generator=generator, device=device).to(x.device)

    def check(self, x: torch.Tensor) -> None:  # noqa: B027
        """Refuse inputs [m, ...] that have no views, naming the first."""

    def packed(self, levels: int) -> GridNoise | None:
        """The table whose packed noise (`GridNoise.noisy`) is all that views add to inputs on the grid; None for other views."""
        return None

    def view_shape(self, shape: torch.Size) -> torch.Size:
        """The shape of a view of an input of this shape."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in self.spec.params.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Smoothing) and self.spec == other.spec

    def __hash__(self) -> int:
        return hash(str(self.spec))


def _without_bools(init: Any) -> Any:
    """The `__init__` of a smoothing after a check of its arguments."""

    @functools.wraps(init)
    def checked(self: Smoothing, *given: Any, **named: Any) -> None:
        refuse_bools(init, (self, *given), named)
        init(self, *given, **named)

    return checked


def without_value(change: torch.Tensor) -> torch.Tensor:
    """Zeros through which the gradient passes to `change`."""
    return change - change.detach()


def refuse_exact_settings(**given: tuple[object, object]) -> None:
    """Refuse settings of an exact form, each with the value that it has by default, where the sampled form is asked for."""
    for name, (value, usual) in given.items():
        if value != usual:
            raise BadInput(f"{name}={value}: the sampled form has none; leave it out, or leave sampled=True out")


def follow_where_kept(views: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    """Views in which a number is shown as (v, 1 - v) or hidden as (0, 0), after a `change` of their pictures."""
    first, second = views.chunk(2, dim=1)
    moved = torch.where(first + second > 0.5, change, 0)
    return views + torch.cat([moved, -moved], dim=1)


class SmoothingRegistry(Registry[type[Smoothing]]):
    """Smoothings by the name of their law."""

    group, kind = "vauban.smoothings", "smoothing"


SMOOTHINGS = SmoothingRegistry()

register = SMOOTHINGS.register
