"""Runs that an entry takes from elsewhere: those that --use names, and those of the entry whose votes it takes."""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from vauban.errors import BadInput, RunRefused
from vauban.files import read_json, write_json
from vauban.reproduce.inputs import chosen_inputs
from vauban.reproduce.sharing import OWN
from vauban.reproduce.steps import ABOUT, RECIPES, SETTINGS, USED, Step, inputs_of, refuse_missing_looks


def _refuse_unlike(step: Step, folder: Path) -> None:
    """Refuse a run that was made with another smoothing, other inputs or other settings than a step makes it with."""
    from vauban.methods import CertifySettings
    from vauban.runs.manifest import Manifest
    from vauban.runs.run import Run
    from vauban.smoothing import build

    if step.entry.kind != "runs":
        return
    found, given = Run.open(folder).manifest, step.entry.certify
    if not isinstance(found, Manifest):
        raise BadInput(f"--use {step.name}={folder}: this is a run about poisoning, and this entry smooths inputs")
    inputs, smoothing = chosen_inputs(str(given.get("data", step.entry.data)), inputs_of(step)), build(step.smoothing)
    asked = {key: given[key] for key in SETTINGS if key in given}
    settings = CertifySettings.of(smoothing.law, inputs.num_classes, **asked)
    pairs = {"smoothing": (str(smoothing.spec), str(found.smoothing))}
    pairs |= {key: (getattr(settings, key), getattr(found.settings, key)) for key in SETTINGS if key != "keep"}
    for key, (ours, theirs) in pairs.items():
        if ours != theirs:
            raise BadInput(f"--use {step.name}={folder}: {key} is {theirs} there, and {ours} here: make this run anew")
    refuse_missing_looks(step, folder)
    labels = None if inputs.labels is None else np.asarray(inputs.labels).tolist()
    about = (list(found.data.index), found.data.label, tuple(found.data.shape), found.data.sha256)
    if about != (inputs.index.tolist(), labels, tuple(inputs.images.shape[1:]), inputs.fingerprint()):
        raise BadInput(f"--use {step.name}={folder}: it is about other inputs than this entry: make this run anew")


def _trained_alike(step: Step) -> bool:
    """Whether the entry whose votes a step takes was made beside it with the same training, by the notes in both folders."""
    notes = [folder / ABOUT for folder in (step.out, step.shared.parents[1])]
    if not all(file.exists() for file in notes):
        return False
    names = [one.weights.stem for one in (step.first, step) if one is not None]
    mine, theirs = (
        (
            [note.get(RECIPES, {}).get(name) for name in names],
            [note.get(key) for key in ("data", "quick", "printed")],
            {key: value for key, value in note.get("train", {}).items() if key not in OWN},
        )
        for note in map(read_json, notes)
    )
    return mine == theirs and None not in mine[0]


def _shared(steps: Sequence[Step]) -> dict[str, Path]:
    """The finished runs of the entry whose votes these steps take, where it was made beside theirs and they have none yet."""
    from vauban.runs.store import SEAL

    found = {}
    for step in steps:
        wanted = step.entry.votes_of and step.used is None and not step.sealed
        if wanted and (step.shared / SEAL).exists() and _trained_alike(step):
            with suppress(BadInput, RunRefused):  # made with other options: this entry casts its own votes
                _refuse_unlike(step, step.shared)
                found[step.name] = step.shared
    return found


def use(steps: Sequence[Step], given: Mapping[str, Path]) -> None:
    """Keep in the folder of the results which runs were made elsewhere; a folder without a finished run of this kind is refused,
    and so is one of an earlier call that is not there any more."""
    from vauban.runs.store import SEAL

    known, given = {step.name: step for step in steps}, {**_shared(steps), **given}
    for name, folder in given.items():
        if name not in known:
            raise BadInput(f"--use {name}={folder}: this entry has the runs {', '.join(known)}")
        if not (folder / SEAL).exists():
            raise BadInput(f"--use {name}={folder}: this is no finished run folder, which has a {SEAL}")
        _refuse_unlike(known[name], folder)
        out = known[name].out
        kept = read_json(out / USED) if (out / USED).exists() else {}
        write_json(out / USED, {**kept, name: Path(os.path.relpath(folder.resolve(), out.resolve())).as_posix()})
    for step in steps:
        if step.used is not None and not (step.used / SEAL).exists():
            raise BadInput(f"{step.used}, which {step.out / USED} names, is not there: give --use {step.name}=FOLDER")
