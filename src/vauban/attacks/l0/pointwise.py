"""Pointwise attack: from salt-and-pepper noise back towards the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from vauban.attacks.base import Attack, Found, Search, Target, at_least, register
from vauban.attacks.l0.resets import reset_groups
from vauban.attacks.l0.units import L0_THREATS, salt_and_pepper
from vauban.threats import Threat

_POOL = 4  # times as many units as are needed: those that stay are chosen among them


@register("pointwise")
@dataclass(frozen=True)
class Pointwise(Attack):
    """Random extremes at four times as many pixels (or features) as make the input adversarial, which are then put back while it
    stays so; the best of `restarts`. [Schott2019]

    It needs hard labels only; which pixels are put back first is better chosen with votes or scores.
    """

    threats: ClassVar = L0_THREATS
    gradient: ClassVar = False

    restarts: int = 10
    passes: int = 2

    def __post_init__(self) -> None:
        at_least("restarts", self.restarts, 1)
        at_least("passes", self.passes, 1)

    def attack(
        self, target: Target, x: torch.Tensor, labels: torch.Tensor, threat: Threat, generator: torch.Generator
    ) -> Found:
        search = Search(target, x, labels, threat)
        rows = (search.radii() > 0).nonzero()[:, 0]
        for _ in target.steps(self.restarts if len(rows) else 0):
            some, own = x[rows], labels[rows]
            noisy = target.allowed(salt_and_pepper(target, some, own, threat, generator, _POOL))
            search.offer(noisy, rows)
            begun = (noisy != some).flatten(1).any(dim=1)
            if bool(begun.any()):
                less = reset_groups(target, some[begun], noisy[begun], own[begun], threat, generator, self.passes)
                search.offer(less, rows[begun])
        return Found.of(search)
