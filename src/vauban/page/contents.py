"""What a page holds of a run: its manifest, votes and claims as the folder has them, and texts; imports no torch."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from vauban.bounds import eprocess
from vauban.certificates import Certificates, Claims
from vauban.errors import Incomplete
from vauban.files import canonical, read_json
from vauban.poisoning.votes.poisoning_run import PoisoningRun
from vauban.runs.opened import OpenedRun
from vauban.runs.run import Run
from vauban.runs.store import CLAIMS, SEAL, claims_file
from vauban.runs.verify import Verdict
from vauban.votes import BallotVotes, SampledVotes, Tally

_BALLOT_BYTES = 1_500_000


def contents(run: OpenedRun) -> dict[str, Any]:
    """What the page needs to show a run and to recompute its claims, as plain values.

    The folder is verified first: one that claims more than its votes prove is refused. Of a run that is not finished the inputs
    that are decided are shown; of an extended one the claims of the last extension. What the manifest says, such as the threat,
    is not held a second time: the page derives it from the manifest, to which votes are bound.
    """
    verdict, unfinished = _verified(run)
    certs, file = _claims(run, verdict)
    return {
        "name": run.path.resolve().name,
        "manifest": canonical(run.manifest.raw),
        "seal": canonical(read_json(run.path / SEAL)) if verdict is not None else None,
        "claims": run.record.texts({file: certs})[file],
        "claimsFile": file,
        "notes": [*certs.notes, *([unfinished] if unfinished else [])],
        "unproven": [] if verdict is None else [*verdict.unproven, *verdict.underived],
        **_votes(run, certs),
    }


def _verified(run: OpenedRun) -> tuple[Verdict | None, str]:
    """The verdict on a run; None, and a sentence, if it is not finished."""
    try:
        return run.verify(), ""
    except Incomplete as problem:
        return None, f"This run is not finished: {problem}."


def _claims(run: OpenedRun, verdict: Verdict | None) -> tuple[Claims, str]:
    """The claims that are shown, and the name of their file."""
    if isinstance(run, Run) and verdict is not None and verdict.extensions:
        n = verdict.extensions[-1]
        return run.certificates(n=n), claims_file(n)
    return run.certificates(), CLAIMS


def _votes(run: OpenedRun, certs: Claims) -> dict[str, Any]:
    """The votes that claims rest on: lines of the folder, or arrays whose hash is in its seal."""
    if isinstance(run, PoisoningRun):
        return {"binding": run.manifest.identity, "nonce": None, **_arrays(run)}
    assert isinstance(run, Run)
    assert isinstance(certs, Certificates)
    binding = run.record.binding
    found = {"binding": binding, "nonce": run.record.nonce}
    if isinstance(run.votes, SampledVotes):
        anytime = run.manifest.settings.stop == "anytime"
        return found | {"lines": list(_lines(run.votes, certs, binding, anytime))}
    lines = _ballot_lines(run.votes, binding) if run.manifest.settings.keep != "counts" else []
    if lines and sum(map(len, lines)) <= _BALLOT_BYTES:
        return found | {"ballots": lines}
    counts = [[int(i), row.tolist()] for i, row in zip(certs.index, certs.counts, strict=True)]
    return found | {"counts": counts}


def _lines(votes: SampledVotes, certs: Certificates, binding: str, anytime: bool) -> Iterator[str]:
    """The lines of tallies that claims rest on: those that chose labels, and the counts at the look of each claim.

    `anytime`: also the counts at the look whose bound is the largest, where that is an earlier one.
    """
    position = {number: p for p, number in enumerate(votes.index)}
    for number, label, counts in zip(certs.index.tolist(), certs.label.tolist(), certs.counts, strict=True):
        looks, chosen = votes.looks[position[number]], votes.chosen[position[number]]
        if chosen is not None:
            yield votes.line(Tally(number, "choose", int(chosen.sum()), chosen), binding)
        if anytime:
            wins, cast = np.array([look[label] for look in looks]), np.array([look.sum() for look in looks])
            best = looks[int(eprocess.lower_bound(wins, cast, certs.alpha).argmax())]
            if best.sum() < counts.sum():
                yield votes.line(Tally(number, "count", int(best.sum()), best), binding)
        yield votes.line(Tally(number, "count", int(counts.sum()), counts), binding)


def _ballot_lines(votes: BallotVotes, binding: str) -> list[str]:
    complete = set(votes.complete)
    return [line for position, line in enumerate(votes.lines(binding)) if position in complete]


def _arrays(run: PoisoningRun) -> dict[str, Any]:
    """The votes of base classifiers; only counts where the rest would make the page too large."""
    arrays = {name: _packed(array) for name, array in run.record.arrays.items()}
    if sum(len(array["data"]) for array in arrays.values()) <= 2 * _BALLOT_BYTES:
        return {"arrays": arrays}
    rows = zip(run.manifest.data.index, run.votes.counts.tolist(), strict=True)
    return {"counts": [[index, counts] for index, counts in rows]}


def _packed(array: np.ndarray) -> dict[str, Any]:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    packed = base64.b64encode(zlib.compress(little.tobytes(), 9)).decode()
    return {"shape": list(array.shape), "width": array.dtype.itemsize, "data": packed}
