"""Forgeries of kept counts and gzipped files, of shuffled and skipped inputs, and of statistics that scale features."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forged_fields import both, without
from forged_folders import (
    BALLOTS,
    CLAIMS,
    COUNTS,
    MANIFEST,
    TALLIES,
    Edit,
    First,
    Forgery,
    Json,
    change,
    damaged,
    lines,
    manifest,
    pictures,
    put,
    reseal,
    rows_of_a_table,
    text,
)

from vauban.data import Dataset
from vauban.files import arrays_sha256

RULE = "that this rule was not chosen after looking at results"
TOLD = "the statistics that features are standardised by"


def counts(kind: str, edit: Callable[[list[Json]], Any], caught: str, says: str) -> Forgery:
    """Counts of a run that keeps them, changed and resealed."""
    return Forgery(kind, "counts", lines(edit, COUNTS), caught, says)


def moved(bodies: list[Json]) -> None:
    """A vote moved from the class with most to the next one."""
    found = bodies[0]["counts"]
    most = max(found, key=found.get)
    found[most] -= 1
    other = str((int(most) + 1) % 3)
    found[other] = found.get(other, 0) + 1
    bodies[0]["counts"] = dict(sorted(found.items()))


def raised(bodies: list[Json]) -> None:
    """A vote more for some class."""
    bodies[0]["counts"][next(iter(bodies[0]["counts"]))] += 1


COUNT_FORGERIES = [
    counts("a vote moved between kept counts", moved, "replay", r"\(counts\)"),
    counts("a vote added to kept counts", raised, "verify", "its counts sum to|counts .* votes of"),
    counts("a kept count below zero", lambda found: found[0].update(counts={"0": -1, "1": 53}), "verify", "it counts"),
    counts("a kept count of half a vote", lambda found: found[0].update(counts={"0": 0.5}), "verify", "it counts"),
    counts(
        "kept counts of a class that does not exist",
        lambda found: found[0].update(counts={"3": 1}),
        "verify",
        "class 3",
    ),
    counts("kept counts of an input twice", lambda found: [*found, found[0]], "verify", "is counted twice"),
    counts("kept counts of an input left out", lambda found: found[1:], "verify", "only 5 of its 6 inputs"),
    counts(
        "kept counts of an input that is not there",
        lambda found: found[0].update(input=1),
        "verify",
        "not in the manifest",
    ),
    counts("kept counts in another order of lines", lambda found: found[::-1], "no harm", "the same claims"),
    Forgery(
        "the last line of kept counts torn",
        "counts",
        text(COUNTS, lambda old: old[:-1]),
        "verify",
        "inputs|within a line",
    ),
    Forgery(
        "kept counts without their setting", "counts", manifest(without("settings.keep")), "verify", "only 0 of its 6"
    ),
    Forgery("kept counts said to be ballots", "counts", manifest(put("settings.keep", "ballots")), "verify", "keep"),
    Forgery("kept counts in a sampled run", "fixed", manifest(put("settings.keep", "counts")), "verify", "keep"),
    Forgery(
        "kept counts of a law that needs every ballot",
        "counts",
        manifest(put("smoothing", "band:size=1")),
        "verify",
        "keep|ballots",
    ),
    Forgery(
        "kept counts beside ballots",
        "exact",
        lambda folder: (folder / COUNTS).write_text("{}\n"),
        "verify",
        "counts.jsonl exists, but the seal does not name it",
    ),
    Forgery(
        "ballots beside kept counts",
        "counts",
        lambda folder: (folder / BALLOTS).write_text("{}\n"),
        "verify",
        "ballots.jsonl exists, but the seal does not name it",
    ),
]


def packed(change: Callable[[bytes], bytes], *, keep: bool = False, name: str = TALLIES) -> Edit:
    """A file, of votes unless named, replaced by its gzipped form, after a change of that; `keep`: it stays beside it."""

    def forge(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / f"{name}.gz").write_bytes(change(gzip.compress(content)))
        if not keep:
            (folder / name).unlink()

    return forge


def packed_claims(change: Callable[[bytes], bytes], *, keep: bool = False, name: str = CLAIMS) -> Edit:
    """Claims replaced by their gzipped form, after a change of their text; `keep`: the claims stay beside it."""

    def forge(folder: Path) -> None:
        (folder / f"{name}.gz").write_bytes(gzip.compress(change((folder / CLAIMS).read_bytes())))
        if not keep:
            (folder / CLAIMS).unlink()

    return forge


def other_claim(old: bytes) -> bytes:
    """A gzipped manifest that states another alpha."""
    return gzip.compress(gzip.decompress(old).replace(b'"alpha": 0.01', b'"alpha": 0.001'))


PACKED_FORGERIES = [
    Forgery("the manifest gzipped", "fixed", packed(lambda old: old, name=MANIFEST), "no harm", "the same claims"),
    Forgery("the manifest gzipped", "parts", packed(lambda old: old, name=MANIFEST), "no harm", "the same claims"),
    Forgery(
        "a gzipped manifest beside the manifest",
        "fixed",
        packed(lambda old: old, keep=True, name=MANIFEST),
        "verify",
        "both exist",
    ),
    Forgery(
        "a gzipped manifest beside the manifest",
        "parts",
        packed(lambda old: old, keep=True, name=MANIFEST),
        "verify",
        "both exist",
    ),
    Forgery(
        "a gzipped manifest with another alpha",
        "fixed",
        packed(other_claim, name=MANIFEST),
        "verify",
        "the claim's wording should be",
    ),
    Forgery(
        "a gzipped manifest cut off", "fixed", packed(lambda old: old[:-12], name=MANIFEST), "verify", "is cut off"
    ),
    Forgery(
        "a gzipped manifest that is no gzip", "fixed", packed(lambda old: b"{}", name=MANIFEST), "verify", "be unpacked"
    ),
    Forgery("claims gzipped", "fixed", packed_claims(lambda old: old), "no harm", "the same claims"),
    Forgery(
        "gzipped claims beside the claims", "fixed", packed_claims(lambda old: old, keep=True), "verify", "both exist"
    ),
    Forgery(
        "gzipped claims that say more",
        "fixed",
        packed_claims(lambda old: old.replace(b",false", b"1,false")),
        "verify",
        "claims.csv line",
    ),
    Forgery(
        "gzipped claims of votes that are not there",
        "fixed",
        packed_claims(lambda old: old, keep=True, name="claims-400.csv"),
        "verify",
        "the seal does not name it",
    ),
    Forgery("votes gzipped", "fixed", packed(lambda old: old), "no harm", "the same claims"),
    Forgery("gzipped votes beside the votes", "fixed", packed(lambda old: old, keep=True), "verify", "both exist"),
    Forgery("gzipped votes cut off", "fixed", packed(lambda old: old[:-12]), "verify", "is cut off"),
    Forgery(
        "gzipped votes with a second file behind them",
        "fixed",
        packed(lambda old: old + old),
        "verify",
        "more than one",
    ),
    Forgery(
        "gzipped votes with a wrong checksum",
        "fixed",
        packed(lambda old: old[:-8] + b"\0" * 8),
        "verify",
        "be unpacked",
    ),
    Forgery("gzipped votes that are no gzip", "fixed", packed(lambda old: b"votes"), "verify", "be unpacked"),
    Forgery(
        "gzipped votes with a line less",
        "fixed",
        packed(lambda old: gzip.compress(b"\n".join(gzip.decompress(old).split(b"\n")[:-2]) + b"\n")),
        "verify",
        "inputs have all their votes",
    ),
]


def shuffled(kind: str, edit: Callable[[Json], Any], caught: str, says: str) -> Forgery:
    """The rule of a shuffled run, changed and resealed."""
    return Forgery(kind, "shuffled", manifest(edit), caught, says)


SHUFFLE = "data.selection.shuffle"
SHUFFLED_FORGERIES = [
    shuffled("`shuffle` becomes `4`", put(SHUFFLE, 4), "verify", "its rule selects"),
    shuffled("`shuffle` becomes `-1`", put(SHUFFLE, -1), "verify", "which no run writes"),
    shuffled("`shuffle` becomes `True`", put(SHUFFLE, True), "verify", "which no run writes"),
    shuffled("`shuffle` becomes `'3'`", put(SHUFFLE, "3"), "verify", "which no run writes"),
    shuffled("`shuffle` removed", without(SHUFFLE), "verify", "its rule selects"),
    shuffled("`shuffle` not required of a reader", without("requires"), "verify", "requires must name"),
    shuffled("a shuffled data set said to be larger", put("data.selection.size", 13), "verify", "its rule selects"),
    shuffled("the limit of a shuffled run lowered", put("data.selection.limit", 4), "verify", "its rule selects"),
    shuffled(
        "the fingerprint of a shuffled data set changed",
        put("data.selection.sha256", "0" * 64),
        "verify --data",
        "another data set",
    ),
    Forgery(
        "a shuffle chosen after looking at results",
        "shuffled",
        lambda folder: reseal(folder),
        "nothing",
        RULE,
    ),
]


def skipped(kind: str, edit: Callable[[Json], Any], caught: str, says: str) -> Forgery:
    """The list of skipped inputs, changed and resealed."""
    return Forgery(kind, "skipped", manifest(edit), caught, says, data=damaged)


def hide_8(folder: Path) -> None:
    """Input 8, which was read, is dropped everywhere and said to be unreadable."""
    rest = [0, 2, 6, 10]
    whole = pictures()
    assert whole.labels is not None

    def edit(raw: Json) -> None:
        hashed = arrays_sha256(whole.images[rest], whole.labels[rest])
        raw["data"].update(index=rest, label=whole.labels[rest].tolist(), sha256=hashed)
        raw["data"]["selection"]["skipped"] = [4, 8]

    change(folder / MANIFEST, edit)
    lines(lambda found: [one for one in found if one["input"] != 8])(folder)


SKIPPED = "data.selection.skipped"
SKIPPED_FORGERIES = [
    skipped("an input skipped that the rule does not select", put(SKIPPED, [3, 4]), "verify", "does not select"),
    skipped("a skipped input that is certified", put(SKIPPED, [4, 6]), "verify", "its rule selects"),
    skipped("`skipped` removed", without(SKIPPED), "verify", "its rule selects"),
    skipped("`skipped` not required of a reader", without("requires"), "verify", "requires must name"),
    skipped("`skipped` becomes `[4, 4]`", put(SKIPPED, [4, 4]), "verify", "each is listed once"),
    skipped("`skipped` becomes `[]`", put(SKIPPED, []), "verify", "each is listed once"),
    skipped("`skipped` becomes `'4'`", put(SKIPPED, "4"), "verify", "a list of whole numbers"),
    skipped("`skipped` becomes `[4.0]`", put(SKIPPED, [4.0]), "verify", "a list of whole numbers"),
    Forgery(
        "an input that was read said to be unreadable", "skipped", hide_8, "verify --data", "can be read", data=damaged
    ),
]


def scaled(
    kind: str, edit: Callable[[Json], Any], caught: str, says: str, data: Callable[[], Dataset] = rows_of_a_table
) -> Forgery:
    """The standardisation of a run, changed and resealed."""
    return Forgery(kind, "standardised", manifest(edit), caught, says, First, data)


def own_statistics(raw: Json) -> None:
    """Says that the statistics are those of the data set that is certified."""
    raw["inputs"]["standardised"]["sha256"] = raw["data"]["selection"]["sha256"]


STATS = "inputs.standardised"
VOTES = "the votes in the folder are not those|views"
SCALED_FORGERIES = [
    scaled("a scale doubled", put(f"{STATS}.scale", lambda old: [2 * old[0], *old[1:]]), "replay", VOTES),
    scaled("a mean moved", put(f"{STATS}.mean", lambda old: [old[0] + 1, *old[1:]]), "replay", VOTES),
    scaled(
        "standardised features said to be plain",
        both(without(STATS), lambda raw: raw["requires"].remove(STATS)),
        "replay",
        VOTES,
    ),
    scaled("the standardisation not required of a reader", without("requires"), "verify", "requires must name"),
    scaled("a scale of zero", put(f"{STATS}.scale", [0.0, 1.0]), "verify", "scales are above zero"),
    scaled("a scale below zero", put(f"{STATS}.scale", [-1.0, 1.0]), "verify", "scales are above zero"),
    scaled("a scale that is no number", put(f"{STATS}.scale", ["1", 1.0]), "verify", "a mean and a scale"),
    scaled("a scale for one feature of two", put(f"{STATS}.scale", [1.0]), "verify", "a mean and a scale"),
    scaled(
        "statistics of three features",
        both(put(f"{STATS}.scale", [1.0] * 3), put(f"{STATS}.mean", [0.0] * 3)),
        "verify",
        "has 3 features",
    ),
    scaled("statistics of the certified inputs", own_statistics, "verify", "are its own"),
    scaled("statistics said to come from elsewhere", put(f"{STATS}.from", "elsewhere"), "nothing", TOLD),
    scaled(
        "a range of standardised features", put("inputs.range", [0.0, 1.0]), "verify", "standardised ones have neither"
    ),
    scaled(
        "standardised features said to be divided by 255",
        put("inputs.preprocessing", "8-bit values divided by 255"),
        "replay",
        "says of the features",
    ),
    scaled("a name of a feature dropped", put("data.features", ["size"]), "verify", "the names of features"),
]

SELECTIONS = {
    "Kept counts": COUNT_FORGERIES,
    "Gzipped votes": PACKED_FORGERIES,
    "Shuffled inputs": SHUFFLED_FORGERIES,
    "Skipped inputs": SKIPPED_FORGERIES,
    "Standardised features": SCALED_FORGERIES,
}
