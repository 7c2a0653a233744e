"""Recomputes every claim of a run from its votes and raises at the first contradiction; imports no torch."""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from vauban.errors import BadInput, Incomplete, Lie, RunRefused
from vauban.files import PACKED, arrays_sha256, floats_from_hex, is_there, read_json, read_packed
from vauban.laws.law import Law
from vauban.methods import FixedMethod
from vauban.registry import Origin
from vauban.report.wording import spoken, wording
from vauban.runs import folder_checks, schema1
from vauban.runs import manifest as manifests
from vauban.runs.extensions import closed_record
from vauban.runs.manifest import FILE, KINDS, Manifest, read_raw, refused_as_lies, threat_entries
from vauban.runs.selection import check_data, check_rule
from vauban.runs.store import (
    EXTENSIONS,
    SEAL,
    RunRecord,
    SealedRecord,
    claims_file,
    extensions_of,
    read_record,
    sealed_picture,
)
from vauban.runs.unproven import underived, unproven
from vauban.seed import FILE as SEED_FILE
from vauban.seed import Seed
from vauban.validation import check_nonce, path_of
from vauban.votes import SampledVotes


@dataclass(frozen=True)
class Verdict:
    """The result of a successful verification.

    `origin`: the package that registered the law, if not Vauban's own: its proof is trusted, not checked. `optional`: fields of
    the manifest beyond the specification. `extensions`: numbers of votes to which the run was extended; each is another claim.
    `unproven`: what the folder alone cannot prove, in words; `underived`: what it holds that does not follow from its votes.
    `seed`: number, system or announced; None for exact runs and where it is not recorded. `selection`: which inputs of the data
    set that was given these are, in words. `extending`: the number of votes of an extension that is not finished; the verdict is
    then about the claims before it.
    """

    inputs: int
    votes: int
    claim: str
    origin: Origin | None = None
    optional: dict[str, Any] = field(default_factory=dict)
    extensions: tuple[int, ...] = ()
    unproven: tuple[str, ...] = ()
    underived: tuple[str, ...] = ()
    seed: str | None = None
    selection: str | None = None
    extending: int | None = None


def verify_run(
    folder: str | Path, *, announced: str | None = None, nonce: str | None = None, data: Any = None
) -> Verdict:
    """Check manifest, votes, claims and seal of a run; raises `Lie` at the first one that is wrong.

    A run that is not finished raises `Incomplete`, after everything in the folder has been checked. One that is being extended
    keeps its claims and its seal until the extension is sealed: they are what is checked. `announced`, `nonce`: what was
    published of an announced run, which this must be. `data`: the whole data set, from which the rule in the manifest must
    give the inputs of the run.
    """
    folder = path_of("folder", folder)
    if (announced is None) != (nonce is None):
        raise BadInput("announced and nonce belong together: give both, as they were published")
    kind = read_raw(folder).get("kind", "smoothing")
    if kind not in KINDS:
        raise RunRefused(
            f"{folder} is of kind {kind!r}: a run that vauban certify or vauban poison certify wrote is needed here"
        )
    if kind == "poisoning":
        from vauban.poisoning.votes.verification import verify_run as verify_poisoning

        if announced is not None:
            raise RunRefused(
                f"{folder} is a poisoning run, which has no noise to announce: leave --announced and --nonce out"
            )
        return verify_poisoning(folder, data)
    with refused_as_lies(f"{folder} cannot be what a run left:"):
        folder_checks.refuse_special_files(folder)
        manifest = manifests.read(folder)
        folder_checks.check_numbers(folder / FILE, manifest)
        _check_manifest(folder, manifest)
        whole, _ = read_record(folder, manifest)
        record = closed_record(folder, whole)
    if announced is not None and nonce is not None:
        check_announced(folder, record, announced, nonce)
    with refused_as_lies(f"{folder} cannot be what a run left:"):
        _check_finished(folder, record)
        extending = None if record is whole else extensions_of(whole.method)[-1]
        if extending is not None:
            _check_unsealed(folder, whole, claims_file(extending))
        unsealed = () if extending is None else (EXTENSIONS, claims_file(extending))
        sealed_files = check_sealed(folder, record, unsealed)
        _check_kept_looks(folder, record)
    compared = None if data is None else check_data(manifest.data, data)
    return Verdict(
        len(manifest.data.index),
        record.votes.votes_cast,
        manifest.claim,
        manifest.origin,
        manifest.optional,
        extensions_of(record.method),
        unproven(folder, record, compared is not None, announced is not None),
        (*underived(folder, manifest), *folder_checks.other_files(folder, sealed_files)),
        None if manifest.seed is None else manifest.seed.kind,
        compared,
        extending,
    )


def _check_finished(folder: Path, record: RunRecord) -> None:
    """Refuse a sealed run without all its votes; one that is not sealed is `Incomplete`."""
    manifest, method, votes = record.manifest, record.method, record.votes
    inputs = len(manifest.data.index)
    sealed = (folder / SEAL).exists()
    if not method.finished(votes, sealed):
        left = len(method.pending(votes))
        if sealed:
            raise Lie(f"{folder} is sealed, but only {inputs - left} of its {inputs} inputs have all their votes")
        if manifest.seed is not None and manifest.announced and record.nonce is None:
            raise Incomplete(
                f"{folder} is announced as {manifest.identity} and waits for its nonce, the value of "
                f"{manifest.seed.nonce_from!r}: no vote is cast; run the same certify command with --nonce"
            )
        raise Incomplete(
            f"{folder} holds {inputs - left} of {inputs} inputs: they are consistent; "
            "run the same certify command again to finish it"
        )


def _check_kept_looks(folder: Path, record: RunRecord) -> None:
    """Refuse counts in a sealed keep=last run at other numbers of votes than those it keeps, which are removed before sealing."""
    method, votes = record.method, record.votes
    if not isinstance(method, FixedMethod) or not isinstance(votes, SampledVotes):
        return
    other = {int(counts.sum()) for looks in votes.looks for counts in looks} - set(method.kept_looks)
    if other:
        kept = " and ".join(f"{look:,}" for look in method.kept_looks)
        raise Lie(
            f"{folder} is sealed with counts at {min(other):,} votes, and with keep=last it keeps those at {kept} alone"
        )


def _check_unsealed(folder: Path, whole: RunRecord, name: str) -> None:
    """Refuse the claims file of an unsealed extension that is not what its votes say, or that exists before all are in."""
    if is_there(folder / name):
        if not whole.method.finished(whole.votes):
            raise Lie(f"{folder / name} exists, but the votes of this extension are not all in")
        folder_checks.refuse_packed_beside(folder, [name])
        check_claims(folder / name, whole.texts(whole.claims())[name])


def check_announced(folder: Path, record: RunRecord, announced: str, nonce: str) -> None:
    """Refuse a run that is not announced, or whose manifest or nonce is not what was published."""
    check_nonce(nonce)
    if not record.manifest.announced:
        raise RunRefused(f"{folder} is not announced: leave --announced and --nonce out, or ask for the announced run")
    if record.manifest.identity != announced:
        raise Lie(
            f"{folder} has the manifest {record.manifest.identity}; {announced} was announced: this is another run"
        )
    if record.nonce not in (None, nonce):
        raise Lie(f"{folder} has the nonce {record.nonce}; {nonce} was published: its votes are those of another try")


def _check_manifest(folder: Path, manifest: Manifest) -> None:
    path, law, inputs = folder / FILE, manifest.law(), manifest.inputs
    words = schema1.wording if manifest.schema == 1 else wording
    on_grid = inputs.levels is not None and law.on_grid
    expected: list[tuple[str, Any, Any]] = [
        ("the method", manifest.method_name, manifest.method.name),
        ("the settings", manifest.settings, manifest.settings.checked(law, manifest.data.num_classes)),
        ("the claim's wording", manifest.claim, words(manifest)),
        ("the threat", manifest.threat, threat_entries(spoken(manifest.method.law.threat, inputs, manifest.data))),
        ("the arithmetic", inputs.arithmetic, "grid" if on_grid else "float"),
    ]
    true = manifest.method.describe()
    if manifest.schema == 1:
        true = schema1.shown(manifest, true)
    expected += [(f"{name} of its method", manifest.described.get(name), value) for name, value in true.items()]
    expected += [(f"what it says of {name}", name, None) for name in manifest.described if name not in true]
    if not isinstance(law, Law):
        expected += [
            ("the levels", inputs.levels, getattr(law, "levels", None)),
            ("the deviation", inputs.deviation_per_view, 0.0),
            ("the seed", manifest.seed, None),
        ]
    compute, exact = manifest.compute, not isinstance(law, Law)
    shared = compute.block not in (None, compute.rows)
    if exact or shared or manifest.method_name == "sequential":
        expected.append(("whether scores depend on the row", compute.rows_differ, None))
    if exact or shared:
        expected.append(("the randomness of the model", compute.stochastic, None))
    if compute.stochastic == "views":
        expected.append(("the rows of a model that is called with one view at a time", compute.rows, 1))
    check_rule(path, manifest.data)
    for what, said, right in expected:
        if said != right:
            raise Lie(f"{path}: {what} should be {right!r}, not {said!r}")
    if isinstance(law, Law):
        _check_randomness(folder, manifest, law)
    if manifest.model.kept_scores is not None:
        _check_kept_scores(path, manifest)


def _check_kept_scores(path: Path, manifest: Manifest) -> None:
    """Refuse kept scores of another size than probe views have, and, where all are kept, of another hash."""
    rows, classes = manifest.compute.rows, manifest.data.num_classes
    kept = floats_from_hex(manifest.model.kept_scores or "", rows, classes)
    if len(kept) == rows and arrays_sha256(kept) != manifest.model.scores:
        raise Lie(f"{path}: the kept scores of the probe views are not those whose hash it holds")


def _check_randomness(folder: Path, manifest: Manifest, law: Law) -> None:
    said = manifest.inputs.deviation_per_view
    least = law.deviation(manifest.data.shape, manifest.inputs.levels)
    if not (said >= least * (1 - 1e-9) and math.isfinite(said)):
        raise Lie(f"{folder / FILE}: the noise deviates by {least:.3g} per view, not by {said:.3g}")
    committed = None if manifest.seed is None else manifest.seed.commitment
    folder_checks.check_commitment(folder / FILE, committed)
    if (folder / SEED_FILE).exists() and Seed.read(folder).commitment != committed:
        raise Lie(f"{folder / SEED_FILE} is not the seed that the manifest commits to")


def check_sealed(folder: Path, record: SealedRecord, unsealed: Collection[str] = ()) -> list[str]:
    """Refuse claims files and a seal that are not what the votes say; without a seal the run is `Incomplete`.

    `unsealed`: files of an extension that the seal does not name yet. Returns the names of all these files.
    """
    texts, sealed = record.texts(record.claims()), (folder / SEAL).exists()
    for name, text in texts.items():
        if sealed or is_there(folder / name):
            check_claims(folder / name, text)
    if not sealed:
        raise Incomplete(
            f"{folder} has all its votes and is not sealed: run the same certify command again to finish it"
        )
    seal = record.seal(texts, sealed_picture(folder))
    check_seal(folder / SEAL, seal, unsealed)
    folder_checks.refuse_packed_beside(folder, (FILE, *texts, *folder_checks.VOTE_FILES))
    if record.manifest.schema == 1:
        return [*texts, *folder_checks.VOTE_FILES]
    folder_checks.refuse_second_votes(folder, seal)
    if not unsealed:
        folder_checks.refuse_torn_lines(folder, seal)
    return [*seal, *unsealed]


def check_claims(path: Path, true: str) -> None:
    """Compare a claims file, line by line, with the text `true` that the votes give."""
    if not is_there(path):
        raise Lie(f"{path} is missing: the run is complete and must have its claims")
    said = read_packed(path)
    if said == true.encode():
        return
    for number, (line, right) in enumerate(zip_longest(io.BytesIO(said), io.BytesIO(true.encode())), start=1):
        if line != right:
            raise Lie(f"{path} line {number} says {_shown(line, right)}; the votes say {_shown(right, line)}")


def _shown(line: bytes | None, other: bytes | None) -> str:
    """A line as an error shows it, with its end where it differs from the other in that alone."""
    if line is None:
        return "that there is no such line"
    ends = other is not None and line.rstrip(b"\n") == other.rstrip(b"\n")
    return repr(line.decode(errors="replace") if ends else line.decode(errors="replace").removesuffix("\n"))


def check_seal(path: Path, true: Mapping[str, str], unsealed: Collection[str] = ()) -> None:
    """Compare a seal with the hashes `true` of the run's content; it must name exactly its files, but for those `unsealed`."""
    said = read_json(path)
    for part, digest in true.items():
        if said.get(part) != digest:
            raise Lie(f"{path}: {part} changed after the run was sealed")
    for part in said:
        if part not in true:
            raise Lie(f"{path} names {part}, which this run does not have")
    if FILE in true:
        beside = [
            file for names in ("claims*.csv", f"claims*.csv{PACKED}", EXTENSIONS) for file in path.parent.glob(names)
        ]
        for other in (file for file in beside if file.name.removesuffix(PACKED) not in (*true, *unsealed)):
            raise Lie(f"{other} exists, but the seal does not name it")
