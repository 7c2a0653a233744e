"""Certifies a data set into a run folder: begins or resumes, casts the missing votes, seals the claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from vauban import seed as seeds
from vauban.claims import Certificates, default_bounds
from vauban.errors import BadInput, RunRefused
from vauban.inputs import Inputs, check_labels
from vauban.runs import exact
from vauban.runs import manifest as manifests
from vauban.runs.derive import SEAL, Votes, certificates, read_tallies
from vauban.runs.folder import Outlook, Source, begin, check_sealed, close, locked, manifest_of
from vauban.runs.manifest import Manifest
from vauban.runs.tallies import Tally, Writer
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier, Tick, check_n0
from vauban.smoothing import SMOOTHINGS
from vauban.smoothing.random import Stream


@dataclass(frozen=True)
class Settings:
    """What is asked of every input. `label`: "given" certifies the true label, "votes" lets n0 votes choose it.

    Where the smoothing is exact every view votes, and only `k` and `label` (with "votes", the winner is certified) matter.
    """

    k: int = 1
    n: int = 100_000
    alpha: float = 1e-3
    bounds: str | None = None
    label: str = "given"
    n0: int = 100


def certify(
    folder: Path,
    smoothed: SmoothedClassifier,
    inputs: Inputs,
    source: Source,
    settings: Settings,
    *,
    seed: int | None = None,
    bar: Callable[[Outlook], AbstractContextManager[Tick]] | None = None,
    order: Sequence[int] | None = None,
) -> Certificates:
    """Certify every input of `inputs`, keeping votes in `folder`; a folder of the same settings is taken up where it ended.

    `bar` is told what is left to do and gives a context whose value is told of votes as they are cast. `order` is the order
    in which inputs (by position) are polled; it changes nothing but the order of lines.
    """
    name = smoothed.smoothing.spec.name
    if name not in SMOOTHINGS:
        raise BadInput(f"{name} has no text form that a run folder could keep: certify with it in Python")
    if smoothed.exact:
        exact.check(smoothed, inputs, source, settings.k, settings.label)
        return exact.certify(folder, smoothed, inputs, source, settings.k, settings.label, bar=bar)
    smoothed.check(k=settings.k, n=settings.n, alpha=settings.alpha, bounds=settings.bounds, inputs=inputs)
    _check_labels(settings, source, len(inputs.values), smoothed.num_classes)
    with locked(folder):
        secret = _seed(folder, seed)
        manifest = _manifest(folder, smoothed, inputs, source, settings, secret)
        voter = smoothed.voter(inputs.values.shape[1:])
        begin(folder, manifest, lambda: voter.probe(inputs.values[0], inputs.levels), lambda: secret.write(folder))
        votes = read_tallies(folder)
        if (folder / SEAL).exists() and len(votes.complete) == len(inputs.values):
            check_sealed(folder, votes)
            return certificates(votes)[0]
        torch.set_num_threads(manifest["compute"]["threads"])
        smoothed.rows = manifest["compute"]["rows"]
        with bar(_outlook(votes)) if bar else nullcontext(None) as tick:
            _poll(folder, smoothed, inputs, votes, secret, order or range(len(inputs.values)), tick)
        votes = read_tallies(folder)
        close(folder, votes)
    return certificates(votes)[0]


def _poll(
    folder: Path,
    smoothed: SmoothedClassifier,
    inputs: Inputs,
    votes: Votes,
    secret: Seed,
    order: Sequence[int],
    tick: Tick | None,
) -> None:
    statistics, index = votes.manifest["statistics"], votes.manifest["data"]["index"]
    voter = smoothed.voter(inputs.values.shape[1:])
    with Writer(folder, manifests.identity(votes.manifest), votes.sound_length) as writer:
        for position in order:
            number, x = index[position], inputs.values[position]
            if statistics["label"] == "votes" and position not in votes.chosen:
                n0 = statistics["n0"]
                for look, counts in voter.cast(x, Stream(secret, "choose", number), [n0], inputs.levels, tick=tick):
                    writer.keep(Tally(number, "choose", look, counts))
            last = votes.last(position)
            done, before = (last.votes, last.counts) if last else (0, np.zeros(smoothed.num_classes, dtype=np.int64))
            looks = [look for look in statistics["looks"] if look > done]
            if looks:
                stream = Stream(secret, "count", number)
                for look, counts in voter.cast(x, stream, looks, inputs.levels, after=done, tick=tick):
                    writer.keep(Tally(number, "count", look, before + counts))


def _outlook(votes: Votes) -> Outlook:
    statistics, inputs = votes.manifest["statistics"], len(votes.manifest["data"]["index"])
    left = 0
    for position in range(inputs):
        last = votes.last(position)
        left += statistics["n"] - (last.votes if last else 0)
        left += statistics["n0"] if statistics["label"] == "votes" and position not in votes.chosen else 0
    return Outlook(left, len(votes.complete), inputs)


def _manifest(
    folder: Path, smoothed: SmoothedClassifier, inputs: Inputs, source: Source, settings: Settings, secret: Seed
) -> Manifest:
    bounds = settings.bounds or default_bounds(settings.k)
    statistics = {
        "k": settings.k,
        "n": settings.n,
        "alpha": settings.alpha,
        "bounds": bounds,
        "alpha_split": manifests.ALPHA_SPLIT[bounds],
        "label": settings.label,
        "n0": settings.n0 if settings.label == "votes" else 0,
        "looks": manifests.looks_up_to(settings.n),
    }
    return manifest_of(folder, smoothed, inputs, source, statistics, {"seed_commitment": secret.commitment})


def _seed(folder: Path, number: int | None) -> Seed:
    """The seed of a run that is there, or the one asked for."""
    if number is None and (folder / manifests.FILE).exists():
        if not (folder / seeds.FILE).exists():
            raise RunRefused(
                f"{folder / seeds.FILE} is gone: without its seed this run can be verified, but not taken up again"
            )
        return Seed.read(folder)
    return Seed.of(number)


def _check_labels(settings: Settings, source: Source, inputs: int, num_classes: int) -> None:
    if settings.label not in ("given", "votes"):
        raise BadInput(f"label={settings.label!r}: 'given' or 'votes' is needed")
    if source.truth is not None:
        check_labels(np.asarray(source.truth), inputs, num_classes)
    elif settings.label == "given":
        raise BadInput(f"{source.data} has no labels to certify: let votes choose them (--label votes)")
    if settings.label == "votes":
        check_n0(settings.n0)
        if settings.k != 1:
            raise BadInput(f"k={settings.k} with labels chosen by votes: only k=1 is, or certify given labels")
