"""Vote tables: counts per class at each look, or the vote of every view; requests for counts, and the file lines of votes.

A table accepts records one by one, refuses those its run could not have produced, and writes its lines and its digest. The
same table serves a run in memory, a resumed run, and verification.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.laws.exact import Ballots

Counts = NDArray[np.int64]

STAGES = ("choose", "count", "predict")
MOST = 2**53  # votes of an input
RECENT = 10  # counted records written last, which a table that is read from a file names


@dataclass(frozen=True)
class Tally:
    """Counts per class [c] of the first `votes` votes of one input, in the stage "choose" or "count"."""

    input: int
    stage: str
    votes: int
    counts: Counts


@dataclass(frozen=True)
class BallotPiece:
    """Votes of the views first, first + 1, … of one input: classes [n], or sets of them bool [n, classes]."""

    input: int
    first: int
    votes: NDArray


Record = Tally | BallotPiece


@dataclass(frozen=True)
class CountRequest:
    """A request for the counts of the first `look` votes of an input in a stage.

    `sure`: votes needed regardless of the outcome; `most`: the most that may ever be needed, None for no limit. `after`,
    `before`: where a stage is resumed, how many votes are counted already, and their counts.
    """

    stage: str
    look: int
    sure: int = 0
    most: int | None = None
    after: int = 0
    before: Counts | None = None


CountRequests = Generator[CountRequest, Counts, None]
"""Generator that yields count requests about one input and receives the counts."""


def counts_at(stage: str, looks: Sequence[int], after: int = 0, before: Counts | None = None) -> CountRequests:
    """Requests for counts at each of the looks, ascending and above `after`, regardless of the outcome."""
    for look in looks:
        yield CountRequest(stage, look, looks[-1], looks[-1], after, before)


@dataclass(frozen=True)
class KeptCounts:
    """Counts that an input already has: those that chose its label, and those at its first looks, in order."""

    chosen: Counts | None = None
    looks: Sequence[Counts] = field(default_factory=list)

    def after(self, tally: Tally) -> KeptCounts:
        """These counts and one more tally."""
        if tally.stage == "choose":
            return KeptCounts(tally.counts, self.looks)
        return KeptCounts(self.chosen, [*self.looks, tally.counts])


class SampledVotes:
    """Counts of m inputs so far. `look_at(i)`: the number of votes at look i, None if there is no such look.

    `index` [m]: the number of each input in its data set; `truth` [m]: true labels, if known. `n0`: how many uncounted votes
    choose the label that is certified; 0 where it is the true one.
    """

    file = "tallies.jsonl"

    def __init__(
        self,
        index: Sequence[int],
        num_classes: int,
        look_at: Callable[[int], int | None],
        truth: Sequence[int] | None = None,
        n0: int = 0,
    ):
        self.index, self.num_classes, self.n0 = [int(number) for number in index], num_classes, n0
        self.truth, self._look_at = truth, look_at
        self._positions = {number: position for position, number in enumerate(self.index)}
        self.chosen: list[Counts | None] = [None] * len(self.index)
        self.looks: list[list[Counts]] = [[] for _ in self.index]
        self.recent: list[Tally] = []

    def add(self, tally: Tally) -> None:
        """Add a tally; ValueError says why it cannot belong to this run."""
        position = self._positions.get(tally.input)
        if position is None:
            raise ValueError(f"input {tally.input} is not in the manifest")
        if tally.stage == "choose":
            if tally.votes != self.n0:
                raise ValueError(f"{tally.votes} votes in stage 'choose' are not a look of this run")
            if self.chosen[position] is not None:
                raise ValueError(f"input {tally.input} has its label chosen twice")
            self.chosen[position] = tally.counts
            return
        looks = self.looks[position]
        if self.n0 and self.chosen[position] is None:
            raise ValueError(f"input {tally.input} has no votes that chose its label")
        if tally.stage not in STAGES or not self._may_follow(looks, tally.votes):
            raise ValueError(
                f"{tally.votes} votes in stage {tally.stage!r} of input {tally.input} are not its next look: they are no look "
                "of this run, or counted twice, or an earlier look is missing"
            )
        if looks and (looks[-1] > tally.counts).any():
            raise ValueError(f"input {tally.input} loses votes before its look at {tally.votes}")
        looks.append(tally.counts)

    def _may_follow(self, looks: list[Counts], votes: int) -> bool:
        """Whether counts at this number of votes may follow an input's earlier looks."""
        return votes == self._look_at(len(looks))

    def kept(self, position: int) -> KeptCounts:
        """The counts that an input already has."""
        return KeptCounts(self.chosen[position], list(self.looks[position]))

    def label(self, position: int) -> int | None:
        """The label that is certified: the true one, or the one that votes chose; None if they have not yet."""
        chosen = self.chosen[position]
        if self.n0:
            return None if chosen is None else int(chosen.argmax())
        return None if self.truth is None else int(self.truth[position])

    def labels(self, positions: Sequence[int], given: bool = False) -> Counts:
        """The labels that are certified at these positions [n]. `given`: the true ones, whatever votes chose."""
        found = [int(self.truth[p]) if given and self.truth is not None else self.label(p) for p in positions]
        if None in found:
            raise ValueError(f"input {self.index[positions[found.index(None)]]} has no label to certify")
        return np.array(found, dtype=np.int64)

    def votes_of(self, position: int) -> int:
        """How many counted votes an input has."""
        return int(self.looks[position][-1].sum()) if self.looks[position] else 0

    @property
    def votes_cast(self) -> int:
        """How many counted votes there are in all."""
        return sum(map(self.votes_of, range(len(self.index))))

    @property
    def begun(self) -> list[int]:
        """Positions of the inputs with a first look."""
        return [position for position, looks in enumerate(self.looks) if looks]

    def line(self, tally: Tally, run: str) -> str:
        """The line that holds a tally in the run with identity `run`, without its newline."""
        some = {str(c): int(count) for c, count in enumerate(tally.counts) if count}
        body = {"input": tally.input, "stage": tally.stage, "votes": tally.votes, "counts": some}
        return checked_line(body, run)

    def parse(self, line: str, run: str) -> Tally:
        """Read a line back; ValueError says what is wrong with it."""
        body = checked_body(line, run, input=int, stage=str, votes=int, counts=dict)
        counts, votes = np.zeros(self.num_classes, dtype=np.int64), body["votes"]
        for label, count in body["counts"].items():
            if not 0 <= int(label) < self.num_classes or type(count) is not int or not 1 <= count <= MOST:
                raise ValueError(f"it counts {count} votes for class {label} of {self.num_classes}")
            counts[int(label)] = count
        if (total := sum(body["counts"].values())) != votes:
            raise ValueError(f"its counts sum to {total}, not to {votes}")
        tally = Tally(body["input"], body["stage"], votes, counts)
        if tally.stage == "predict" or self.line(tally, run) != line:
            raise ValueError(
                "it is not written as a run writes it: stage choose or count, every class once and in order"
            )
        return tally

    def take(self, tallies: Iterable[Tally], where: Callable[[int], str]) -> None:
        """Add tallies read from a file, whatever the order of its lines; `where(i)` names the i-th in an error."""
        read = list(tallies)
        self.recent = [tally for tally in read if tally.stage == "count"][-RECENT:]
        for number, tally in sorted(enumerate(read), key=lambda pair: (pair[1].input, pair[1].stage, pair[1].votes)):
            try:
                self.add(tally)
            except ValueError as problem:
                raise ValueError(f"{where(number)}: {problem}") from None

    def new_lines(self, tally: Tally, run: str, *, all: bool = False) -> Iterator[str]:
        """The lines to append after a tally was added."""
        yield self.line(tally, run)

    def unwritten_lines(self, run: str) -> Iterator[str]:
        """Lines of records that are not written yet: none, since every tally is written at once."""
        return iter(())

    def tallies(self) -> Iterator[Tally]:
        """Every tally, sorted by input, stage and votes."""
        for number, position in sorted(self._positions.items()):
            chosen = self.chosen[position]
            if chosen is not None:
                yield Tally(number, "choose", int(chosen.sum()), chosen)
            for counts in self.looks[position]:
                yield Tally(number, "count", int(counts.sum()), counts)

    def lines(self, run: str) -> Iterator[str]:
        """Every line, sorted by input, stage and votes."""
        return (self.line(tally, run) for tally in self.tallies())

    def digest(self, run: str) -> str:
        """A hash of all lines, whatever their order in the file."""
        return hashlib.sha256("\n".join(self.lines(run)).encode()).hexdigest()


class BallotVotes:
    """The votes of all views of m inputs so far: `cast` [m, views] marks the views that voted, `votes` holds their votes.

    `sets`: whether a view votes for a set of classes (a threshold) in place of one class. `truth` [m]: true labels, if known.
    """

    file = "ballots.jsonl"

    def __init__(
        self, index: Sequence[int], num_classes: int, views: int, sets: bool, truth: Sequence[int] | None = None
    ):
        self.index, self.num_classes, self.views, self.sets = [int(n) for n in index], num_classes, views, sets
        self.truth, shape = truth, (len(self.index), views)
        self._positions = {number: position for position, number in enumerate(self.index)}
        self.cast = np.zeros(shape, dtype=bool)
        self.votes = np.zeros((*shape, num_classes) if sets else shape, dtype=bool if sets else _dtype(num_classes))
        self._written = np.zeros(shape, dtype=bool)
        self.recent: list[Any] = []

    def add(self, piece: BallotPiece) -> None:
        """Add a piece; ValueError says why it cannot belong to this run."""
        position = self._positions.get(piece.input)
        if position is None:
            raise ValueError(f"input {piece.input} is not in the manifest")
        where = position, slice(piece.first, piece.first + len(piece.votes))
        cast = self.cast[where]
        if cast.any() and (cast & (self.votes[where] != piece.votes).reshape(len(cast), -1).any(axis=1)).any():
            raise ValueError(f"views of input {piece.input} have voted differently before")
        self.votes[where] = piece.votes
        self.cast[where] = True

    @property
    def complete(self) -> list[int]:
        """Positions of the inputs whose every view has voted."""
        return np.flatnonzero(self.cast.all(axis=1)).tolist()

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The numbers (input position * views + view) that have not voted, as ranges [start, stop)."""
        return _ranges(~self.cast.ravel())

    @property
    def votes_cast(self) -> int:
        """How many views have voted."""
        return int(self.cast.sum())

    def ballots(self, positions: Sequence[int]) -> Ballots:
        """The ballots of these inputs."""
        return Ballots(self.votes[list(positions)], self.num_classes)

    def counts(self, positions: Sequence[int]) -> Counts:
        """Votes per class [n, c] of these inputs."""
        return self.ballots(positions).counts

    def line(self, piece: BallotPiece, run: str) -> str:
        """The line that holds a piece in the run with identity `run`, without its newline."""
        packed = base64.b64encode(zlib.compress(_bytes(piece.votes, self.num_classes), 9)).decode()
        body = {"input": piece.input, "first": piece.first, "count": len(piece.votes), "votes": packed}
        return checked_line(body, run)

    def parse(self, line: str, run: str) -> BallotPiece:
        """Read a line back; ValueError says what is wrong with it."""
        body = checked_body(line, run, input=int, first=int, count=int, votes=str)
        first, count = body["first"], body["count"]
        if not 0 <= first < first + count <= self.views:
            raise ValueError(f"it holds views {first} to {first} + {count} of {self.views}")
        packed = base64.b64decode(body["votes"], validate=True)
        return BallotPiece(body["input"], first, self._unpacked(packed, count))

    def take(self, pieces: Iterable[BallotPiece], where: Callable[[int], str]) -> None:
        """Add pieces read from a file; `where(i)` names the i-th in an error."""
        for number, piece in enumerate(pieces):
            self.recent = [*self.recent[1 - RECENT :], piece]
            try:
                self.add(piece)
            except ValueError as problem:
                raise ValueError(f"{where(number)}: {problem}") from None
        self._written |= self.cast

    def new_lines(self, piece: BallotPiece, run: str, *, all: bool = False) -> Iterator[str]:
        """The lines to append after a piece was added: of its input if that is complete, or, with `all`, of everything."""
        position = self._positions[piece.input]
        if all:
            return self.unwritten_lines(run)
        return self._lines_of([position], run) if self.cast[position].all() else iter(())

    def unwritten_lines(self, run: str) -> Iterator[str]:
        """Lines of votes that are not written yet."""
        return self._lines_of(np.flatnonzero((self.cast & ~self._written).any(axis=1)).tolist(), run)

    def _lines_of(self, positions: Iterable[int], run: str) -> Iterator[str]:
        """A line for every range of unwritten votes. A line written twice, after an interruption, does no harm."""
        for position in positions:
            for start, stop in _ranges(self.cast[position] & ~self._written[position]):
                yield self.line(BallotPiece(self.index[position], start, self.votes[position, start:stop]), run)
                self._written[position, start:stop] = True

    def lines(self, run: str) -> Iterator[str]:
        """Every line, one for each input."""
        for position, number in enumerate(self.index):
            yield self.line(BallotPiece(number, 0, self.votes[position]), run)

    def digest(self, run: str) -> str:
        """A hash of all votes in order, however they were divided into lines."""
        content = _bytes(self.votes.reshape(-1, *self.votes.shape[2:]), self.num_classes)
        return hashlib.sha256(run.encode() + content).hexdigest()

    def _unpacked(self, packed: bytes, count: int) -> NDArray:
        width = -(-self.num_classes // 8) if self.sets else _dtype(self.num_classes).itemsize
        unpacking = zlib.decompressobj()
        try:
            raw = unpacking.decompress(packed, count * width + 1)
        except zlib.error:
            raise ValueError("its votes cannot be unpacked") from None
        if len(raw) != count * width or not unpacking.eof or unpacking.unused_data:
            raise ValueError(f"it does not hold {count} votes and nothing else")
        if self.sets:
            bits = np.unpackbits(np.frombuffer(raw, dtype=np.uint8).reshape(count, width), axis=1)
            if bits[:, self.num_classes :].any():
                raise ValueError(f"it holds votes for classes beyond {self.num_classes - 1}")
            return bits[:, : self.num_classes].astype(bool)
        votes = np.frombuffer(raw, dtype=_dtype(self.num_classes))
        if (votes >= self.num_classes).any():
            raise ValueError(f"it holds a vote for class {votes.max()} of {self.num_classes}")
        return votes


VoteTable = SampledVotes | BallotVotes


def checked_line(body: dict[str, Any], run: str) -> str:
    """One line of JSON with a check that binds it to the run with identity `run`."""
    text = json.dumps(body, separators=(",", ":"))
    return f'{text[:-1]},"check":"{_check(run, text)}"}}'


def checked_body(line: str, run: str, **kinds: type) -> dict[str, Any]:
    """The content of a line; ValueError unless it is written as `checked_line` writes it for this run, with these entries."""
    body: dict[str, Any] = json.loads(line)
    del body["check"]
    if checked_line(body, run) != line:
        raise ValueError("its check does not match: it was altered, or belongs to another run")
    if {name: type(value) for name, value in body.items()} != kinds:
        needed = ", ".join(f"{name} ({kind.__name__})" for name, kind in kinds.items())
        raise ValueError(f"it must hold {needed} and nothing else")
    return body


def _check(run: str, text: str) -> str:
    return hashlib.sha256(f"{run}\n{text}".encode()).hexdigest()[:16]


def _bytes(votes: NDArray, num_classes: int) -> bytes:
    if votes.ndim == 2:
        return np.packbits(votes.astype(bool), axis=1).tobytes()
    return votes.astype(_dtype(num_classes)).tobytes()


def _dtype(num_classes: int) -> np.dtype:
    """The smallest unsigned type that holds every class."""
    return np.dtype("<u1") if num_classes <= 2**8 else np.dtype("<u2") if num_classes <= 2**16 else np.dtype("<u4")


def _ranges(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The ranges [start, stop) where a mask is True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]
