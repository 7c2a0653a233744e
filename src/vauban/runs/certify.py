"""Certifies a data set into a run folder: begins or resumes, casts the missing votes, seals the claims."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from vauban import __version__
from vauban import seed as seeds
from vauban.claims import Certificates, default_bounds
from vauban.errors import BadInput, Lie, RunRefused
from vauban.files import replace_file
from vauban.inputs import Inputs, check_labels
from vauban.runs import manifest as manifests
from vauban.runs.derive import CLAIMS, SEAL, Votes, certificates, read_votes, seal
from vauban.runs.manifest import Manifest
from vauban.runs.tallies import Tally, Writer
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier, Tick, check_n0, choose_rows
from vauban.smoothing.random import Stream

LOCK_FILE = ".lock"


@dataclass(frozen=True)
class Settings:
    """What is asked of every input. `label`: "given" certifies the true label, "votes" lets n0 votes choose it."""

    k: int = 1
    n: int = 100_000
    alpha: float = 1e-3
    bounds: str | None = None
    label: str = "given"
    n0: int = 100


@dataclass(frozen=True)
class Source:
    """Where the inputs and the model came from, for the manifest. `index` [m]: each input's place in its data set."""

    data: str
    data_sha256: str
    index: Sequence[int]
    truth: Sequence[int] | None
    model: str
    model_sha256: str


@dataclass(frozen=True)
class Outlook:
    """What a run has still to do."""

    votes_left: int
    inputs_done: int
    inputs: int


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
    smoothed.check(k=settings.k, n=settings.n, alpha=settings.alpha, bounds=settings.bounds, inputs=inputs)
    _check_labels(settings, source, len(inputs.values), smoothed.num_classes)
    with locked(folder):
        secret = _seed(folder, seed)
        manifest = _manifest(folder, smoothed, inputs, source, settings, secret)
        _begin(
            folder,
            manifest,
            secret,
            lambda: smoothed.voter(inputs.values.shape[1:]).probe(inputs.values[0], inputs.levels),
        )
        votes = read_votes(folder)
        if (folder / SEAL).exists() and len(votes.complete) == len(inputs.values):
            _check_sealed(folder, votes)
            return certificates(votes)[0]
        torch.set_num_threads(manifest["compute"]["threads"])
        smoothed.rows = manifest["compute"]["rows"]
        with bar(_outlook(votes)) if bar else nullcontext(None) as tick:
            _poll(folder, smoothed, inputs, votes, secret, order or range(len(inputs.values)), tick)
        votes = read_votes(folder)
        claims, hashes = seal(votes)
        replace_file(folder / CLAIMS, claims.encode())
        replace_file(folder / SEAL, json.dumps(hashes, indent=1).encode() + b"\n")
    return certificates(votes)[0]


def _check_sealed(folder: Path, votes: Votes) -> None:
    """Refuse a finished run whose claims or seal are not what its votes say."""
    claims, hashes = seal(votes)
    try:
        kept = (folder / CLAIMS).read_text() == claims and json.loads((folder / SEAL).read_text()) == hashes
    except (OSError, ValueError):
        kept = False
    if not kept:
        raise Lie(
            f"{folder} is finished, but its {CLAIMS} or {SEAL} is not what its votes say (vauban verify tells more): "
            f"remove both and give the same command again to derive them anew"
        )


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
                    writer.append(Tally(number, "choose", look, counts))
            last = votes.last(position)
            done, before = (last.votes, last.counts) if last else (0, np.zeros(smoothed.num_classes, dtype=np.int64))
            looks = [look for look in statistics["looks"] if look > done]
            if looks:
                stream = Stream(secret, "count", number)
                for look, counts in voter.cast(x, stream, looks, inputs.levels, after=done, tick=tick):
                    writer.append(Tally(number, "count", look, before + counts))


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
    existing = manifests.read(folder).get("compute", {}) if (folder / manifests.FILE).exists() else {}
    bounds = settings.bounds or default_bounds(settings.k)
    shape = inputs.values.shape[1:]
    threat = smoothed.smoothing.threat
    preprocessing = "8-bit values divided by 255" if inputs.levels else "floats as given"
    manifest: Manifest = {
        "schema": manifests.SCHEMA,
        "claim": "",
        "threat": {"name": threat.name, "metric": threat.metric, "unit": threat.unit, "ball": threat.ball},
        "smoothing": str(smoothed.smoothing.spec),
        "arithmetic": {
            "mode": manifests.arithmetic(smoothed.smoothing.law, inputs.levels),
            "levels": inputs.levels,
            "deviation_per_view": smoothed.deviation(inputs),
        },
        "compute": {
            "rows": smoothed.rows or existing.get("rows") or choose_rows(shape, smoothed.device),
            "dtype": "float32",
            "device": device_name(smoothed.device),
            "threads": existing.get("threads") or torch.get_num_threads(),
            "channels_last": smoothed.channels_last,
            "torch": str(torch.__version__),
        },
        "statistics": {
            "k": settings.k,
            "n": settings.n,
            "alpha": settings.alpha,
            "bounds": bounds,
            "alpha_split": manifests.ALPHA_SPLIT[bounds],
            "label": settings.label,
            "n0": settings.n0 if settings.label == "votes" else 0,
            "looks": manifests.looks_up_to(settings.n),
        },
        "seed_commitment": secret.commitment,
        "model": {"spec": source.model, "sha256": source.model_sha256},
        "data": {
            "spec": source.data,
            "sha256": source.data_sha256,
            "preprocessing": {"text": preprocessing, "sha256": hashlib.sha256(preprocessing.encode()).hexdigest()},
            "shape": list(shape),
            "num_classes": smoothed.num_classes,
            "index": [int(i) for i in source.index],
            "label": None if source.truth is None else [int(label) for label in source.truth],
        },
        "versions": {"vauban": __version__, **{name: version(name) for name in ("numpy", "scipy", "mpmath")}},
    }
    manifest["claim"] = manifests.wording(manifest)
    return manifest


def device_name(device: torch.device) -> str:
    """The device as far as it can change what a network answers."""
    if device.type == "cuda":
        return f"cuda {torch.cuda.get_device_name(device)}"
    return f"{device.type} {torch.backends.cpu.get_cpu_capability()}" if device.type == "cpu" else device.type


def _begin(folder: Path, manifest: Manifest, secret: Seed, probe: Callable[[], None]) -> None:
    """Make sure that the manifest there is the same, or, once the model answers as it should, write a new one."""
    if (folder / manifests.FILE).exists():
        lines = list(manifests.differences(manifests.read(folder), manifest, ignore=("data.spec", "versions")))
        if lines:
            shown = "\n  ".join(lines[:6])
            raise RunRefused(
                f"{folder} holds a run with other settings, and votes of the two cannot be mixed:\n  {shown}\n"
                "give the settings of that run to go on with it, or another --out to begin a new one"
            )
        return
    strangers = sorted(p.name for p in folder.iterdir() if p.name not in (seeds.FILE, LOCK_FILE) and p.name[0] != ".")
    if strangers:
        raise RunRefused(f"{folder} is not empty and is no run (it holds {strangers[0]}): give another --out")
    probe()
    secret.write(folder)
    manifests.write(folder, manifest)


def _seed(folder: Path, number: int | None) -> Seed:
    """The seed of a run that is there, or the one asked for."""
    if number is None and (folder / manifests.FILE).exists():
        if not (folder / seeds.FILE).exists():
            raise RunRefused(
                f"{folder / seeds.FILE} is gone: without its seed this run can be verified, but not taken up again"
            )
        return Seed.read(folder)
    return Seed.of(number)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder: two writers at once are refused."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / LOCK_FILE, "w")  # noqa: SIM115
    except OSError as problem:
        raise BadInput(f"{folder} cannot be used as a run folder: {problem.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunRefused(
                f"{folder} is being written by another process: wait for it, or give another --out"
            ) from None
        yield


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
