"""Certifies a data set into a run folder: begins or resumes, casts the missing votes, seals the claims."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vauban import seed as seeds
from vauban.asking import Tick, check_n0, check_seconds
from vauban.claims import Certificates, default_bounds, refuse_sampled_settings
from vauban.cluster import Place, connect
from vauban.errors import BadInput, Incomplete, RunRefused
from vauban.inputs import Inputs, check_labels
from vauban.runs import exact
from vauban.runs import manifest as manifests
from vauban.runs.crew import Crew, errand
from vauban.runs.derive import CLAIMS, SEAL, Votes, certificates, read_tallies
from vauban.runs.folder import Outlook, Source, begin, check_sealed, close, locked, manifest_of
from vauban.runs.likeness import packed, unpacked
from vauban.runs.manifest import Manifest
from vauban.runs.poll import Done, Job, lacking_votes, poll, wanted
from vauban.runs.stopped import described, is_endless
from vauban.runs.tallies import Tally, Writer
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.smoothing import SMOOTHINGS
from vauban.stopping import Fixed, Policy
from vauban.stopping import policy as stop_of
from vauban.voting.voter import Voter


@dataclass(frozen=True)
class Settings:
    """What is asked of every input. `label`: "given" certifies the true label, "votes" lets n0 votes choose it.

    `stop`: when an input has enough votes, see `SmoothedClassifier.certify`; n is the most it can get, None with "anytime".
    Where the smoothing is exact every view votes, and only `k` and `label` (with "votes", the winner is certified) matter.
    """

    k: int = 1
    n: int | None = 100_000
    alpha: float = 1e-3
    bounds: str | None = None
    label: str = "given"
    n0: int = 100
    stop: str = "fixed"

    @property
    def way(self) -> Policy:
        """The wish behind `stop`."""
        return stop_of(self.stop)


def certify(
    folder: Path,
    smoothed: SmoothedClassifier,
    inputs: Inputs,
    source: Source,
    settings: Settings,
    *,
    seed: int | None = None,
    seconds: float | None = None,
    bar: Callable[[Outlook], AbstractContextManager[Tick]] | None = None,
    order: Sequence[int] | None = None,
    on: str = "here",
) -> Certificates:
    """Certify every input of `inputs`, keeping votes in `folder`; a folder of the same settings is taken up where it ended.

    `bar` is told what is left to do and gives a context whose value is told of votes as they are counted, or of inputs as
    they are decided. `order` is the order in which inputs (by position) are polled; it changes nothing but the order of lines.
    With stop="anytime" it ends after so many `seconds` or with Ctrl-C, and seals what has been earned; the same call goes on.
    `on`: "here", or "ray" (see `cluster.Place`), whose workers vote: the same tallies, and a run may move between the two.
    """
    place = Place.parse(on)
    name = smoothed.smoothing.spec.name
    if name not in SMOOTHINGS:
        raise BadInput(f"{name} has no text form that a run folder could keep: certify with it in Python")
    if smoothed.exact:
        if not place.here:
            raise BadInput(
                f"--on {on} with {smoothed.smoothing.spec}, which is exact: Ray's workers cast sampled votes alone"
            )
        stop = None if isinstance(settings.way, Fixed) else settings.stop
        refuse_sampled_settings(str(smoothed.smoothing.spec), stop=stop, seconds=seconds)
        exact.check(smoothed, inputs, source, settings.k, settings.label)
        return exact.certify(folder, smoothed, inputs, source, settings.k, settings.label, bar=bar)
    rules = _statistics(smoothed, inputs, settings)
    check_seconds(settings.way, seconds, needed=False)
    _check_labels(settings, source, len(inputs.values), smoothed.num_classes)
    ray = None if place.here else connect(place, "certifying on other machines")
    if ray is not None:
        unpacked(packed(smoothed.model, ray.cloudpickle.dumps))
    with locked(folder):
        secret = _seed(folder, seed)
        voter = _voter(folder, smoothed, inputs, settings)
        manifest = _manifest(folder, smoothed, inputs, source, settings, rules, voter, secret)
        begin(folder, manifest, lambda: voter.probe(inputs.values, inputs.levels), lambda: secret.write(folder))
        votes = read_tallies(folder)
        sealed = (folder / SEAL).exists()
        if sealed and votes.finished(sealed):
            check_sealed(folder, votes)
            if not is_endless(manifest):
                return certificates(votes)[0]
        else:
            _unseal(folder)
        torch.set_num_threads(manifest["compute"]["threads"])
        asked = _Asked(smoothed, inputs, votes, secret, order)
        try:
            with bar(_outlook(votes)) if bar else nullcontext(None) as tick:
                by_vote = votes.rule is None or is_endless(manifest)
                told = tick if by_vote else None
                tallies = asked.here(told, seconds) if ray is None else asked.on_ray(ray, place, told, seconds)
                _keep(folder, votes, tallies, None if by_vote else tick)
        except KeyboardInterrupt:
            if not is_endless(manifest):
                raise
        votes = read_tallies(folder)
        if not votes.finished(sealed=True):
            raise Incomplete(
                f"{folder} has a first look at {len(votes.begun)} of its {len(inputs.values)} inputs: what is there is kept; "
                "run the same command again to go on"
            )
        close(folder, votes)
    return certificates(votes)[0]


Tallies = Iterator[tuple[Tally, bool]]


@dataclass(frozen=True)
class _Asked:
    """What a run lacks, and of whom it is asked."""

    smoothed: SmoothedClassifier
    inputs: Inputs
    votes: Votes
    secret: Seed
    order: Sequence[int] | None

    @property
    def job(self) -> Job:
        manifest = self.votes.manifest
        labels = manifest["data"]["label"] if manifest["statistics"]["label"] == "given" else None
        return Job(manifest["statistics"], self.votes.rule, labels)

    @property
    def done(self) -> dict[int, Done]:
        votes, index = self.votes, self.votes.manifest["data"]["index"]
        return {
            index[position]: Done(
                votes.chosen[position].counts if position in votes.chosen else None, votes.looks(position)
            )
            for position in {*votes.chosen, *votes.begun}
        }

    def here(self, tick: Tick | None, seconds: float | None) -> Tallies:
        """Missing tallies, by this process."""
        deadline = None if seconds is None else time.monotonic() + seconds
        index = self.votes.manifest["data"]["index"]
        job, secret = self.job, self.secret
        return poll(
            self.smoothed, self.inputs, index, secret, job, self.done, order=self.order, tick=tick, deadline=deadline
        )

    def on_ray(self, ray: Any, place: Place, tick: Tick | None, seconds: float | None) -> Tallies:
        """Missing tallies, by the workers of a Ray cluster."""
        manifest, job = self.votes.manifest, self.job
        lacking = lacking_votes(wanted(self.inputs, manifest["data"]["index"], self.done, self.order), job)
        if lacking:
            sent = errand(self.smoothed, self.inputs, manifest, self.secret, job, ray.cloudpickle.dumps)
            with Crew(ray, place, sent, len(lacking)) as crew:
                yield from crew.poll(lacking, tick=tick, seconds=seconds)


def _keep(folder: Path, votes: Votes, tallies: Tallies, tick: Tick | None) -> None:
    """Write tallies as they come, telling `tick` of inputs that have enough; with the first one a seal is broken."""
    with (
        Writer(folder, manifests.identity(votes.manifest), votes.sound_length) as writer,
        closing(tallies),  # type: ignore[type-var]
    ):
        for number, (tally, last) in enumerate(tallies):
            if number == 0:
                _unseal(folder)
            writer.keep(tally)
            if last and tick:
                tick(1)


def _unseal(folder: Path) -> None:
    for file in (SEAL, CLAIMS):
        (folder / file).unlink(missing_ok=True)


def _outlook(votes: Votes) -> Outlook:
    statistics, inputs = votes.manifest["statistics"], len(votes.manifest["data"]["index"])
    if votes.rule is not None:
        return Outlook(None, len(votes.complete), inputs, is_endless(votes.manifest))
    left = 0
    for position in range(inputs):
        last = votes.last(position)
        left += statistics["n"] - (last.votes if last else 0)
        left += statistics["n0"] if statistics["label"] == "votes" and position not in votes.chosen else 0
    return Outlook(left, len(votes.complete), inputs)


def _voter(folder: Path, smoothed: SmoothedClassifier, inputs: Inputs, settings: Settings) -> Voter:
    """The voter of this run, in the shape it began with or one that is chosen now and fixed."""
    old = manifests.read(folder).get("compute", {}) if (folder / manifests.FILE).exists() else {}
    share = not isinstance(settings.way, Fixed)
    voter = smoothed.voter(inputs, share=share, rows=old.get("rows"), block=old.get("block"))
    smoothed.rows, smoothed.block, smoothed.compile = voter.rows, voter.block_size, voter.compiled
    return voter


def _statistics(smoothed: SmoothedClassifier, inputs: Inputs, settings: Settings) -> dict[str, Any]:
    """What a manifest says of when inputs have enough votes; settings that can certify nothing are refused."""
    way = settings.way
    if not isinstance(way, Fixed):
        rule = smoothed.rule(way, inputs, k=settings.k, n=settings.n, alpha=settings.alpha, bounds=settings.bounds)
        return {"bounds": "binocp", **described(way, rule)}
    if settings.n is None:
        raise BadInput("n=None with stop=fixed: say how many votes each input gets")
    smoothed.check(k=settings.k, n=settings.n, alpha=settings.alpha, bounds=settings.bounds, inputs=inputs)
    return {"bounds": settings.bounds or default_bounds(settings.k), "looks": manifests.looks_up_to(settings.n)}


def _manifest(
    folder: Path,
    smoothed: SmoothedClassifier,
    inputs: Inputs,
    source: Source,
    settings: Settings,
    rules: dict[str, Any],
    voter: Voter,
    secret: Seed,
) -> Manifest:
    statistics = {
        "k": settings.k,
        "n": settings.n,
        "alpha": settings.alpha,
        "bounds": rules["bounds"],
        "alpha_split": manifests.ALPHA_SPLIT[rules["bounds"]],
        "label": settings.label,
        "n0": settings.n0 if settings.label == "votes" else 0,
        **rules,
    }
    compute: dict[str, Any] = {"block": voter.block_size} if voter.places > 1 or "stop" in rules else {}
    compute |= {"compile": voter.compiled} if voter.compiled else {}
    commitment = {"seed_commitment": secret.commitment}
    return manifest_of(folder, smoothed, inputs, source, statistics, commitment, compute)


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
