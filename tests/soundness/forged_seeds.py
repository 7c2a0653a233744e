"""Forgeries of seeds, of announced runs and of pictures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forged_fields import OTHER, field, without
from forged_folders import NONCE, PUBLISHED, Edit, Forgery, Json, change, manifest, naive, put, reseal, text

from vauban.runs.store import PICTURE

SEED = "The seed is said to come from the operating system"


def without_seed(edit: Callable[[Json], Any]) -> Edit:
    """Change the manifest where no seed is there to be compared."""

    def forge(folder: Path) -> None:
        (folder / "seed").unlink()
        manifest(edit)(folder)

    return forge


SEED_FORGERIES = [
    field("seed.kind", "system", "nothing", SEED),
    field("seed.kind", "blessed", "verify", "knows number, system, announced"),
    field("seed.kind", "announced", "verify", "announced seeds alone"),
    field("seed.commitment", OTHER, "verify", "not the seed that the manifest commits to"),
    Forgery(
        "another commitment, the seed removed",
        "fixed",
        without_seed(put("seed.commitment", OTHER)),
        "replay",
        "seed is not there",
    ),
    Forgery("no word about a seed", "fixed", without_seed(without("seed")), "verify", "commits to its seed"),
    Forgery(
        "a commitment that is none",
        "fixed",
        without_seed(put("seed.commitment", "")),
        "verify",
        "commits to its seed|commitment",
    ),
    Forgery(
        "a sampled run's seed in an exact one",
        "exact",
        manifest(put("seed", {"commitment": OTHER, "kind": "system"})),
        "verify",
        "the seed should be None",
    ),
    Forgery("another seed file", "fixed", text("seed", lambda old: "00" * 32 + "\n"), "verify", "commits to"),
    Forgery("a seed file that holds no seed", "fixed", text("seed", lambda old: "secret\n"), "verify", "damaged"),
]


def other_nonce(folder: Path) -> None:
    change(folder / NONCE, put("nonce", "cd" * 16))
    reseal(folder)


def not_announced(folder: Path) -> None:
    """An announced run that did not turn out well becomes one of many that were not announced."""
    (folder / NONCE).unlink()

    def edit(raw: Json) -> None:
        raw["seed"] = {"commitment": raw["seed"]["commitment"], "kind": "system"}
        del raw["requires"]

    manifest(edit)(folder)


def announced_after_all(folder: Path) -> None:
    """A run that turned out well becomes announced, with a nonce that is invented."""

    def edit(raw: Json) -> None:
        raw["seed"] |= {"kind": "announced", "nonce_from": "a beacon/round 1"}
        raw["requires"] = ["seed.nonce_from"]

    (folder / NONCE).write_text(json.dumps({"announced": "", "nonce": PUBLISHED}))
    manifest(edit)(folder)


def drawn(picture: bytes, *, sealed: bool) -> Edit:
    """A picture that was sealed, replaced by another one."""

    def forge(folder: Path) -> None:
        (folder / PICTURE).write_bytes(b"picture")
        reseal(folder)
        (folder / PICTURE).write_bytes(picture)
        if sealed:
            reseal(folder)

    return forge


ANNOUNCED_FORGERIES = [
    Forgery("another nonce", "announced", other_nonce, "verify --announced", "another try"),
    Forgery(
        "another nonce, the rest stays",
        "announced",
        naive(put("nonce", "cd" * 16), NONCE),
        "verify",
        "its check does not match",
    ),
    Forgery(
        "a nonce that is none", "announced", naive(put("nonce", PUBLISHED.upper()), NONCE), "verify", "lower-case hex"
    ),
    Forgery(
        "an unknown key beside the nonce", "announced", naive(put("note", 1), NONCE), "verify", "not about this run"
    ),
    Forgery(
        "the nonce of another announcement",
        "announced",
        naive(put("announced", OTHER), NONCE),
        "verify",
        "not about this run",
    ),
    Forgery(
        "the nonce removed", "announced", lambda folder: (folder / NONCE).unlink(), "verify", "come after its nonce"
    ),
    Forgery(
        "a nonce beside a run that was not announced",
        "fixed",
        lambda folder: (folder / NONCE).write_text("{}"),
        "verify",
        "not that of an announced run",
    ),
    Forgery(
        "an announced run with other settings",
        "announced",
        manifest(put("settings.alpha", 0.05)),
        "verify --announced",
        "another run",
    ),
    Forgery(
        "another source of the nonce",
        "announced",
        manifest(put("seed.nonce_from", "me")),
        "verify --announced",
        "another run",
    ),
    Forgery("announced after the votes", "fixed", announced_after_all, "verify --announced", "another run"),
    Forgery(
        "announced after the votes, and the hash published then",
        "fixed",
        announced_after_all,
        "replay",
        "the votes in the folder",
    ),
    Forgery(
        "an announced run said not to be one", "announced", not_announced, "verify --announced", "is not announced"
    ),
    Forgery(
        "the seed of an announced run removed",
        "announced",
        lambda folder: (folder / "seed").unlink(),
        "replay",
        "seed is not there",
    ),
    Forgery(
        "`requires` of an announced run left out",
        "announced",
        manifest(lambda raw: raw.pop("requires")),
        "verify",
        "requires must name",
    ),
]

PICTURE_FORGERIES = [
    Forgery(
        "the picture replaced",
        "fixed",
        drawn(b"other", sealed=False),
        "verify",
        "curve.png changed after the run was sealed",
    ),
    Forgery(
        "the picture replaced and sealed",
        "fixed",
        drawn(b"other", sealed=True),
        "nothing",
        "What curve.png shows: its bytes are those that were sealed, and nothing was compared",
    ),
    Forgery(
        "a picture that the seal does not name",
        "fixed",
        lambda folder: (folder / PICTURE).write_bytes(b"other"),
        "nothing",
        "What curve.png shows: the seal does not name it",
    ),
]


SEEDS = {"Seed": SEED_FORGERIES, "Announced runs": ANNOUNCED_FORGERIES, "Picture": PICTURE_FORGERIES}
