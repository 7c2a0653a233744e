"""Forgeries of whole files, of seals, and of poisoning runs."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from forged_fields import OTHER
from forged_folders import (
    CLAIMS,
    MANIFEST,
    SEAL,
    TALLIES,
    Edit,
    Forgery,
    Json,
    arrays,
    certified,
    change,
    manifest,
    naive,
    put,
    reseal,
    text,
)

BESIDE = "Files that the seal does not name and nothing checks: "
PARTS = "That these are the votes of base classifiers trained on those parts"
SPREAD = "spread, threat and partition are the word of whoever trained"
TOLD = "What the manifest only tells: names, texts and hashes of data, training and weights"
PICKED = "That the inputs, the partition and the settings of the training were not picked after looking"
BALLOTS = "ballots.npz"


def written(name: str, content: bytes = b"x") -> Edit:
    return lambda folder: (folder / name).write_bytes(content)


def rewritten(name: str, edit: Callable[[bytes], bytes]) -> Edit:
    return lambda folder: (folder / name).write_bytes(edit((folder / name).read_bytes()))


def linked(folder: Path) -> None:
    """Every file is a symbolic link to its content elsewhere."""
    (folder.parent / "elsewhere").mkdir()
    for path in [path for path in folder.iterdir() if path.is_file()]:
        moved = Path(shutil.move(path, folder.parent / "elsewhere"))
        path.symlink_to(moved)


def instead(name: str, make: Callable[[Path], Any]) -> Edit:
    """Something else in place of a file."""

    def forge(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return forge


def seal_of_another(folder: Path) -> None:
    shutil.copy(certified(folder.parent / "other", "fixed", seed=8) / SEAL, folder / SEAL)


def votes_of_another(folder: Path) -> None:
    shutil.copy(certified(folder.parent / "other", "fixed", seed=8) / TALLIES, folder / TALLIES)


FILE_FORGERIES = [
    Forgery("a second claims file", "fixed", written("claims-400.csv"), "verify", "the seal does not name it"),
    Forgery("a second file of votes", "fixed", written("ballots.jsonl"), "verify", "the seal does not name it"),
    Forgery("a second file of votes", "parts", written(TALLIES), "verify", "the seal does not name it"),
    Forgery(
        "an empty file of extensions", "fixed", written("extensions.jsonl", b""), "verify", "the seal does not name it"
    ),
    Forgery("a table of other radii beside", "fixed", written("results.csv"), "nothing", BESIDE + "results.csv"),
    Forgery("a table of other radii beside", "parts", written("results.csv"), "nothing", BESIDE + "results.csv"),
    Forgery(
        "compressed votes beside",
        "fixed",
        written(f"{TALLIES}.gz"),
        "verify",
        "is cut off, or holds more than one file",
    ),
    Forgery(
        "compressed votes in place of the votes",
        "fixed",
        rewritten(TALLIES, gzip.compress),
        "verify",
        "it cannot be read|have all their votes",
    ),
    Forgery("a compressed manifest", "fixed", rewritten(MANIFEST, gzip.compress), "verify", "cannot be read"),
    Forgery("symbolic links to the files", "fixed", linked, "no harm", "the same claims"),
    Forgery("a pipe in place of the claims", "fixed", instead(CLAIMS, os.mkfifo), "verify", "a pipe or a device"),
    Forgery(
        "an endless device in place of the claims",
        "fixed",
        instead(CLAIMS, lambda path: path.symlink_to("/dev/zero")),
        "verify",
        "a pipe or a device",
    ),
    Forgery(
        "an endless device in place of the votes",
        "parts",
        instead(BALLOTS, lambda path: path.symlink_to("/dev/zero")),
        "verify",
        "a pipe or a device",
    ),
    Forgery(
        "a folder in place of the claims", "fixed", instead(CLAIMS, Path.mkdir), "verify", "where a run has a file"
    ),
    Forgery(
        "a folder in place of the votes", "fixed", instead(TALLIES, Path.mkdir), "verify", "where a run has a file"
    ),
    Forgery("a folder in place of the seal", "fixed", instead(SEAL, Path.mkdir), "verify", "where a run has a file"),
    Forgery("votes removed", "fixed", lambda folder: (folder / TALLIES).unlink(), "verify", "only 0 of its 6 inputs"),
    Forgery("lines of another run, their checks kept", "fixed", votes_of_another, "verify", "belongs to another run"),
]

SEAL_FORGERIES = [
    Forgery("the seal removed", "fixed", lambda folder: (folder / SEAL).unlink(), "verify", "is not sealed"),
    Forgery("the seal of another run", "fixed", seal_of_another, "verify", "changed after the run was sealed"),
    Forgery(
        "an unknown key in the seal",
        "fixed",
        naive(put("note", OTHER), SEAL),
        "verify",
        "names note, which this run does not have",
    ),
    Forgery(
        "a key missing in the seal",
        "fixed",
        naive(lambda seal: seal.pop(CLAIMS), SEAL),
        "verify",
        "changed after the run was sealed",
    ),
    Forgery("null for a hash", "fixed", naive(put("seal", None), SEAL), "verify", "names seal"),
    Forgery(
        "a key twice in the seal",
        "fixed",
        text(SEAL, lambda old: old.replace("{", '{"claims.csv": "",', 1)),
        "verify",
        "a key occurs twice",
    ),
    Forgery("a list for a seal", "fixed", written(SEAL, b"[]"), "verify", "not an object"),
    Forgery("100,000 brackets for a seal", "fixed", written(SEAL, b"[" * 100_000), "verify", "cannot be read"),
    Forgery(
        "a hash of the seal changed",
        "parts",
        naive(lambda seal: seal.update({BALLOTS: OTHER}), SEAL),
        "verify",
        "changed after",
    ),
]


def row(name: str, position: int, value: Any) -> Callable[[Json], None]:
    """Other votes for one input."""

    def edit(found: Json) -> None:
        found[name] = found[name].astype(np.int64)
        found[name][position] = value

    return edit


def spread_taken_for_one(folder: Path) -> None:
    """Base classifiers that share samples are said to share none."""

    def edit(raw: Json) -> None:
        raw["partition"] = raw["training"]["partition"]["spec"] = "hash:partitions=6"

    def counted(found: Json) -> None:
        votes = found.pop("votes")
        found["counts"] = np.stack([(votes == label).sum(axis=1) for label in range(3)], axis=1)

    change(folder / MANIFEST, edit)
    arrays(counted)(folder)


def named_twice(folder: Path) -> None:
    """A second array of the same name, which another reader may take."""
    other = io.BytesIO()
    np.save(other, np.full((5, 3), 2))
    with warnings.catch_warnings(), zipfile.ZipFile(folder / BALLOTS, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("counts.npy", other.getvalue())
    reseal(folder)


def huge_array(folder: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i8", "fortran_order": False, "shape": (10**8, 10**6)})
    with zipfile.ZipFile(folder / BALLOTS, "w") as archive:
        archive.writestr("counts.npy", header.getvalue() + bytes(100))


def poisoning(place: str, value: Any, caught: str, says: str) -> Forgery:
    """One field of a poisoning run's manifest, resealed."""
    return Forgery(f"`{place}` becomes `{value!r:.40}`", "parts", manifest(put(place, value)), caught, says)


def votes(kind: str, edit: Callable[[Json], Any], caught: str, says: str, run: str = "parts") -> Forgery:
    """Votes of a poisoning run, resealed."""
    return Forgery(kind, run, arrays(edit), caught, says)


WRAPPED = np.array([[2**63 - 1, 2**62, 2**62 + 7]] * 5, dtype=np.int64)

PART_FORGERIES = [
    votes("the vote of one part changed", row("counts", 3, [5, 1, 0]), "nothing", PARTS),
    votes("the vote of one part changed", row("votes", 3, [0] * 6), "nothing", PARTS, "spread"),
    votes(
        "parts in another order", lambda found: found.update(votes=found["votes"][:, ::-1]), "nothing", PARTS, "spread"
    ),
    Forgery(
        "votes changed, the seal stays",
        "parts",
        arrays(row("counts", 0, [5, 1, 0]), sealed=False),
        "verify",
        "claims.csv line 2",
    ),
    votes(
        "counts whose sum is not the number of parts", row("counts", 3, [7, 0, 0]), "verify", "every model votes once"
    ),
    votes(
        "a part more", lambda found: found.update(counts=found["counts"] + [1, 0, 0]), "verify", "the number of models"
    ),
    votes("negative counts", row("counts", 3, [7, -1, 0]), "verify", "numbers of votes"),
    votes(
        "counts with fractions", lambda found: found.update(counts=found["counts"] * 1.0), "verify", "numbers of votes"
    ),
    votes("NaN for counts", lambda found: found.update(counts=np.full((5, 3), np.nan)), "verify", "numbers of votes"),
    votes(
        "counts whose sum wraps at 64 bits",
        lambda found: found.update(counts=WRAPPED),
        "verify",
        "no ensemble has that many models",
    ),
    votes(
        "votes on fewer inputs",
        lambda found: found.update(counts=found["counts"][:4]),
        "verify",
        "votes on 4 inputs, not 5",
    ),
    votes("an array more", lambda found: found.update(note=np.zeros(1)), "verify", "not the votes of this run"),
    votes("a vote out of range", row("votes", 3, [3] * 6), "verify", "votes are 0 to 2", "spread"),
    votes(
        "another winner of the run-off",
        row("winner", 3, 1),
        "verify",
        "do not fit the first round|did not win",
        "runoff",
    ),
    votes(
        "second-round votes raised",
        lambda found: found.update(beats=np.full((5, 3), 6)),
        "verify",
        "do not fit the first round",
        "runoff",
    ),
    votes("no second round", lambda found: found.pop("beats"), "verify", "without beats", "runoff"),
    votes(
        "objects for votes",
        lambda found: found.update(counts=np.array([[1, None]], dtype=object)),
        "verify",
        "cannot be read",
    ),
    Forgery("an array twice, with other votes", "parts", named_twice, "verify", "two arrays of one name"),
    Forgery("an array that memory cannot hold", "parts", huge_array, "verify", "cannot be read"),
    Forgery("the archive cut", "parts", rewritten(BALLOTS, lambda old: old[:-30]), "verify", "cannot be read"),
    Forgery("shared samples denied", "spread", spread_taken_for_one, "nothing", SPREAD),
    Forgery(
        "another threat, everywhere",
        "parts",
        manifest(lambda raw: (raw.update(against="labels"), raw["training"].update(against="labels"))),
        "nothing",
        SPREAD,
    ),
    poisoning("against", "labels", "verify", "what the training is defended against"),
    poisoning("partition", "hash:partitions=3,spread=2", "verify", "needs the vote of every model"),
    poisoning("partition", "sort:partitions=6", "verify", "sorted partitions"),
    poisoning("partition", "hash:partitions=7", "verify", "models of the partition"),
    poisoning("models", 7, "verify", "the number of models"),
    poisoning("settings.k", 2, "no harm", "another exact claim"),
    poisoning("settings.label", "given", "no harm", "another exact claim"),
    poisoning("settings.aggregate", "runoff", "verify", "second-round votes"),
    poisoning("data.num_classes", 4, "verify", "counts of 3 classes"),
    poisoning("data.index", [4, 3, 2, 1, 0], "nothing", PARTS),
    poisoning("data.label", [0, 1, 2, 0, 1], "nothing", PARTS),
    poisoning("data.sha256", OTHER, "nothing", TOLD),
    poisoning("training.data.sha256", OTHER, "nothing", TOLD),
    poisoning("training.weights_sha256", OTHER, "nothing", TOLD),
    Forgery(
        "that the training set was selected is left out",
        "parts",
        manifest(lambda raw: raw["training"]["data"].pop("limit")),
        "nothing",
        PARTS,
    ),
    poisoning("training.offsets", [0, 1], "nothing", TOLD),
    poisoning("training.partition.failed", [5], "verify", "said to be empty or failed"),
    poisoning("training.partition.failed", [99], "verify", "different numbers below 6"),
    poisoning("training.defense", "finite:spread=2", "verify", "the spread of the defense"),
    poisoning("training.num_classes", 4, "verify", "the classes of the training"),
    Forgery(
        "`claim` edited, the rest stays",
        "parts",
        manifest(put("claim", "all is well"), derive=False),
        "verify",
        "wording",
    ),
    Forgery(
        "inputs that are not certified dropped everywhere",
        "parts",
        lambda folder: (
            change(folder / MANIFEST, lambda raw: raw["data"].update(index=[0, 1, 2], label=[0, 1, 2])),
            arrays(lambda found: found.update(counts=found["counts"][:3]))(folder),
        ),
        "nothing",
        PICKED,
    ),
]

FILES = {"Files": FILE_FORGERIES, "Seal": SEAL_FORGERIES, "Poisoning runs": PART_FORGERIES}
