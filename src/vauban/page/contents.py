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
from vauban.report.wording import scale_of, threat_of
from vauban.runs.manifest import threat_entries
from vauban.runs.opened import OpenedRun
from vauban.runs.run import Run
from vauban.runs.selection import words
from vauban.runs.store import CLAIMS, SEAL, claims_file
from vauban.runs.verify import Verdict
from vauban.votes import BallotVotes, SampledVotes, Tally

RHO = 1e-3
"""How often the bound on the accuracy of all inputs may fail."""

_BALLOT_BYTES = 1_500_000


def contents(run: OpenedRun) -> dict[str, Any]:
    """What the page needs to show a run and to recompute its claims, as plain values.

    The folder is verified first: one that claims more than its votes prove is refused. Of a run that is not finished the inputs
    that are decided are shown; of an extended one the claims of the last extension.
    """
    verdict, unfinished = _verified(run)
    certs, file = _claims(run, verdict)
    return {
        "name": run.path.resolve().name,
        "title": run.title,
        "manifest": canonical(run.manifest.raw),
        "identity": run.manifest.identity,
        "finished": verdict is not None,
        "seal": canonical(read_json(run.path / SEAL)) if verdict is not None else None,
        "claims": run.record.texts({file: certs})[file],
        "claimsFile": file,
        "threat": {**threat_entries(threat_of(certs)), "integer": certs.threat.integer, "scale": scale_of(certs)},
        "rho": RHO,
        "notes": [*certs.notes, *([unfinished] if unfinished else [])],
        "unproven": [] if verdict is None else [*verdict.unproven, *verdict.underived],
        "about": about(run),
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


def about(run: OpenedRun) -> list[list[str]]:
    """Where the run comes from, as pairs of a name and a text."""
    manifest = run.manifest
    versions = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    if isinstance(run, PoisoningRun):
        rows = [
            ("data", f"{manifest.data.spec}, sha256 {manifest.data.sha256}"),
            ("partition", f"{manifest.partition}, {manifest.models:,} base classifiers"),
            ("aggregate", manifest.settings.aggregate),
        ]
    else:
        assert isinstance(run, Run)
        compute, seed = manifest.compute, manifest.seed
        rows = [
            ("data", f"{manifest.data.spec}, sha256 {manifest.data.sha256}"),
            ("inputs", words(manifest.data.selection)),
            ("model", f"{manifest.model.spec}, sha256 {manifest.model.sha256}"),
            ("smoothing", manifest.smoothing),
            ("votes", _settings(run)),
            ("seed", "none: every view votes" if seed is None else f"{seed.kind}, commitment {seed.commitment}"),
            ("arithmetic", f"{manifest.backend}, {compute.precision}, {compute.device}, {compute.rows} rows"),
        ]
    return [[name, text] for name, text in (*rows, ("versions", versions), ("manifest", f"sha256 {manifest.identity}"))]


def _settings(run: Run) -> str:
    settings = run.manifest.settings
    label = "true labels" if settings.label == "given" else "labels chosen by votes"
    if settings.stop is None:
        return f"every view of {run.manifest.described['views']:,}, {label}"
    number = "" if settings.n is None else f"{settings.n:,} for each input, "
    return f"{number}alpha {settings.alpha}, bounds {settings.bounds}, stop {settings.stop}, {label}"


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
