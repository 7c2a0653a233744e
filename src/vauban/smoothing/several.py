"""Several smoothings at once, for training: one network then serves all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from vauban import specs
from vauban.errors import BadInput
from vauban.inputs import LEVELS
from vauban.smoothing.base import SMOOTHINGS, Smoothing
from vauban.specs import JOINT, Spec
from vauban.threats import Threat


@dataclass(frozen=True)
class NoLaw:
    """What several smoothings have in place of a law: how their inputs are read. Nothing can be certified by it."""

    spec: Spec
    exact: bool
    on_grid: bool


class Several(Smoothing):
    """Views of several smoothings by turns: row i of a batch has a view of smoothing i modulo their number.

    A network trained on them can be smoothed by each; for training alone, as votes on views of different smoothings have no law.

    >>> Several(["gaussian:sigma=0.25", "gaussian:sigma=0.5"])
    Several(gaussian:sigma=0.25 | gaussian:sigma=0.5)
    """

    def __init__(self, parts: Iterable[Smoothing | str]):
        built = [one if isinstance(one, Smoothing) else _built(one) for one in parts]
        alone = (part for one in built for part in (one.parts if isinstance(one, Several) else (one,)))
        self.parts: tuple[Smoothing, ...] = tuple(dict.fromkeys(alone))
        if not self.parts:
            raise BadInput("no smoothing is given: give one or more, such as gaussian:sigma=0.5")
        laws = [part.law for part in self.parts]
        exact, on_grid = laws[0].exact, laws[0].on_grid
        for part in self.parts:
            if (part.law.exact, part.law.on_grid) != (exact, on_grid):
                raise BadInput(
                    f"{self.parts[0].spec} and {part.spec} read inputs in different ways (exact or random, on a grid or not): "
                    "train a network for each"
                )
        self.law = NoLaw(self.spec, exact, on_grid)  # type: ignore[assignment]

    @property
    def turns(self) -> int:  # type: ignore[override]
        return len(self.parts)

    @property
    def first(self) -> Smoothing:
        return self.parts[0]

    @property
    def spec(self) -> Spec:
        """The texts of all of them."""
        return Spec(JOINT.join(str(part.spec) for part in self.parts))

    @property
    def threat(self) -> Threat:
        raise BadInput(f"{self.spec}: several smoothings have no threat together: take one of them")

    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        return max(part.words(shape, levels) for part in self.parts)

    def view_shape(self, shape: torch.Size) -> torch.Size:
        first, *others = self.parts
        seen = first.view_shape(shape)
        for part in others:
            if part.view_shape(shape) != seen:
                raise BadInput(
                    f"views of {first.spec} are {list(seen)}, those of {part.spec} {list(part.view_shape(shape))}: one network "
                    "takes views of one shape"
                )
        return seen

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        self._check_rows(len(words))
        return self._by_turns(
            [
                part.views(self._rows(x, number), self._words(words, number, x.shape[1:], levels), levels)
                for number, part in enumerate(self.parts)
            ]
        )

    def differentiable(self, x: torch.Tensor, words: torch.Tensor, levels: int | None = LEVELS) -> torch.Tensor:
        self._check_rows(len(words))
        return self._by_turns(
            [
                part.differentiable(self._rows(x, number), self._words(words, number, x.shape[1:], levels), levels)
                for number, part in enumerate(self.parts)
            ]
        )

    def follow(self, views: torch.Tensor, change: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        self._check_rows(len(views))
        own = [
            self._words(words, number, change.shape[1:], LEVELS) for number in range(self.turns)
        ]  # as many on any grid
        return self._by_turns(
            [
                part.follow(self._rows(views, number), self._rows(change, number), own[number])
                for number, part in enumerate(self.parts)
            ]
        )

    def check(self, x: torch.Tensor) -> None:
        for part in self.parts:
            part.check(x)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.spec})"

    def _rows(self, tensor: torch.Tensor, number: int) -> torch.Tensor:
        """The rows of one of the smoothings; a single row is for all."""
        return tensor if len(tensor) == 1 else tensor[number :: self.turns]

    def _words(self, words: torch.Tensor, number: int, shape: torch.Size, levels: int | None) -> torch.Tensor:
        """The words of the rows of one of the smoothings, as many as its views take."""
        return self._rows(words, number)[:, : self.parts[number].words(shape, levels)]

    def _by_turns(self, made: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.stack(tuple(made), dim=1).flatten(0, 1)

    def _check_rows(self, rows: int) -> None:
        if rows % self.turns:
            raise BadInput(
                f"{rows} views of {self.turns} smoothings by turns: give a multiple of {self.turns} inputs, such as "
                f"{-(-rows // self.turns) * self.turns}"
            )


def _built(text: str) -> Smoothing:
    spec = Spec.parse(text)
    return SMOOTHINGS[spec.name].from_spec(spec)


def read(given: Smoothing | str | Iterable[Smoothing | str]) -> Smoothing:
    """One smoothing, or several: objects or texts, in a list or as texts joined by " | "."""
    if isinstance(given, Smoothing):
        return given
    listed: list[Smoothing | str] = []
    for one in [given] if isinstance(given, str) else given:
        listed += [text.strip() for text in one.split(JOINT.strip())] if isinstance(one, str) else [one]
    if len(listed) == 1 and isinstance(listed[0], Smoothing):
        return listed[0]
    found = Several(listed)
    return found.parts[0] if found.turns == 1 else found


def one_alone(given: Smoothing | str) -> Smoothing:
    """The smoothing, or that of the text, by which votes are counted; several have no law together and are refused."""
    if not isinstance(given, Smoothing | str):
        raise BadInput(f"smoothing {given!r}: a smoothing or its text is needed, for example gaussian:sigma=0.5")
    if isinstance(given, Several):
        specs.one_alone(str(given.spec))
    return _built(str(specs.one_alone(given))) if isinstance(given, str) else given
