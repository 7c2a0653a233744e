"""Iterated signed gradients: of the whole picture for L-infinity, of a rectangle for patches. [Levine2023] section E.7"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import torch

from vauban.attacks.base import Attack, Found, Search, Target, at_least, register
from vauban.attacks.walks import walk
from vauban.errors import BadInput
from vauban.threats import Threat


@register("ifgsm")
@dataclass(frozen=True)
class SignedGradients(Attack):
    """Steps of `step` along the sign of the gradient, from the picture itself; the answer is judged after each of them.

    The ball grows with the steps: after i of them the change is at most i * step. [Levine2023] section E.7
    """

    steps: int = 50
    step: float = 0.5 / 255

    threats: ClassVar[tuple[str, ...]] = ("linf",)
    gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        at_least("steps", self.steps, 1)
        at_least("step", self.step, 1e-12)

    def attack(
        self, target: Target, x: torch.Tensor, labels: torch.Tensor, threat: Threat, generator: torch.Generator
    ) -> Found:
        """See `Attack.attack`."""
        search, moved = Search(target, x, labels, threat), x.clone()

        def move(_: int, which: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
            moved[which] = _limited(moved[which] + self.step * slope.sign(), target)
            return moved[which]

        walk(search, torch.arange(len(x), device=x.device), self.steps, lambda which: moved[which], move)
        return Found.of(search)


@register("patch-ifgsm")
@dataclass(frozen=True)
class PatchSignedGradients(Attack):
    """Signed gradients inside a rectangle, from random pixels, at `places` random places. [Levine2023] section E.7

    At each place `steps` steps of `step` follow the loss of the soft smoothed classifier, the hard answer is judged after each,
    and an input stops at its first success. Squares of side `size`, `size` + 1, … `largest` are tried in turn (`largest` 0: only
    `size`), or rectangles of `height` x `width` pixels, which count as the square around them. Where a picture has at most
    `places` places every one of them is attacked, or with `places` 0 in any case. `down`, `right`: only the place whose upper
    left corner is this many pixels from the top and from the left. `together`: places attacked at once.
    """

    size: int = 5
    largest: int = 0
    height: int = 0
    width: int = 0
    places: int = 80
    steps: int = 150
    step: float = 0.05
    together: int = 8
    down: int = -1
    right: int = -1

    threats: ClassVar[tuple[str, ...]] = ("patch",)
    gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("size", "steps", "together"):
            at_least(name, getattr(self, name), 1)
        for name in ("largest", "height", "width", "places"):
            at_least(name, getattr(self, name), 0)
        at_least("step", self.step, 1e-12)
        if (self.down < 0) != (self.right < 0):
            raise BadInput(f"down={self.down}, right={self.right}: a place needs both, from 0 on")
        if bool(self.height) != bool(self.width):
            raise BadInput(f"height={self.height}, width={self.width}: a rectangle needs both, above 0")
        if self.height and self.largest:
            raise BadInput(f"largest={self.largest} with a rectangle: it is for squares of growing sides; leave it out")

    def attack(
        self, target: Target, x: torch.Tensor, labels: torch.Tensor, threat: Threat, generator: torch.Generator
    ) -> Found:
        """See `Attack.attack`."""
        search = Search(target, x, labels, threat)
        for height, width in self._rectangles(x):
            where = self._places(x, height, width, generator)
            for some in where.split(self.together):
                rows = (~search.found()).nonzero()[:, 0]
                if not len(rows) or target.exhausted:
                    break
                self._at(search, target, rows, _inside(x, some, height, width), generator)
        return Found.of(search)

    def _rectangles(self, x: torch.Tensor) -> list[tuple[int, int]]:
        if x.dim() != 4:
            raise BadInput(f"inputs of shape {tuple(x.shape[1:])}: a patch needs pictures [channels, height, width]")
        sides = range(self.size, max(self.size, self.largest) + 1)
        wanted = [(self.height, self.width)] if self.height else [(side, side) for side in sides]
        fitting = [(h, w) for h, w in wanted if h <= x.shape[2] and w <= x.shape[3]]
        if not fitting:
            h, w = wanted[0]
            raise BadInput(
                f"a patch of {h} x {w} pixels does not fit into {x.shape[2]} x {x.shape[3]}: take a smaller one"
            )
        return fitting

    def _places(self, x: torch.Tensor, height: int, width: int, generator: torch.Generator) -> torch.Tensor:
        """Upper left corners [n, 2]: all of them, or `places` that are drawn, each at most once."""
        down, right = range(x.shape[2] - height + 1), range(x.shape[3] - width + 1)
        if self.down >= 0:
            if self.down not in down or self.right not in right:
                raise BadInput(
                    f"down={self.down}, right={self.right}: a patch of {height} x {width} pixels there leaves pictures of "
                    f"{x.shape[2]} x {x.shape[3]}"
                )
            return torch.tensor([[self.down, self.right]])
        every = torch.tensor(list(itertools.product(down, right)))
        order = torch.randperm(len(every), generator=generator)
        return every[order[: self.places or len(every)]]

    def _at(
        self, search: Search, target: Target, rows: torch.Tensor, inside: torch.Tensor, generator: torch.Generator
    ) -> None:
        """Attack the inputs `rows` [n] at every place [p] of `inside` [p, 1, h, w] at once."""
        rows, inside = rows.repeat_interleave(len(inside)), inside.repeat(len(rows), 1, 1, 1)
        pixels = torch.rand(len(rows), *search.x.shape[1:], generator=generator).to(search.x.device)
        low, high = target.input_range or (0.0, 1.0)
        moved = torch.where(inside, low + (high - low) * pixels, search.x[rows])
        search.offer(moved, rows)

        def move(_: int, which: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
            step = self.step * (high - low) * slope.sign() * inside[which]
            moved[which] = _limited(moved[which] + step, target)
            return moved[which]

        walk(search, rows, self.steps, lambda which: moved[which], move)


def _inside(x: torch.Tensor, corners: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Which pixels [p, 1, h, w] of pictures like x lie in the rectangle at each of the corners [p, 2]."""
    down, right = (torch.arange(n) for n in x.shape[2:])
    tall = (down >= corners[:, :1]) & (down < corners[:, :1] + height)
    wide = (right >= corners[:, 1:]) & (right < corners[:, 1:] + width)
    return (tall[:, None, :, None] & wide[:, None, None, :]).to(x.device)


def _limited(x: torch.Tensor, target: Target) -> torch.Tensor:
    return x if target.input_range is None else x.clamp(*target.input_range)
