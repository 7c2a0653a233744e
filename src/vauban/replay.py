"""Replay: casts the votes of some inputs of a run again, with the model and the data, and compares them with the folder."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vauban import other_arithmetic
from vauban.counted_votes import CountedVotes
from vauban.engine.network import BaseClassifier, Model, threads
from vauban.engine.scheduler import Scheduler, Work
from vauban.errors import BadInput, Lie, RunRefused, VaubanError
from vauban.inputs import Batch, Inputs, of_object
from vauban.laws.exact import Ballots
from vauban.other_arithmetic import Found, Rounding, compare_scores
from vauban.report.progress import bar
from vauban.runs.manifest import Manifest, read_raw
from vauban.runs.store import RunRecord, read_record
from vauban.runs.verify import verify_run
from vauban.seed import FILE as SEED_FILE
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.standardise import Standardisation
from vauban.validation import check_labels, path_of
from vauban.votes import BallotVotes, CountRequest, CountRequests, SampledVotes, counts_at

_ONE_IN = 100  # replays of a folder with more altered inputs than `undetected` says, at most one misses all of them


@dataclass(frozen=True)
class Replay:
    """What a replay found: all votes of `replayed` [s] inputs, drawn from `inputs`, are those in the folder.

    `altered`: the largest number of inputs whose votes may still be others; more would have been found with probability 0.99.
    `rounding`: how far this machine's scores are from the run's; None if they are equal bit for bit. Otherwise `near` of the
    votes were at views where this may decide, and `differing` votes differ, all of them explained by such views.
    """

    inputs: int
    replayed: list[int]
    votes: int
    altered: int
    rounding: Rounding | None = None
    near: int = 0
    differing: int = 0


def replay(
    folder: str | Path,
    model: Model | BaseClassifier,
    data: Any,
    *,
    inputs: int | None = 20,
    device: torch.device | str | None = None,
    progress: bool = True,
    announced: str | None = None,
    nonce: str | None = None,
) -> Replay:
    """Verify a run, then cast all votes of `inputs` of its inputs again (None: of every one); the first difference is a `Lie`.

    They are drawn by the operating system's randomness, not the run's. `data`: the whole data set, from which the manifest's
    index selects. The model must have the manifest's fingerprint. Where this machine gives the scores of the probe views bit for
    bit, so must it give all counts; otherwise counts may differ by the views that are near ties (`other_arithmetic`).
    `announced`, `nonce`: as in `verify_run`.
    """
    folder = path_of("folder", folder)
    verify_run(folder, announced=announced, nonce=nonce)
    if read_raw(folder).get("kind") == "poisoning":
        raise RunRefused(
            f"{folder} is a poisoning run, which is replayed by parts of its training set: vauban verify --replay, or "
            "vauban.poisoning.part_replay.replay_parts"
        )
    record, _ = read_record(folder)
    manifest, law = record.manifest, record.method.law
    secret = None if law.exact else _seed(folder, record)
    smoothed = run_classifier(manifest, model, device)
    batch = run_inputs(manifest, smoothed, data)
    chosen = _drawn(len(batch), inputs)
    with threads(manifest.compute.threads), smoothed.ready(batch.inputs):
        shape = {"rows": manifest.compute.rows, "block": manifest.compute.block}
        sampler = smoothed.sampler(batch.inputs, record.method, **shape)
        rounding = compare_scores(manifest, sampler, batch)
        if rounding is None or rounding.alike:
            _check_rows(record, sampler, batch)
        with bar(f"replaying {len(chosen)} inputs", len(chosen), "inputs", quiet=not progress) as done:
            found = _cast(record, sampler, batch, chosen, secret, rounding, done)
    index = sorted(manifest.data.index[position] for position in chosen)
    altered = undetected(len(batch), len(chosen))
    return Replay(len(batch), index, found.cast, altered, rounding, found.near, found.differing)


def undetected(inputs: int, replayed: int) -> int:
    """The largest number F of altered inputs that such a draw misses altogether with probability above 0.01.

    >>> undetected(200, 20), undetected(500, 20), undetected(20, 20)
    (39, 100, 0)
    """
    altered, draws = 0, math.comb(inputs, replayed)
    while altered < inputs - replayed and _ONE_IN * math.comb(inputs - altered - 1, replayed) > draws:
        altered += 1
    return altered


def _seed(folder: Path, record: RunRecord) -> Seed:
    if not (folder / SEED_FILE).exists():
        raise RunRefused(f"{folder / SEED_FILE} is not there: without its seed the votes of a run cannot be cast again")
    found, committed = Seed.read(folder), record.manifest.seed
    if committed is None or found.commitment != committed.commitment:
        raise Lie(f"{folder / SEED_FILE} is not the seed that the manifest commits to")
    return record.bound(found)


def run_classifier(
    manifest: Manifest, model: Model | BaseClassifier, device: torch.device | str | None
) -> SmoothedClassifier:
    """The classifier of a run; a model with another fingerprint is refused."""
    compute, entry = manifest.compute, manifest.inputs.standardised
    classes = getattr(model, "num_classes", None)
    if classes not in (None, manifest.data.num_classes):
        raise Lie(
            f"the model has {classes} classes, and the run is about one with {manifest.data.num_classes}: another model"
        )
    smoothed = SmoothedClassifier(
        model,
        manifest.smoothing,
        num_classes=manifest.data.num_classes,
        device=device,
        arithmetic=manifest.inputs.arithmetic if manifest.inputs.levels is None else "auto",
        input_range=manifest.inputs.range,
        channels_last=compute.channels_last,
        precision=compute.precision,
        compile=compute.compile or False,
        stochastic=compute.stochastic,
        backend=manifest.backend,
        standardise=None if entry is None else Standardisation.from_json(entry),
    )
    refuse_other_model(smoothed, manifest)
    return smoothed


def refuse_other_model(smoothed: SmoothedClassifier, manifest: Manifest) -> None:
    """Refuse a classifier whose model has another fingerprint than that of the run."""
    _, fingerprint = smoothed.identity()
    if fingerprint != manifest.model.sha256 and smoothed.base.fingerprint is None:
        _call_once(smoothed, manifest)
        _, fingerprint = smoothed.identity()
    if fingerprint != manifest.model.sha256:
        raise Lie(
            f"the model has fingerprint {fingerprint[:12]}…; the run is about {manifest.model.sha256[:12]}…: another model, or "
            "other code (give the run's with --model)"
        )


def _call_once(smoothed: SmoothedClassifier, manifest: Manifest) -> None:
    """Call a model on one shape of empty views: a first call may fill what it keeps, and the run hashed it after one."""
    try:
        inputs = Inputs(torch.zeros(1, *manifest.data.shape), None)
        with smoothed.ready(inputs), torch.inference_mode():
            shape = smoothed.smoothing.view_shape(inputs.values.shape[1:])
            views = torch.zeros(manifest.compute.rows, *shape, device=smoothed.device)
            smoothed.network.scores(smoothed.network.laid_out(views), manifest.data.num_classes)
    except VaubanError:  # another model, which its fingerprint says
        return


def run_inputs(manifest: Manifest, smoothed: SmoothedClassifier, data: Any, y: Any = None) -> Batch:
    """The inputs of the run, from the whole data set (arrays: with labels y); refused unless they have the manifest's hash."""
    own, spec = manifest.data, getattr(data, "name", type(data).__name__)
    from_files = hasattr(data, "images") and hasattr(data, "fingerprint")
    if from_files:
        images, known, numbers = data.images, data.labels, data.index.tolist()
    else:
        images, known = of_object(data)
        images = np.asarray(images) if isinstance(images, list | tuple) else images
        numbers = list(range(len(images)))
    known = known if y is None else y
    where = {number: position for position, number in enumerate(numbers)}
    missing = [number for number in own.index if number not in where]
    if missing:
        raise BadInput(f"{spec} has no input {missing[0]}: the whole data set of the run is needed, {own.spec}")
    if own.label is not None and known is None:
        raise BadInput(
            f"{spec} has no labels, and the run certified given ones: the data set with its labels is needed"
        )
    positions = [where[number] for number in own.index]
    labels = None if own.label is None else check_labels(np.asarray(known), len(numbers), None)[positions]
    images = images[positions]
    if from_files:
        images = replace(data, images=images, labels=labels, index=np.array(own.index), names=None, taken=None)
    some = smoothed.collect(images, labels, own.index)
    if labels is not None and own.label != labels.tolist():
        raise Lie(f"the true labels in the manifest are not those of {spec}")
    if own.shape != tuple(some.shape):
        raise Lie(f"the manifest speaks of inputs of shape {own.shape}; those of {spec} have {tuple(some.shape)}")
    read = some.inputs.section(smoothed.input_range, smoothed.smoothing.law, 0.0, None)
    if own.features is not None and read.preprocessing != manifest.inputs.preprocessing:
        raise Lie(
            f"the manifest says of the features {manifest.inputs.preprocessing!r}; those of {spec} are read as "
            f"{read.preprocessing!r}"
        )
    if some.sha256 != own.sha256:
        raise Lie(f"{spec}: inputs {own.index[:3]}… and their labels are not those of the run (sha256 differs)")
    return some


def _check_rows(record: RunRecord, sampler: Any, batch: Batch) -> None:
    """Refuse a manifest that leaves out that scores depend on the row: its law may need that they do not."""
    agree = sampler.probe(batch.inputs.values, record.method.shares_shapes)
    if not agree and not record.manifest.compute.rows_differ:
        raise Lie("the model's scores depend on the row a view is in, which the manifest does not say (rows_differ)")


def _drawn(count: int, inputs: int | None) -> list[int]:
    if inputs is not None and inputs < 1:
        raise BadInput(f"inputs={inputs}: one or more must be replayed")
    return secrets.SystemRandom().sample(range(count), count if inputs is None else min(inputs, count))


def _cast(
    record: RunRecord,
    sampler: Any,
    batch: Batch,
    chosen: list[int],
    secret: Seed | None,
    rounding: Rounding | None,
    done: Callable[[int], None],
) -> Found:
    """Cast the votes of these positions and compare them, bit for bit or but for near ties."""
    if secret is None:
        if rounding is not None:
            return other_arithmetic.replay_exactly(record, sampler, batch, chosen, rounding, done)
        return Found(replay_exactly(record, sampler, batch, chosen, done))
    if rounding is not None:
        return other_arithmetic.replay_sampled(record, sampler, batch, chosen, secret, rounding, done)
    return Found(_replay_sampled(record, sampler, batch, chosen, secret, done))


def _replay_sampled(
    record: RunRecord, sampler: Any, batch: Batch, chosen: list[int], secret: Seed, done: Callable[[int], None]
) -> int:
    """Cast the votes of these positions to every look in the folder, those that chose a label too; how many there are."""
    votes, cast = record.votes, 0
    assert isinstance(votes, SampledVotes)

    def requests(position: int) -> CountRequests:
        if votes.n0:
            yield CountRequest("choose", votes.n0, most=votes.n0)
        yield from counts_at("count", [int(counts.sum()) for counts in votes.looks[position]])

    works = (Work(votes.index[p], batch.inputs.values[p], requests(p)) for p in chosen)
    position_of = {number: position for position, number in enumerate(votes.index)}
    for tally, last in Scheduler(sampler, secret).run(works):
        position = position_of[tally.input]
        looks = {int(counts.sum()): counts for counts in votes.looks[position]}
        kept = votes.chosen[position] if tally.stage == "choose" else looks[tally.votes]
        refuse_other_vote(tally.input, f"at {tally.votes} votes ({tally.stage})", kept, tally.counts)
        if last:
            cast += tally.votes
            done(1)
    return cast


def replay_exactly(
    record: RunRecord, sampler: Any, batch: Batch, chosen: list[int], done: Callable[[int], None]
) -> int:
    """Cast the vote of every view of these positions; how many there are."""
    votes = record.votes
    assert isinstance(votes, BallotVotes)
    for position in chosen:
        again = np.concatenate([some for _, some in sampler.cast(batch.inputs.values[position : position + 1])])
        if isinstance(votes, CountedVotes):
            counted = Ballots(again[None], votes.num_classes).counts[0]
            refuse_other_vote(votes.index[position], "counts", votes.counts([position])[0], counted)
        else:
            refuse_other_vote(votes.index[position], "view by view", votes.votes[position], again)
        done(1)
    return len(chosen) * votes.views


def refuse_other_vote(number: int, where: str, kept: Any, again: Any) -> None:
    if not np.array_equal(kept, again):
        raise Lie(
            f"input {number}: the votes in the folder are not those of this model, these inputs and this seed ({where}): the "
            f"folder has {_short(kept)}, cast again they are {_short(again)}"
        )


def _short(votes: Any) -> str:
    listed = np.asarray(votes).tolist()
    return str(listed if len(listed) <= 12 else [*listed[:12], "…"])
