"""Alarms: a confirmed other answer inside a certified radius, written so that anyone can see it again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vauban.attacks.distances import distance
from vauban.attacks.folder import ALARM, write_arrays
from vauban.attacks.results import Attacked, false_certificates_note
from vauban.attacks.subjects import Subject
from vauban.attacks.targets import CONFIRM_ALPHA, SmoothedTarget
from vauban.errors import Lie
from vauban.files import write_json


def raise_alarms(subject: Subject, attacked: Attacked, seed: int) -> Attacked:
    """The same results with their alarms: inputs inside their certified radius whose other answer a second set of fresh votes
    gives as well. Abstentions are none.

    With a folder, they are written to `alarm/`: originals and adversarial inputs, counts, and a command of `vauban predict` that
    casts the same votes again.
    """
    positions = np.flatnonzero(attacked.inside)
    if not len(positions):
        return attacked
    _refuse_other_distances(subject, attacked, positions)
    answers, counts = subject.target.confirm(np.stack([_found(attacked, i).x for i in positions]), seed)
    again = np.array([a[0] >= 0 and attacked.label[i] not in a for i, a in zip(positions, answers, strict=True)])
    alarms = tuple(int(i) for i in positions[again])
    certified = int(subject.certified.sum())
    alpha = None if subject.certs is None or subject.certs.exact else subject.certs.alpha
    note = false_certificates_note(certified, alpha, len(alarms))
    if attacked.folder is not None and alarms:
        _write(attacked.folder / ALARM, subject, attacked, positions, again, answers, counts, seed, note)
    return replace(attacked, alarms=alarms, notes=attacked.notes if note is None else (*attacked.notes, note))


def _refuse_other_distances(subject: Subject, attacked: Attacked, positions: NDArray[np.int64]) -> None:
    """Refuse kept results whose distance is not that of their adversarial input, before they contradict a certificate."""
    units = subject.target.units
    found = units.read(np.stack([_found(attacked, i).x for i in positions]))
    own = units.read(attacked.originals[positions])
    for position, far in zip(positions, distance(own, found, attacked.threat), strict=True):
        said = float(attacked.distance[position])
        if not np.isclose(said, far, rtol=1e-5, atol=1e-9):
            raise Lie(
                f"the distance kept for input {attacked.index[position]} is {said:.6g}, and its adversarial input is {far:.6g} "
                "away: the results of this folder were changed; attack into another one"
            )


def _write(
    folder: Path,
    subject: Subject,
    attacked: Attacked,
    positions: NDArray[np.int64],
    again: NDArray[np.bool_],
    answers: NDArray[np.int64],
    counts: NDArray[np.int64],
    seed: int,
    note: str | None,
) -> None:
    """Every input that was asked, in the order in which it was: its place addresses its noise."""
    folder.mkdir(exist_ok=True)
    arrays = {
        "images": np.stack([_found(attacked, i).x for i in positions]),
        "labels": attacked.label[positions],
        "originals": attacked.originals[positions],
        "index": attacked.index[positions],
        "radius": attacked.radius[positions],
        "distance": attacked.distance[positions],
        "contradicted": again,
    }
    digest = write_arrays(folder / "adversarial.npz", arrays)
    data = f"npz:path={folder / 'adversarial.npz'},classes={subject.target.num_classes}"
    votes = ""
    target = subject.target
    if isinstance(target, SmoothedTarget) and target.sampled:
        votes = f" -n {target.fresh_votes} --alpha {CONFIRM_ALPHA:g} --seed {seed}"
    said: dict[str, Any] = {
        "note": note,
        "run": subject.about["run"],
        "model": subject.about["model"],
        "smoothing": subject.about["smoothing"],
        "threat": attacked.threat.name,
        "arrays_sha256": digest,
        "answers": answers.tolist(),
        "counts": counts.tolist(),
        "command": f"vauban predict --data {data} -k {target.k}{votes} {subject.command}",
        "meaning": "labels in the file are the certified ones: the command shows other answers, inside the radius in the file",
    }
    write_json(folder / "alarm.json", said)


def _found(attacked: Attacked, position: Any) -> Any:
    return attacked.results[int(position)]
