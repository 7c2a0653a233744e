"""Append-only tallies: one checked line per input and look."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vauban.runs import lines

FILE = "tallies.jsonl"


@dataclass(frozen=True)
class Tally:
    """Counts per class [c] of the first `votes` votes of one input, in the stage "choose" or "count"."""

    input: int
    stage: str
    votes: int
    counts: NDArray[np.int64]

    def line(self, run: str) -> str:
        """The line that stands for this tally in the run with identity `run`, without its newline."""
        some = {str(c): int(count) for c, count in enumerate(self.counts) if count}
        return lines.written(
            {"input": self.input, "stage": self.stage, "votes": self.votes, "counts": some},
            run,
        )

    @classmethod
    def parse(cls, line: str, run: str, num_classes: int) -> Tally:
        """Read a line back; ValueError says what is wrong with it."""
        body = lines.parsed(line, run)
        counts = np.zeros(num_classes, dtype=np.int64)
        for label, count in body["counts"].items():
            if not 0 <= int(label) < num_classes or not isinstance(count, int) or count < 1:
                raise ValueError(f"it counts {count} votes for class {label} of {num_classes}")
            counts[int(label)] = count
        if counts.sum() != body["votes"]:
            raise ValueError(f"its counts sum to {counts.sum()}, not to {body['votes']}")
        return cls(body["input"], body["stage"], body["votes"], counts)


def read(folder: Path, run: str, num_classes: int) -> tuple[list[Tally], int]:
    """Every tally in the folder in file order, and the length in bytes of the sound part of the file."""
    return lines.read(folder / FILE, lambda line: Tally.parse(line, run, num_classes))


class Writer(lines.Writer):
    """Appends tallies to the folder's file."""

    def __init__(self, folder: Path, run: str, sound_length: int):
        super().__init__(folder / FILE, sound_length)
        self._run = run

    def keep(self, tally: Tally) -> None:
        """Append one tally."""
        self.append(tally.line(self._run))


def digest(tallies: list[Tally], run: str) -> str:
    """A hash of all lines, whatever their order in the file."""
    ordered = sorted(tallies, key=lambda tally: (tally.input, tally.stage, tally.votes))
    return hashlib.sha256("\n".join(tally.line(run) for tally in ordered).encode()).hexdigest()
