"""The run folder: begun once, held by one writer, sealed when every vote is in."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from vauban import __version__
from vauban import seed as seeds
from vauban.errors import BadInput, Lie, RunRefused
from vauban.files import replace_file
from vauban.inputs import Inputs
from vauban.layout import taken_by_blocks
from vauban.runs import manifest as manifests
from vauban.runs.ballots import KeptBallots
from vauban.runs.derive import CLAIMS, SEAL, Votes, seal
from vauban.runs.manifest import Manifest
from vauban.smoothed import SmoothedClassifier
from vauban.voting.choosing import choose_rows
from vauban.voting.precision import PRECISIONS

LOCK_FILE = ".lock"


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
    """What a run has still to do. `votes_left` is None where each input stops by itself: then inputs are told, not votes."""

    votes_left: int | None
    inputs_done: int
    inputs: int
    endless: bool = False


def manifest_of(
    folder: Path,
    smoothed: SmoothedClassifier,
    inputs: Inputs,
    source: Source,
    statistics: dict[str, Any],
    rest: dict[str, Any],
    compute: dict[str, Any] | None = None,
) -> Manifest:
    """The manifest of a run: what all runs have, `statistics`, and `rest` and `compute` for what its kind adds."""
    existing = manifests.read(folder).get("compute", {}) if (folder / manifests.FILE).exists() else {}
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
            "dtype": PRECISIONS[smoothed.precision],
            "device": device_name(smoothed.device),
            "threads": existing.get("threads") or torch.get_num_threads(),
            "channels_last": smoothed.channels_last,
            **({"by_blocks": blocks} if (blocks := taken_by_blocks(smoothed.model)) else {}),
            "torch": str(torch.__version__),
            **(compute or {}),
        },
        "statistics": statistics,
        **rest,
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


def begin(
    folder: Path, manifest: Manifest, probe: Callable[[], None], first: Callable[[], None] = lambda: None
) -> None:
    """Make sure that the manifest there is the same, or, once `probe` is content with the model, call `first` and write it."""
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
    first()
    manifests.write(folder, manifest)


def check_sealed(folder: Path, votes: Votes | KeptBallots) -> None:
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


def close(folder: Path, votes: Votes | KeptBallots) -> None:
    """Write the claims and the seal of a run whose votes are all in."""
    claims, hashes = seal(votes)
    replace_file(folder / CLAIMS, claims.encode())
    replace_file(folder / SEAL, json.dumps(hashes, indent=1).encode() + b"\n")


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
