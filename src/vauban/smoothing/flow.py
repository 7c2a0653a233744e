"""Views with flow noise: mass is moved at random between neighbouring pixels. [Levine2023] chapter 5"""

from __future__ import annotations

import math

import torch

from vauban.errors import BadInput
from vauban.inputs import LEVELS, ON_GRID
from vauban.laws.flow import FlowLaw, edges, planes
from vauban.smoothing.base import Smoothing, register
from vauban.smoothing.grid import uniforms
from vauban.specs import one_sigma


@register("flow")
class Flow(Smoothing):
    """The picture normalised to mass 1 over all channels, plus the divergence of a random flow. [Levine2023] Definition 5.3

    Views are floating point even for 8-bit pictures (see `FlowLaw`), sum to 1 (with mass="own" to the mass of their picture, in
    units of [0, 1]) and may be negative. Inputs are pictures
    [c, h, w] or [h, w], or lines [w]. A picture without mass, or with negative numbers, has no views: it is refused on the CPU,
    and its views are NaN on other devices, where a check would force synchronisation; `check` refuses it on any device.

    >>> Flow(sigma=0.01, ground="l2")
    Flow(sigma=0.01, ground=l2)
    """

    law: FlowLaw

    def __init__(self, sigma: float, law: str = "laplace", ground: str = "l1", bound: str = "exact", mass: str = "one"):
        self.law = FlowLaw(one_sigma(sigma), law, ground, bound, mass)

    def words(self, shape: torch.Size, levels: int | None = None) -> int:
        return edges(shape)

    def views(self, x: torch.Tensor, words: torch.Tensor, levels: int | None) -> torch.Tensor:
        count, (channels, height, width) = len(words), planes(x.shape[1:])
        if x.device.type == "cpu":
            self.check(x)
        down, right = channels * (height - 1) * width, channels * height * (width - 1)
        vertical, horizontal = self.noise(words).split([down, right], dim=1)
        pictures = normalised(x).view(-1, channels, height, width)
        moved = flow(
            pictures.expand(count, -1, -1, -1),
            vertical.view(count, channels, height - 1, width),
            horizontal.view(count, channels, height, width - 1),
        )
        if self.law.mass == "own":
            moved = moved * (x.flatten(1).double().sum(dim=1) / (levels or 1))[:, None, None, None]
        return moved.float().view(count, *x.shape[1:])

    def differentiable(self, x: torch.Tensor, words: torch.Tensor, levels: int | None = LEVELS) -> torch.Tensor:
        """As in `Smoothing`; numbers below 0 count as 0, and the gradient passes through the division by the mass."""
        mass = x.double().clamp(min=0) * (levels or 1)
        if levels is not None:
            rest = (mass.round() - mass).detach()
            mass = mass + torch.where(rest.abs() < ON_GRID, rest, 0)
        views = self.views(mass, words, None)
        return views / (levels or 1) if self.law.mass == "own" else views

    def noise(self, words: torch.Tensor) -> torch.Tensor:
        """Flows, one per word, same shape: the inverse cdf of the law at 52 bits, in float64."""
        u = uniforms(words)
        if self.law.law == "uniform":
            return (u - 0.5).mul_(2 * math.sqrt(3) * self.law.sigma)
        tail = torch.minimum(u, 1 - u).mul_(2).log_()  # 1 - u is exact
        return tail.copysign_(u - 0.5).mul_(self.law.sigma / math.sqrt(2))

    def check(self, x: torch.Tensor) -> None:
        """Refuse inputs [m, ...] with negative numbers or without mass, naming the first."""
        flat = x.flatten(1)
        for bad, why in (
            ((flat < 0).any(dim=1), "has negative numbers: Wasserstein smoothing moves mass, which is never negative"),
            ((flat <= 0).all(dim=1), "is all black: without mass it cannot be normalised to mass 1; leave it out"),
        ):
            if bool(bad.any()):
                raise BadInput(f"{f'input {int(bad.nonzero()[0])}' if len(x) > 1 else 'the input'} {why}")


def normalised(x: torch.Tensor) -> torch.Tensor:
    """Inputs [m, ...] divided by their mass, float64; NaN for inputs without mass or with negative numbers."""
    flat = x.flatten(1).double()
    mass = flat.sum(dim=1, keepdim=True).masked_fill_((flat < 0).any(dim=1, keepdim=True), math.nan)
    return (flat / mass).view(x.shape)


def flow(pictures: torch.Tensor, vertical: torch.Tensor, horizontal: torch.Tensor) -> torch.Tensor:
    """Apply flow plans to pictures [m, c, h, w]: mass goes down along `vertical` [m, c, h - 1, w] and to the right along
    `horizontal` [m, c, h, w - 1]. [Levine2023] Definition 5.2"""
    moved = pictures.clone()
    moved[..., :-1, :] -= vertical
    moved[..., 1:, :] += vertical
    moved[..., :-1] -= horizontal
    moved[..., 1:] += horizontal
    return moved
