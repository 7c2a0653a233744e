"""What a run folder cannot prove by itself, and what verify cannot derive from its votes, in words; imports no torch."""

from __future__ import annotations

from pathlib import Path

from vauban.runs.manifest import Manifest
from vauban.runs.selection import words
from vauban.runs.store import PICTURE, SEAL, RunRecord, sealed_picture
from vauban.seed import ANNOUNCED, NUMBER, SYSTEM
from vauban.seed import FILE as SEED_FILE

_CAST = "That these votes were cast by that model on those inputs: vauban verify --replay casts some of them again."
_CHOSEN = (
    "That the settings (n, alpha, k, bounds, labels, when to stop, the proof) were chosen before the votes: every choice made "
    "after looking is one more try."
)
_NOT_SEEN = (
    "That the model was not trained on these inputs: claims hold all the same, but say less of inputs it has not seen."
)
_OLD = "That the model judges each view by itself and always alike: Vauban 0.1 wrote this run, and did not check it."
_TRIES = "With t tries a claim about one input is false with probability at most t alpha"
_SEEDS = {
    NUMBER: "The seed was chosen by hand: whoever chose it knew the noise and could try others.",
    SYSTEM: "The seed is said to come from the operating system and was not announced: the owner may have tried others. "
    f"{_TRIES}, and nobody else knows t.",
    None: "Nothing is known of where the seed came from.",
}


def unproven(folder: Path, record: RunRecord, compared: bool, announced: bool) -> tuple[str, ...]:
    """What a run folder cannot prove by itself; `compared`, `announced`: whether its data set, its hash and nonce were given."""
    manifest = record.manifest
    old = (_OLD,) if manifest.schema == 1 else ()
    chosen = () if manifest.seed is None or manifest.announced else (_CHOSEN,)
    return (_CAST, _selection(manifest, compared), *_seed(folder, record, announced), *chosen, _NOT_SEEN, *old)


def _selection(manifest: Manifest, compared: bool) -> str:
    selection = manifest.data.selection
    if selection is None or selection.every is None:
        how = "the selection is not recorded" if selection is None else "they are a selection by hand"
        return f"That the inputs were not picked after looking at their results: {how}."
    if compared:
        return "That the rule of selection was not chosen after looking at results."
    fingerprint = "" if selection.sha256 is None else f" with the fingerprint {selection.sha256[:12]}…"
    return (
        f"That the inputs, {words(selection)}{fingerprint}, come from the data set you mean (vauban verify --data compares), and "
        "that this rule was not chosen after looking at results."
    )


def _seed(folder: Path, record: RunRecord, announced: bool) -> tuple[str, ...]:
    seed = record.manifest.seed
    if seed is None:
        return ()
    if seed.kind != ANNOUNCED:
        return (_SEEDS[seed.kind],)
    said = (
        "are those given" if announced else "must be those that were published (vauban verify --announced H --nonce V)"
    )
    shown = (
        "" if (folder / SEED_FILE).exists() else " Its seed is not shown: until it is, the run is not an announced one."
    )
    return (
        f"The run was announced as {record.manifest.identity}, by the owner's word before its nonce {record.nonce} existed, "
        f"which is said to come from {seed.nonce_from!r}; hash and nonce {said}. {_TRIES}: t is the number of announcements that "
        "the owner published, finished or not.",
        f"An announcement binds only together with a replay: without one, votes could be invented.{shown}",
    )


def underived(folder: Path, manifest: Manifest) -> tuple[str, ...]:
    """What the folder holds that does not follow from its votes: sealed, perhaps, but by the owner's word alone."""
    told = [
        "precision, device, threads and versions",
        "names and hashes of model and data",
        "files that the model reads",
        "true labels",
    ]
    told += [] if manifest.inputs.standardised is None else ["the statistics that features are standardised by"]
    told += [f"the optional {', '.join(manifest.optional)}"] if manifest.optional else []
    lines = [f"{'; '.join(told)}: as the owner's machine wrote them."]
    if (folder / PICTURE).exists():
        named = (folder / SEAL).exists() and sealed_picture(folder) is not None
        state = "its bytes are those that were sealed" if named else "the seal does not name it"
        lines.append(f"What {PICTURE} shows: {state}, and nothing was compared with the claims.")
    return tuple(lines)
