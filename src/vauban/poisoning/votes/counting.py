"""Counts the votes of base classifiers group by group, on the device that holds their scores."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.errors import BadInput


class VoteCounter:
    """Counts the votes of `models` base classifiers on `inputs` inputs.

    A base classifier votes for the class of its largest score; of equal scores the smaller class wins, and one that is NaN makes
    all 0. `counts` [inputs, classes] are always kept; with `duels`, the number of models that score class a above class b
    [inputs, a, b]; with `votes`, every vote [inputs, models]. `columns`: the numbers of the models, if they are one group of
    more; votes then has a column for each of these.
    """

    def __init__(
        self,
        inputs: int,
        num_classes: int,
        models: int,
        *,
        duels: bool = False,
        votes: bool = False,
        columns: Sequence[int] | None = None,
    ):
        self.models, self.num_classes, self.groups = models, num_classes, 0
        self.columns = None if columns is None else list(columns)
        self.counts = np.zeros((inputs, num_classes), dtype=np.int64)
        self.duels = np.zeros((inputs, num_classes, num_classes), dtype=np.int64) if duels else None
        self.votes = np.zeros((inputs, models), dtype=smallest(num_classes - 1)) if votes else None
        self.seen = np.zeros(inputs, dtype=np.int64)

    def add(self, numbers: Sequence[int], scores: torch.Tensor, start: int = 0) -> None:
        """Count `scores` [len(numbers), n, classes] of the models `numbers` on the inputs start..start+n."""
        ranked = _ranked(scores)
        if ranked.shape[0] != len(numbers) or ranked.shape[2] != self.num_classes:
            raise BadInput(
                f"scores of shape {tuple(ranked.shape)}: [{len(numbers)}, inputs, {self.num_classes}] are needed"
            )
        rows = slice(start, start + ranked.shape[1])
        chosen = ranked.argmax(dim=2)
        classes = torch.arange(self.num_classes, device=ranked.device)
        self.counts[rows] += (chosen.unsqueeze(2) == classes).sum(dim=0).cpu().numpy()
        if self.duels is not None:
            for a in range(self.num_classes):
                self.duels[rows, a] += _above(ranked, a).sum(dim=0).cpu().numpy()
        if self.votes is not None:
            own = list(numbers) if self.columns is None else [self.columns.index(number) for number in numbers]
            self.votes[rows, own] = chosen.T.to(torch.int32).cpu().numpy().astype(self.votes.dtype)
        self.seen[rows] += len(numbers)

    def add_constant(self, numbers: Sequence[int]) -> None:
        """Count models with a constant vote: they give all classes the same score, so they vote for class 0."""
        if len(numbers):
            scores = torch.zeros((1, 1, self.num_classes)).expand(len(numbers), len(self.counts), -1)
            self.add(numbers, scores)

    def plus(self, other: VoteCounter) -> VoteCounter:
        """A counter with the votes of both; `other` holds those of one more group of models.

        Votes are written into the columns of that group, which this counter does not count yet, so that nothing as large as all
        votes is copied; written again, after an interruption, they are the same.
        """
        both = copy.copy(self)
        both.groups = self.groups + 1
        for name, array in self.state().items():
            if name != "votes":
                setattr(both, name, array + getattr(other, name))
        if both.votes is not None:
            assert other.votes is not None
            both.votes[:, other.columns] = other.votes
        return both

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays that `restore` takes, by name."""
        names = ("counts", "duels", "votes", "seen")
        return {name: array for name in names if (array := getattr(self, name)) is not None}

    def restore(self, state: Mapping[str, NDArray[Any]], groups: int, models: int) -> None:
        """Continue from an earlier `state`: the votes of the first `groups` groups, `models` models in all."""
        own = self.state()
        if {name: (a.shape, a.dtype) for name, a in own.items()} != {n: (a.shape, a.dtype) for n, a in state.items()}:
            raise BadInput("the votes have another form than those of this run")
        if (state["seen"] != models).any() or (state["counts"].sum(axis=1) != models).any():
            raise BadInput(f"the votes do not add up to those of {models} models")
        for name, array in state.items():
            setattr(self, name, array)
        self.groups = groups

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The counts in the smallest type that holds them; every model must have voted on every input."""
        missing = np.flatnonzero(self.seen != self.models)
        if len(missing):
            raise BadInput(f"input {missing[0]} has the votes of {self.seen[missing[0]]} of {self.models} models")
        small = smallest(self.models)
        arrays: dict[str, NDArray[Any]] = {"counts": self.counts.astype(small)}
        if self.duels is not None:
            arrays["duels"] = self.duels.astype(small)
        if self.votes is not None:
            arrays["votes"] = self.votes
        return arrays


class PreferenceCounter:
    """Counts second-round votes: whether each model prefers the winner [inputs] of an input to each class, eight bits a byte."""

    def __init__(self, winner: NDArray[np.int64], num_classes: int, models: int):
        self.winner, self.num_classes = winner, num_classes
        self._bits = np.zeros((len(winner), num_classes, models), dtype=bool)

    def add(self, numbers: Sequence[int], scores: torch.Tensor, start: int = 0) -> None:
        """Count `scores` as `VoteCounter.add` does."""
        ranked = _ranked(scores)
        rows = slice(start, start + ranked.shape[1])
        winner = torch.from_numpy(self.winner[rows]).to(ranked.device)
        own = ranked.gather(2, winner[None, :, None].expand(len(numbers), -1, 1))
        classes = torch.arange(self.num_classes, device=ranked.device)
        prefers = (own > ranked) | ((own == ranked) & (winner[None, :, None] < classes))
        self._bits[rows, :, list(numbers)] = prefers.permute(1, 2, 0).cpu().numpy()

    def add_constant(self, numbers: Sequence[int]) -> None:
        """Count models with a constant vote, as `VoteCounter.add_constant` does."""
        if len(numbers):
            self.add(numbers, torch.zeros((1, 1, self.num_classes)).expand(len(numbers), len(self.winner), -1))

    def packed(self) -> NDArray[np.uint8]:
        """uint8 [inputs, classes, ceil(models / 8)], as `numpy.packbits` packs."""
        return np.packbits(self._bits, axis=2)


def smallest(largest: int) -> type[np.unsignedinteger[Any]]:
    """The smallest unsigned type that holds `largest`."""
    return next((t for t in (np.uint8, np.uint16) if largest <= np.iinfo(t).max), np.uint32)


def _ranked(scores: torch.Tensor) -> torch.Tensor:
    if scores.ndim != 3:
        raise BadInput(f"scores of shape {tuple(scores.shape)}: [models, inputs, classes] are needed")
    values = scores.detach()
    if not values.is_floating_point():
        return values
    return values.masked_fill(values.isnan().any(dim=2, keepdim=True), 0)


def _above(ranked: torch.Tensor, a: int) -> torch.Tensor:
    """Whether class a scores above each class [models, inputs, classes]; never above itself."""
    own, classes = ranked[:, :, a : a + 1], torch.arange(ranked.shape[2], device=ranked.device)
    return (own > ranked) | ((own == ranked) & (a < classes))
