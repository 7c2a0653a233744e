"""Changes of whole pixels or single features: extreme values, salt-and-pepper noise, and resets in groups."""

from __future__ import annotations

import torch

from vauban.attacks.distances import pixels_of
from vauban.attacks.targets import Target
from vauban.errors import BadInput
from vauban.threats import Threat

L0_THREATS = ("l0", "l0-features")

_GROUPS = 128  # into which the changed units of an input are divided first, at most


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

    Groups of random units are put back, those first after which the input stays adversarial by the largest lead: at most 128
    groups, then groups of a quarter the size, down to single units; `passes` passes, fewer where one changes nothing.
    """
    for number in range(passes):
        before = changed(x, other, threat).sum(dim=1)
        size = 1 if number else max(1, int(before.max()) // _GROUPS)
        while size:
            other = _reset_by_lead(target, x, other, labels, threat, generator, size)
            size = max(1, size // 4) if size > 1 else 0
        if target.sampled:
            other = _reset_in_turn(target, x, other, labels, threat, generator)
        if target.exhausted or bool((changed(x, other, threat).sum(dim=1) == before).all()):
            break
    return other


def _reset_by_lead(
    target: Target,
    x: torch.Tensor,
    other: torch.Tensor,
    labels: torch.Tensor,
    threat: Threat,
    generator: torch.Generator,
    size: int,
) -> torch.Tensor:
    """Put back groups of `size` units: all are tried alone at once, then the best of them are put back together, half as many as
    can be, since leads are others afterwards; and so on until none can."""
    rows = torch.arange(len(x), device=x.device)
    other = other.clone()
    while len(rows) and not target.exhausted:
        mask = changed(x[rows], other[rows], threat)
        keys = torch.rand(mask.shape, generator=generator).to(x.device)
        group = torch.where(mask, ranks(keys.masked_fill(~mask, 2.0)) // size, -1)  # changed units come first
        count = group.amax(dim=1) + 1
        owner = torch.arange(len(rows), device=x.device).repeat_interleave(count)
        first = torch.arange(int(count.max()), device=x.device)
        number = first.expand(len(rows), -1)[first < count[:, None]]
        alone = mask[owner] & (group[owner] != number[:, None])
        lead = target.lead(mixed(x[rows[owner]], other[rows[owner]], alone, threat), labels[rows[owner]])
        leads = torch.full((len(rows), len(first)), -torch.inf, device=x.device)
        leads[owner, number] = lead.to(leads)
        place = ranks(-leads)  # of each group: how many others leave a larger lead
        rank = torch.where(mask, place.gather(1, group.clamp(min=0)), len(first))
        rest = _most_prefixes(target, x[rows], other[rows], mask, rank, (leads > 0).sum(dim=1), labels[rows], threat)
        moved = (rest != mask).any(dim=1)
        other[rows] = mixed(x[rows], other[rows], rest, threat)
        rows = rows[moved]
    return other


def _most_prefixes(
    target: Target,
    x: torch.Tensor,
    other: torch.Tensor,
    mask: torch.Tensor,
    rank: torch.Tensor,
    most: torch.Tensor,
    labels: torch.Tensor,
    threat: Threat,
) -> torch.Tensor:
    """Which units [b, units] stay changed when half as many of the first ranks are put back as bisection finds possible, at most
    `most` [b]."""
    low, high = torch.zeros_like(most), most + 1
    while not target.exhausted:
        rows = (high - low > 1).nonzero()[:, 0]
        if not len(rows):
            break
        middle = (low[rows] + high[rows]) // 2
        kept = mask[rows] & (rank[rows] >= middle[:, None])
        good = target.adversarial(mixed(x[rows], other[rows], kept, threat), labels[rows])
        low[rows], high[rows] = torch.where(good, middle, low[rows]), torch.where(good, high[rows], middle)
    return mask & (rank >= (low + 1)[:, None] // 2)


def _reset_in_turn(
    target: Target,
    x: torch.Tensor,
    other: torch.Tensor,
    labels: torch.Tensor,
    threat: Threat,
    generator: torch.Generator,
) -> torch.Tensor:
    """Put back single units in random order wherever the answer allows it: where leads are estimates, they miss some."""
    mask = changed(x, other, threat)
    keys = torch.rand(mask.shape, generator=generator).to(x.device)
    turn = ranks(keys.masked_fill(~mask, 2.0))
    other = other.clone()
    for number in target.steps(int(mask.sum(dim=1).max())):
        mask = changed(x, other, threat)
        reset = mask & (turn == number)
        rows = (reset.any(dim=1) & (mask != reset).any(dim=1)).nonzero()[:, 0]
        if len(rows):
            some = mixed(x[rows], other[rows], mask[rows] & ~reset[rows], threat)
            good = target.adversarial(some, labels[rows])
            other[rows[good]] = some[good]
    return other
