"""Votes of exact runs that keep counts in place of ballots, for laws whose certificates need no order of views."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vauban.errors import BadInput
from vauban.laws.exact import Ballots
from vauban.votes import BallotPiece, BallotVotes, Counts, checked_body, checked_line


@dataclass(frozen=True)
class CountedInput:
    """Counts per class [c] of the votes of all views of one input."""

    input: int
    counts: Counts


class CountedVotes(BallotVotes):
    """As `BallotVotes`, but only counts are written, once every view of an input has voted; an input that was interrupted begins
    again. The vote of a view is known until then, and to nobody afterwards."""

    file = "counts.jsonl"

    def __init__(
        self, index: Sequence[int], num_classes: int, views: int, sets: bool, truth: Sequence[int] | None = None
    ):
        super().__init__(index, num_classes, views, sets, truth)
        self._counts = np.zeros((len(self.index), num_classes), dtype=np.int64)

    def add(self, piece: Any) -> None:
        """Add the votes of some views, or the counts of an input that were read; ValueError says why they cannot belong here."""
        if isinstance(piece, CountedInput):
            self._add_counts(piece)
            return
        super().add(piece)
        position = self._positions[piece.input]
        if self.cast[position].all():
            self._counts[position] = Ballots(self.votes[position : position + 1], self.num_classes).counts[0]

    def _add_counts(self, read: CountedInput) -> None:
        position = self._positions.get(read.input)
        if position is None:
            raise ValueError(f"input {read.input} is not in the manifest")
        if self.cast[position].any():
            raise ValueError(f"input {read.input} is counted twice")
        self._counts[position] = read.counts
        self.cast[position] = True

    def counts(self, positions: Sequence[int]) -> Counts:
        """Votes per class [n, c] of these inputs, which are complete."""
        return self._counts[list(positions)]

    def ballots(self, positions: Sequence[int]) -> Ballots:
        raise BadInput(
            "this run kept counts and no ballots (certify --keep counts): what needs the vote of every view, such as "
            "bound=position or a patch, needs a run that keeps them"
        )

    def line(self, piece: Any, run: str) -> str:
        some = {str(c): int(count) for c, count in enumerate(piece.counts) if count}
        return checked_line({"input": piece.input, "counts": some}, run)

    def parse(self, line: str, run: str) -> Any:
        body = checked_body(line, run, input=int, counts=dict)
        counts = np.zeros(self.num_classes, dtype=np.int64)
        for label, count in body["counts"].items():
            if not 0 <= int(label) < self.num_classes or type(count) is not int or not 1 <= count <= self.views:
                raise ValueError(
                    f"it counts {count} votes of {self.views} views for class {label} of {self.num_classes}"
                )
            counts[int(label)] = count
        if not self.sets and counts.sum() != self.views:
            raise ValueError(f"its counts sum to {counts.sum()}, and each of {self.views} views has one vote")
        read = CountedInput(body["input"], counts)
        if self.line(read, run) != line:
            raise ValueError("it is not written as a run writes it: every class once and in order")
        return read

    def new_lines(self, piece: BallotPiece, run: str, *, all: bool = False) -> Iterator[str]:
        """The line to append after a piece was added, if it completed its input."""
        return self._lines_of([self._positions[piece.input]], run)

    def unwritten_lines(self, run: str) -> Iterator[str]:
        return self._lines_of(np.flatnonzero(~self._written.any(axis=1)).tolist(), run)

    def _lines_of(self, positions: Any, run: str) -> Iterator[str]:
        for position in positions:
            if self.cast[position].all() and not self._written[position].any():
                self._written[position] = True
                yield self.line(CountedInput(self.index[position], self._counts[position]), run)

    def lines(self, run: str) -> Iterator[str]:
        """Every line, in the order of inputs."""
        for position, number in sorted(enumerate(self.index), key=lambda pair: pair[1]):
            yield self.line(CountedInput(number, self._counts[position]), run)

    def digest(self, run: str) -> str:
        """A hash of all lines, whatever their order in the file."""
        return hashlib.sha256("\n".join(self.lines(run)).encode()).hexdigest()
