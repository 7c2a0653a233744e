"""Changes of whole pixels or single features: extreme values, salt-and-pepper noise, and resets in groups."""

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
    target: Target, x: torch.Tensor, labels: torch.Tensor, threat: Threat, generator: torch.Generator
) -> torch.Tensor:
    """Inputs [b, ...] with random extremes at as few random units as doubling and bisection find adversarial.

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
        made[left] = mixed(x[left], values[left], order[left] < count[:, None], threat)
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


def reset_groups(
    target: Target,
    x: torch.Tensor,
    other: torch.Tensor,
    labels: torch.Tensor,
    threat: Threat,
    generator: torch.Generator,
    passes: int,
) -> torch.Tensor:
    """Adversarial inputs `other` [b, ...] with as many units as possible put back to those of x [b, ...]. [Schott2019]

    Groups of random units are put back where the input stays adversarial: half of all at once, then quarters, down to one at a
    time, so that units without effect cost few calls; `passes` passes, fewer where one changes nothing.
    """
    for number in range(passes):
        before = changed(x, other, threat).sum(dim=1)
        size = max(1, int(before.max()) // 2) if number == 0 else 1
        while size:
            other = _one_size(target, x, other, labels, threat, generator, size)
            size //= 2
        if target.exhausted or bool((changed(x, other, threat).sum(dim=1) == before).all()):
            break
    return other


def _one_size(
    target: Target,
    x: torch.Tensor,
    other: torch.Tensor,
    labels: torch.Tensor,
    threat: Threat,
    generator: torch.Generator,
    size: int,
) -> torch.Tensor:
    mask = changed(x, other, threat)
    keys = torch.rand(mask.shape, generator=generator).to(x.device)
    group = ranks(keys.masked_fill(~mask, 2.0)) // size  # changed units come first
    for number in target.steps(-(-int(mask.sum(dim=1).max()) // size)):
        mask = changed(x, other, threat)
        reset = mask & (group == number)
        rows = (reset.any(dim=1) & (mask != reset).any(dim=1)).nonzero()[:, 0]
        if not len(rows):
            continue
        some = mixed(x[rows], other[rows], mask[rows] & ~reset[rows], threat)
        good = target.adversarial(some, labels[rows])
        other = other.clone()
        other[rows[good]] = some[good]
    return other
