"""Replay on a machine with another arithmetic: which votes rounding may decide otherwise, and whether the others agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vauban.counted_votes import CountedVotes
from vauban.engine.enumerator import Enumerator
from vauban.engine.network import device_name, refuse_nan, votes_of
from vauban.engine.sampler import Sampler
from vauban.engine.scheduler import ViewBlock
from vauban.errors import Lie, RunRefused
from vauban.files import floats_from_hex
from vauban.inputs import Batch
from vauban.runs.manifest import Manifest
from vauban.runs.store import RunRecord
from vauban.seed import Seed
from vauban.smoothing.random import Stream
from vauban.votes import BallotVotes, Counts, SampledVotes

FACTOR = 10
"""How many times the difference seen on the probe views is allowed for on every view."""
LARGEST = {"fp32": 1e-4}
"""The largest difference that is taken for rounding, as a fraction of the range of scores, by precision."""
_LARGEST_ELSE = 1e-2
_MOST_NEAR, _FEW = 0.05, 2  # near ties of an input that a replay may except: this share of its votes, or this many
_LARGEST_ALIKE = 1e-5  # where device and torch are the run's: processors of one kind differ by a few roundings at most

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Rounding:
    """The largest `difference` between the scores of two machines on `views` kept probe views; `alike`: of one kind."""

    difference: float
    views: int
    alike: bool = False

    @property
    def margin(self) -> float:
        """Scores closer than this may change places. Two scores approach each other by twice a difference; ten times this is a
        heuristic, not a bound: other views may round worse."""
        return FACTOR * 2 * self.difference


@dataclass(frozen=True)
class _Counted:
    """Votes per class [classes] among the first `votes` views: those that are sure, those that are possible, those cast here."""

    votes: int
    sure: Counts
    possible: Counts
    cast: Counts


@dataclass
class Found:
    """What was compared: how many votes were cast, how many are near ties, and how many differ."""

    cast: int = 0
    near: int = 0
    differing: int = 0


def compare_scores(manifest: Manifest, sampler: Any, batch: Batch) -> Rounding | None:
    """None if this machine gives the scores of the probe views bit for bit; else how far they are apart.

    Scores that differ by more than rounding are refused, and so is a run that kept no scores unless all hashes agree.
    """
    own, here = manifest.model, device_name(sampler.device)
    if own.scores is None:
        raise RunRefused("the run kept no scores to compare this machine with: it cannot be replayed")
    views, scores, kept = sampler.probe_entries(batch.inputs.values)
    if (views, scores) == (own.views, own.scores):
        if own.kept_scores not in (None, kept):
            raise Lie("the scores that the manifest keeps are not those whose hash it holds")
        return None
    compute, runner = manifest.compute, sampler.network.runner
    backend = None if runner is None else runner.describe()
    alike = (here, str(torch.__version__), backend) == (compute.device, compute.torch, compute.backend)
    machines = (
        f"({here}, torch {torch.__version__}{_by(backend)}; the run: {compute.device}, torch {compute.torch}"
        f"{_by(compute.backend)})"
    )
    if own.kept_scores is None and not alike:
        raise RunRefused(
            f"this machine does not give the hash of scores that the run kept {machines}, and the run kept no scores to measure "
            "the difference by: replay it on a machine like its own"
        )
    if views != own.views and manifest.inputs.levels is not None and sampler.smoothing.law.on_grid:
        raise Lie(
            "the probe views are not those that the run kept: they are whole numbers, which every machine computes alike"
        )
    rounding = None if own.kept_scores is None else _rounding(manifest, kept, own.kept_scores, alike)
    if rounding is None:
        problem = (
            "the model's scores on the probe views are not those that the run kept, by more than rounding: another model, "
            f"other noise, or a forged manifest {machines}"
        )
        raise (Lie if alike else RunRefused)(problem)
    return rounding


def _by(backend: dict[str, str] | None) -> str:
    return "" if backend is None else f", {backend['name']} {backend.get('version')}"


def _rounding(manifest: Manifest, here: str, there: str, alike: bool) -> Rounding | None:
    """How far the kept scores of two machines are apart; None if that is more than rounding (`alike`: of two such machines).

    The two best scores of every view are measured: rounding decides between these, and a score far below, which an owner may
    choose as he likes, is no measure of it. Where they are equal, it is one unit in the last place of the largest of them.
    """
    compute, classes = manifest.compute, manifest.data.num_classes
    one, other = (floats_from_hex(text, compute.rows, classes).astype(np.float64) for text in (here, there))
    best = np.argsort(one, axis=1)[:, -2:]
    top, top_there = (np.take_along_axis(scores, best, axis=1) for scores in (one, other))
    with np.errstate(invalid="ignore"):
        apart = np.where(one == other, 0, np.abs(one - other))
    finite = top[np.isfinite(top)]
    width, largest = (float(np.ptp(finite)), float(np.abs(finite).max())) if finite.size else (0.0, 0.0)
    most = _LARGEST_ALIKE if alike else LARGEST.get(compute.precision, _LARGEST_ELSE)
    if not (apart <= most * np.maximum(width, np.abs(one))).all():
        return None
    difference = float(np.where(top == top_there, 0, np.abs(top - top_there)).max())
    if not difference <= most * width:
        return None
    return Rounding(max(difference, float(np.finfo(np.float32).eps) * largest), len(one), alike)


def refuse_too_many(number: int, near: int, votes: int, rounding: Rounding) -> None:
    """Refuse to call votes of an input replayed of which too many are near ties: the folder could hold anything there."""
    if near > max(_FEW, _MOST_NEAR * votes):
        raise RunRefused(
            f"input {number}: {near:,} of its {votes:,} votes are closer than {rounding.margin:.2g}, which rounding may "
            "decide otherwise here: this replay would say nothing about it; replay the run on a machine like its own"
        )


def replay_sampled(
    record: RunRecord, sampler: Sampler, batch: Batch, chosen: list[int], secret: Seed, rounding: Rounding, done: Any
) -> Found:
    """Cast the votes of these positions to every look in the folder; a count that near ties cannot explain is a `Lie`."""
    votes, found = record.votes, Found()
    assert isinstance(votes, SampledVotes)
    for position in chosen:
        number, x = votes.index[position], batch.inputs.values[position]
        if votes.n0:
            chosen_by = {votes.n0: np.asarray(votes.chosen[position])}
            _compared(sampler, x, Stream(secret, "choose", number), chosen_by, rounding)
        looks = {int(counts.sum()): counts for counts in votes.looks[position]}
        counted = _compared(sampler, x, Stream(secret, "count", number), looks, rounding)
        found.cast += counted.votes
        near = counted.votes - int(counted.sure.sum())
        refuse_too_many(number, near, counted.votes, rounding)
        found.near += near
        found.differing += int(np.abs(votes.looks[position][-1] - counted.cast).sum()) // 2
        done(1)
    return found


def replay_exactly(
    record: RunRecord,
    sampler: Enumerator,
    batch: Batch,
    chosen: list[int],
    rounding: Rounding,
    done: Callable[[int], None],
) -> Found:
    """Cast the vote of every view of these positions; a vote that differs where there is no near tie is a `Lie`."""
    votes, found = record.votes, Found()
    assert isinstance(votes, BallotVotes)
    if isinstance(votes, CountedVotes):
        raise RunRefused(
            "this machine has another arithmetic than the run's, which kept counts: which votes differ cannot be told, so "
            "replay it on a machine like the run's"
        )
    for position in chosen:
        first, before = 0, found.near
        for scores in sampler.scores(batch.inputs.values[position : position + 1]):
            sure, possible, again = _possible(scores, rounding.margin, sampler.threshold)
            kept = np.asarray(votes.votes[position][first : first + len(scores)])
            ballots = kept.astype(bool) if kept.ndim == 2 else kept[:, None] == np.arange(scores.shape[1])
            wrong = ((sure & ~ballots) | (ballots & ~possible)).any(axis=1)
            if wrong.any():
                view = first + int(wrong.argmax())
                raise Lie(
                    f"input {votes.index[position]}: the vote of view {view} in the folder is not that of this model and this "
                    f"input, nor one that rounding could have decided (its margin is above {rounding.margin:.2g})"
                )
            found.near += int((sure != possible).any(axis=1).sum())
            found.differing += int((ballots != again).any(axis=1).sum())
            first += len(scores)
        refuse_too_many(votes.index[position], found.near - before, first, rounding)
        found.cast += first
        done(1)
    return found


def _compared(
    sampler: Sampler, x: torch.Tensor, stream: Stream, looks: dict[int, Counts], rounding: Rounding
) -> _Counted:
    """The counts of one input at its last look, those at every look being compared with the folder's."""
    for counted in _counts(sampler, x, stream, sorted(looks), rounding.margin):
        _refuse_impossible(stream, looks[counted.votes], counted, rounding)
    return counted


def _counts(
    sampler: Sampler, x: torch.Tensor, stream: Stream, looks: Sequence[int], margin: float
) -> Iterator[_Counted]:
    """The counts at each look."""
    totals, waiting = np.zeros((3, sampler.num_classes), dtype=np.int64), list(looks)
    for first in range(0, looks[-1], sampler.rows):
        starts = range(first, min(first + sampler.rows, looks[-1]), sampler.block_size)
        scores = sampler.answer(sampler.made([ViewBlock(x, stream, start) for start in starts])).scores
        kinds, begin = np.stack(_possible(scores[: len(starts) * sampler.block_size], margin, None)), 0
        while waiting and waiting[0] <= first + sampler.rows:
            look = waiting.pop(0)
            totals += kinds[:, begin : look - first].sum(axis=1)
            begin = look - first
            yield _Counted(look, *totals.copy())
        totals += kinds[:, begin:].sum(axis=1)


def _possible(scores: torch.Tensor, margin: float, threshold: float | None) -> tuple[Bools, Bools, Bools]:
    """For scores [n, classes]: the votes [n, classes] that no difference within the margin changes, those that one may cause,
    and those cast here.

    With a threshold a view votes for each class of at least this probability, whose logarithm changes by at most twice what a
    score does.
    """
    refuse_nan(scores)
    exact = scores.cpu().double()
    if threshold is not None:
        above = exact.log_softmax(dim=1) - float(np.log(threshold))
        cast = scores.softmax(dim=1).cpu() >= threshold
        return (above >= margin).numpy(), (above >= -margin).numpy(), cast.numpy()
    close = (exact >= exact.amax(dim=1, keepdim=True) - margin).numpy()
    own = votes_of(scores).cpu().numpy()[:, None] == np.arange(scores.shape[1])
    return close & (close.sum(axis=1, keepdims=True) == 1), close, own


def _refuse_impossible(stream: Stream, kept: Counts, counted: _Counted, rounding: Rounding) -> None:
    sure, possible = counted.sure, counted.possible
    wrong = (kept < sure) | (kept > possible)
    if wrong.any():
        label = int(wrong.argmax())
        raise Lie(
            f"input {stream.input}: the votes in the folder are not those of this model, these inputs and this seed (at "
            f"{counted.votes} votes, {stream.stage}): class {label} has {int(kept[label])} votes in the folder, and "
            f"{int(sure[label])} to {int(possible[label])} here, "
            f"counting every view whose margin is below {rounding.margin:.2g} both ways"
        )
