"""Append-only ballots: the vote of every view, in order, in checked lines; and the claims that follow without a model."""

from __future__ import annotations

import base64
import hashlib
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vauban.claims import Certificates, derive_exact
from vauban.errors import Incomplete, Lie
from vauban.laws.exact import Ballots, ExactLaw
from vauban.laws.law import AnyLaw
from vauban.runs import lines
from vauban.runs import manifest as manifests
from vauban.runs.manifest import Manifest

FILE = "ballots.jsonl"


@dataclass(frozen=True)
class Piece:
    """Votes of the views first, first + 1, … of one input: classes [n], or sets of them bool [n, classes]."""

    input: int
    first: int
    votes: NDArray

    def line(self, run: str, num_classes: int) -> str:
        """The line that stands for this piece in the run with identity `run`, without its newline."""
        packed = base64.b64encode(zlib.compress(_bytes(self.votes, num_classes), 9)).decode()
        return lines.written({"input": self.input, "first": self.first, "count": len(self.votes), "votes": packed}, run)

    @classmethod
    def parse(cls, line: str, run: str, num_classes: int, sets: bool, views: int) -> Piece:
        """Read a line back; ValueError says what is wrong with it."""
        body = lines.parsed(line, run)
        first, count = body["first"], body["count"]
        if type(first) is not int or type(count) is not int or not 0 <= first < first + count <= views:
            raise ValueError(f"it holds views {first} to {first} + {count} of {views}")
        return cls(body["input"], first, _votes(base64.b64decode(body["votes"]), count, num_classes, sets))


def _bytes(votes: NDArray, num_classes: int) -> bytes:
    if votes.ndim == 2:
        return np.packbits(votes.astype(bool), axis=1).tobytes()
    return votes.astype(_kind(num_classes)).tobytes()


def _votes(packed: bytes, count: int, num_classes: int, sets: bool) -> NDArray:
    width = -(-num_classes // 8) if sets else _kind(num_classes).itemsize
    try:
        raw = zlib.decompressobj().decompress(packed, count * width + 1)
    except zlib.error:
        raise ValueError("its votes cannot be unpacked") from None
    if len(raw) != count * width:
        raise ValueError(f"it does not hold {count} votes")
    if sets:
        bits = np.unpackbits(np.frombuffer(raw, dtype=np.uint8).reshape(count, width), axis=1)
        if bits[:, num_classes:].any():
            raise ValueError(f"it holds votes for classes beyond {num_classes - 1}")
        return bits[:, :num_classes].astype(bool)
    votes = np.frombuffer(raw, dtype=_kind(num_classes)).astype(np.int64)
    if (votes >= num_classes).any():
        raise ValueError(f"it holds a vote for class {votes.max()} of {num_classes}")
    return votes


def _kind(num_classes: int) -> np.dtype:
    return np.dtype("<u1") if num_classes <= 2**8 else np.dtype("<u2") if num_classes <= 2**16 else np.dtype("<u4")


@dataclass(frozen=True)
class KeptBallots:
    """What a run's ballots hold. `there` [m, views]: which votes are in; `votes` [m, views] or [m, views, classes] of them."""

    manifest: Manifest
    votes: NDArray
    there: NDArray[np.bool_]
    sound_length: int

    @property
    def complete(self) -> list[int]:
        """Positions of the inputs whose every view has voted."""
        return np.flatnonzero(self.there.all(axis=1)).tolist()

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The numbers (input position * views + view) that have not voted, as ranges [start, stop)."""
        edges = np.flatnonzero(np.diff(np.concatenate([[True], self.there.ravel(), [True]]).astype(np.int8)))
        return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]

    def digests(self, run: str) -> dict[str, str]:
        """What a seal says of the votes, however they were divided into lines."""
        content = _bytes(self.votes.reshape(-1, *self.votes.shape[2:]), self.manifest["data"]["num_classes"])
        return {"ballots": hashlib.sha256(run.encode() + content).hexdigest()}


def read_ballots(folder: Path) -> KeptBallots:
    """Read a run and check that its ballots are ones this manifest could have: known inputs, every view at most once."""
    manifest = manifests.read(folder)
    try:
        data, views = manifest["data"], manifest["statistics"]["n"]
        classes, sets = data["num_classes"], manifest["statistics"]["threshold"] is not None
        run = manifests.identity(manifest)
        pieces, length = lines.read(folder / FILE, lambda line: Piece.parse(line, run, classes, sets, views))
        positions = {index: position for position, index in enumerate(data["index"])}
        there = np.zeros((len(positions), views), dtype=bool)
        votes = np.zeros((*there.shape, classes) if sets else there.shape, dtype=bool if sets else _kind(classes))
        for number, piece in enumerate(pieces, start=1):
            where = f"{folder / FILE} line {number}"
            if piece.input not in positions:
                raise Lie(f"{where}: input {piece.input} is not in the manifest")
            place = positions[piece.input], slice(piece.first, piece.first + len(piece.votes))
            if (there[place] & (votes[place] != piece.votes).reshape(len(piece.votes), -1).any(axis=1)).any():
                raise Lie(f"{where}: views of input {piece.input} have voted otherwise before")
            there[place], votes[place] = True, piece.votes
    except (KeyError, TypeError) as problem:
        raise Lie(f"{folder / manifests.FILE} lacks or garbles {problem}") from None
    return KeptBallots(manifest, votes, there, length)


def ballot_certificates(kept: KeptBallots, law: AnyLaw, k: int) -> tuple[Certificates, NDArray[np.int64]]:
    """Claims for every input whose ballot is whole, and their indices."""
    data, statistics = kept.manifest["data"], kept.manifest["statistics"]
    assert isinstance(law, ExactLaw)
    whole = kept.complete
    if not whole:
        raise Incomplete("no input has all its votes yet: run the same certify command again to go on")
    ballots = Ballots(kept.votes[whole], data["num_classes"])
    truth = None if data["label"] is None else np.array(data["label"], dtype=np.int64)[whole]
    if statistics["label"] == "given":
        if truth is None:
            raise Lie("the manifest certifies given labels and has none")
        labels = truth
    else:
        labels = ballots.winners
    certs = derive_exact(ballots, labels, law.for_shape(data["shape"]), k=k)
    return replace(certs, truth=truth), np.array(data["index"], dtype=np.int64)[whole]


class Writer(lines.Writer):
    """Appends ballots to the folder's file."""

    def __init__(self, folder: Path, run: str, num_classes: int, sound_length: int):
        super().__init__(folder / FILE, sound_length)
        self._run, self._classes = run, num_classes

    def keep(self, piece: Piece) -> None:
        """Append one piece."""
        self.append(piece.line(self._run, self._classes))
