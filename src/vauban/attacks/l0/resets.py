"""Puts changed pixels or features of adversarial inputs back, as many as the answer allows. [Schott2019]"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vauban.attacks.l0.units import changed, mixed, ranks
from vauban.attacks.targets import Target
from vauban.threats import Threat

_GROUPS = 128  # into which the changed units of an input are divided first, at most


def reset_groups(
    target: Target,
    x: torch.Tensor,
    other: torch.Tensor,
    labels: torch.Tensor,
    threat: Threat,
    generator: torch.Generator,
    passes: int,
) -> torch.Tensor:
    """Adversarial inputs `other` [b, ...] with as many units as possible put back to those of x [b, ...].

    Groups of random units are put back, those first after which the input stays adversarial by the largest lead: at most 128
    groups, then groups of a quarter the size, down to single units; `passes` passes, fewer where one changes nothing.
    """
    resets = _Resets(target, x, labels, threat, generator)
    for number in range(passes):
        before = changed(x, other, threat).sum(dim=1)
        size = 1 if number else max(1, int(before.max()) // _GROUPS)
        while size:
            other = resets.by_lead(other, size)
            size = max(1, size // 4) if size > 1 else 0
        if target.sampled:
            other = resets.in_turn(other)
        if target.exhausted or bool((changed(x, other, threat).sum(dim=1) == before).all()):
            break
    return other


@dataclass(frozen=True)
class _Resets:
    """Inputs x [b, ...] with their labels [b], whose changed units are put back."""

    target: Target
    x: torch.Tensor
    labels: torch.Tensor
    threat: Threat
    generator: torch.Generator

    def by_lead(self, other: torch.Tensor, size: int) -> torch.Tensor:
        """Put back groups of `size` units: all are tried alone at once, then the best of them are put back together, half as many
        as can be, since leads are others afterwards; and so on until none can."""
        x, other = self.x, other.clone()
        rows = torch.arange(len(x), device=x.device)
        while len(rows) and not self.target.exhausted:
            mask = changed(x[rows], other[rows], self.threat)
            group = torch.where(mask, self._random_ranks(mask) // size, -1)
            count = group.amax(dim=1) + 1
            owner = torch.arange(len(rows), device=x.device).repeat_interleave(count)
            first = torch.arange(int(count.max()), device=x.device)
            number = first.expand(len(rows), -1)[first < count[:, None]]
            alone = mask[owner] & (group[owner] != number[:, None])
            lead = self.target.lead(self._kept(other, rows[owner], alone), self.labels[rows[owner]])
            leads = torch.full((len(rows), len(first)), -torch.inf, device=x.device)
            leads[owner, number] = lead.to(leads)
            place = ranks(-leads)  # of each group: how many others leave a larger lead
            rank = torch.where(mask, place.gather(1, group.clamp(min=0)), len(first))
            rest = self._most_prefixes(other, rows, mask, rank, (leads > 0).sum(dim=1))
            other[rows] = self._kept(other, rows, rest)
            rows = rows[(rest != mask).any(dim=1)]
        return other

    def _most_prefixes(
        self, other: torch.Tensor, some: torch.Tensor, mask: torch.Tensor, rank: torch.Tensor, most: torch.Tensor
    ) -> torch.Tensor:
        """Which units [b, units] of the rows `some` stay changed when half as many of the first ranks are put back as bisection
        finds possible, at most `most` [b]."""
        low, high = torch.zeros_like(most), most + 1
        while not self.target.exhausted:
            rows = (high - low > 1).nonzero()[:, 0]
            if not len(rows):
                break
            middle = (low[rows] + high[rows]) // 2
            kept = mask[rows] & (rank[rows] >= middle[:, None])
            good = self.target.adversarial(self._kept(other, some[rows], kept), self.labels[some[rows]])
            low[rows], high[rows] = torch.where(good, middle, low[rows]), torch.where(good, high[rows], middle)
        return mask & (rank >= (low + 1)[:, None] // 2)

    def in_turn(self, other: torch.Tensor) -> torch.Tensor:
        """Put back single units in random order wherever the answer allows it: where leads are estimates, they miss some."""
        mask = changed(self.x, other, self.threat)
        turn, other = self._random_ranks(mask), other.clone()
        for number in self.target.steps(int(mask.sum(dim=1).max())):
            mask = changed(self.x, other, self.threat)
            reset = mask & (turn == number)
            rows = (reset.any(dim=1) & (mask != reset).any(dim=1)).nonzero()[:, 0]
            if len(rows):
                some = self._kept(other, rows, mask[rows] & ~reset[rows])
                good = self.target.adversarial(some, self.labels[rows])
                other[rows[good]] = some[good]
        return other

    def _kept(self, other: torch.Tensor, rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The inputs of these rows with the units in `mask` as in `other`, the rest as they were."""
        return mixed(self.x[rows], other[rows], mask, self.threat)

    def _random_ranks(self, mask: torch.Tensor) -> torch.Tensor:
        """A random order of units [b, units] in which those of `mask` come first."""
        keys = torch.rand(mask.shape, generator=self.generator).to(mask.device)
        return ranks(keys.masked_fill(~mask, 2.0))
