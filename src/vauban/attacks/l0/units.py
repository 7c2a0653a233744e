"""Changes of whole pixels or single features: extreme values and salt-and-pepper noise."""

from __future__ import annotations

import torch

from vauban.attacks.distances import pixels_of
from vauban.attacks.targets import Target
from vauban.errors import BadInput
from vauban.threats import Threat

L0_THREATS = ("l0", "l0-features")


def extremes(target: Target) -> tuple[float, float]:
    """The least and the largest number of an input."""
    if target.input_range is None:
        raise BadInput(
            "attacks that change few numbers as far as possible need a range of inputs, and these have none: give input_range"
        )
    return target.input_range


def units_of(x: torch.Tensor, threat: Threat) -> torch.Tensor:
    """x [b, ...] as [b, channels, units]: a unit is a pixel with all its channels, or a single feature."""
    return pixels_of(x) if threat.name == "l0" else x.flatten(1)[:, None]


def mixed(x: torch.Tensor, other: torch.Tensor, mask: torch.Tensor, threat: Threat) -> torch.Tensor:
    """x [b, ...] with the units in `mask` [b, units] taken from `other` [b, ...]."""
    return torch.where(mask[:, None], units_of(other, threat), units_of(x, threat)).view_as(x)


def changed(x: torch.Tensor, other: torch.Tensor, threat: Threat) -> torch.Tensor:
    """Which units [b, units] differ."""
    return (units_of(x, threat) != units_of(other, threat)).any(dim=1)


def ranks(keys: torch.Tensor) -> torch.Tensor:
    """The rank of each key [b, units] in its row, from 0."""
    return keys.argsort(dim=1).argsort(dim=1)


def salt_and_pepper(
    target: Target, x: torch.Tensor, labels: torch.Tensor, threat: Threat, generator: torch.Generator, pool: int = 1
) -> torch.Tensor:
    """Inputs [b, ...] with random extremes at as few random units as doubling and bisection find adversarial; with `pool` at so
    many times as many, where that is adversarial too.

    Where that fails with random extremes it is tried with the least and with the largest number everywhere; an input for which
    all three fail is returned as it is.
    """
    low, high = extremes(target)
    noise = low + (high - low) * torch.randint(2, x.shape, generator=generator).to(x)
    order = ranks(torch.rand(units_of(x, threat).shape[::2], generator=generator).to(x.device))
    made, left = x.clone(), torch.arange(len(x), device=x.device)
    for values in (noise, torch.full_like(x, low), torch.full_like(x, high)):
        if not len(left):
            break
        count = _fewest(target, x[left], values[left], order[left], labels[left], threat)
        more = mixed(x[left], values[left], order[left] < pool * count[:, None], threat)
        enough = target.adversarial(target.allowed(more), labels[left]) if pool > 1 else count > 0
        wanted = torch.where(enough, pool * count, count)
        made[left] = mixed(x[left], values[left], order[left] < wanted[:, None], threat)
        left = left[count == 0]
    return made


def _fewest(
    target: Target, x: torch.Tensor, values: torch.Tensor, order: torch.Tensor, labels: torch.Tensor, threat: Threat
) -> torch.Tensor:
    """How many units [b], in this order, must have these values for an adversarial input; 0 where all are not enough."""
    total = order.shape[1]
    least, most = (torch.zeros(len(x), dtype=torch.int64, device=x.device) for _ in range(2))

    def judge(rows: torch.Tensor, count: torch.Tensor) -> None:
        some = mixed(x[rows], values[rows], order[rows] < count[:, None], threat)
        good = target.adversarial(target.allowed(some), labels[rows])
        most[rows] = torch.where(good, count, most[rows])
        least[rows] = torch.where(good, least[rows], count)

    count = max(1, total // 64)
    while not target.exhausted:
        rows = (most == 0).nonzero()[:, 0]
        if not len(rows):
            break
        judge(rows, torch.full((len(rows),), count, device=x.device))
        if count == total:
            break
        count = min(total, 2 * count)
    while not target.exhausted:
        rows = (most - least > 1).nonzero()[:, 0]
        if not len(rows):
            break
        judge(rows, (least[rows] + most[rows]) // 2)
    return most
