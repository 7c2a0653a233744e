"""Several base classifiers as one: their scores are averaged, and the later ones may be left out where the first agree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vauban.engine.network import votes_of
from vauban.models.composition import check_members, member_names


class Ensemble(nn.Module):
    """Average of the scores of several base classifiers. [Horvath2022]

    The scores are averaged as the networks give them: logits, for all of Vauban's own. Logits because the paper's analysis, that
    noise in them averages out, is about them, and because networks trained alike have logits of one scale; a network that returns
    probabilities has its probabilities averaged.

    `consensus` K: the first K are asked, and where all of them vote alike their average is the answer; the others are asked only
    for the remaining views, whose answer is the average of all. What is certified is the ensemble with this rule.

    The answer to a view is a function of that view alone. Sums are taken in the order of the members. The others are always asked
    in chunks of one size, which depends on the number of rows only, the last chunk filled up: the shape of their arithmetic does
    not depend on how many views are left. Which place of a chunk a view gets does depend on its neighbours, so the scores of the
    others must not depend on the place by a single bit; `probing` lets the engine's check see this.
    """

    probing = False
    """Whether about half of all views are treated as if the first K disagreed, so that places in chunks vary; for checks."""

    def __init__(self, members: Iterable[nn.Module], consensus: int = 0):
        super().__init__()
        self.members = nn.ModuleList(members)
        check_members(len(self.members), consensus)
        self.consensus = consensus

    @property
    def asks_some(self) -> bool:
        """Whether some members are asked about some views only, so that `probing` makes a difference."""
        return self.consensus > 0

    @property
    def parts(self) -> dict[str, nn.Module]:
        """The members, by what the names of their tensors begin with."""
        return dict(zip(member_names(len(self.members)), self.members, strict=True))

    def extra_repr(self) -> str:
        return f"consensus={self.consensus}"

    def forward(self, views: Tensor) -> Tensor:
        if not self.consensus:
            return self.add(views, 0, None) / len(self.members)
        first = [_wide(member(views)) for member in self.members[: self.consensus]]
        left = self._left(first) | _half(views) if self.probing else self._left(first)
        # imported here: what keeps it from being compiled takes torch a second to load
        from vauban.models.later_members import ask_others

        return ask_others(self, views, sum(first[1:], first[0]), left)

    def asked(self, views: Tensor) -> Asked:
        """How many members vote on each of these views, found without a vote of the others."""
        every = len(self.members)
        if not self.consensus:
            return Asked(torch.full((len(views),), every), float(every))
        with torch.inference_mode():
            left = self._left([_wide(member(views)) for member in self.members[: self.consensus]]).cpu()
        size, later = chunk_size(len(views)), every - self.consensus
        chunks = -(-int(left.sum()) // size)
        return Asked(self.consensus + later * left.long(), self.consensus + later * chunks * size / len(views))

    def _left(self, first: list[Tensor]) -> Tensor:
        """The views bool [rows] for which the first members [K] do not vote alike; a score of NaN is a vote of its own."""
        votes = [votes_of(scores) for scores in first]
        return torch.stack([other != votes[0] for other in votes[1:]]).any(0)

    def add(self, views: Tensor, begin: int, total: Tensor | None) -> Tensor:
        """`total` and the scores of the members from `begin` on, added in order."""
        for member in self.members[begin:]:
            scores = _wide(member(views))
            total = scores if total is None else total + scores
        assert total is not None
        return total


@dataclass(frozen=True)
class Asked:
    """How many members were asked, int64 [rows], and for how many rows they computed per view, filled-up chunks included."""

    members: Tensor
    computed: float

    @property
    def mean(self) -> float:
        """The mean number of members asked per view."""
        return float(self.members.double().mean())


def chunk_size(rows: int) -> int:
    """How many views the later members are asked about at once: about an eighth of a shape, in sixteens.

    >>> [chunk_size(rows) for rows in (5, 100, 1000, 4096)]
    [5, 16, 128, 512]
    """
    return min(rows, 16 * -(-rows // 128))


def _wide(scores: Tensor) -> Tensor:
    """Scores in float32 where they have 16 bits, so that averages are not rounded to 16, and whole numbers in float64."""
    if not scores.is_floating_point():
        return scores.double()
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def _half(views: Tensor) -> Tensor:
    """About half of the views, bool [rows], chosen by a hash of each view's bits: whole numbers, whose sum has no rounding."""
    bits = views.flatten(1).float().contiguous().view(torch.int32).long()
    places = torch.arange(1, bits.shape[1] + 1, device=views.device)
    return (bits * places).sum(1) % 101 < 50
