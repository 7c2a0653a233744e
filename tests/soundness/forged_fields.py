"""How a manifest is forged: a field changed or left out, with everything that follows from it made anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from forged_folders import MANIFEST, Edit, Forgery, Json, change, lines, manifest, put, recheck

from vauban.files import arrays_sha256, floats_from_hex, floats_hex, write_json
from vauban.runs import manifest as manifests
from vauban.runs import schema1
from vauban.runs.store import read_record, write_claims

OTHER = "0" * 64
SETTINGS = "That the settings .* were chosen before the votes"
TOLD = "names and hashes of model and data; files that the model reads"


def without(place: str) -> Callable[[Json], Any]:
    """Removes one field of a manifest, named by its path."""

    def edit(raw: Json) -> None:
        *sections, last = place.split(".")
        for one in sections:
            raw = raw[one]
        del raw[last]

    return edit


def both(*edits: Callable[[Json], Any]) -> Callable[[Json], Any]:
    """Several edits, one after the other."""

    def edit(raw: Json) -> None:
        for one in edits:
            one(raw)

    return edit


def one_unit_off(raw: Json) -> None:
    """Moves one kept score by a unit in its last place, with the hash of the scores."""
    kept = floats_from_hex(raw["model"]["kept_scores"], raw["compute"]["rows"], raw["data"]["num_classes"]).copy()
    kept[0, 0] = np.nextafter(kept[0, 0], np.float32(np.inf))
    raw["model"] |= {"kept_scores": floats_hex(kept), "scores": arrays_sha256(kept)}


def then_lines(edit: Callable[[Json], Any], of_lines: Callable[[list[Json]], Any]) -> Edit:
    """Change the manifest and the lines of counts, then reseal."""

    def forge(folder: Path) -> None:
        change(folder / MANIFEST, edit)
        lines(of_lines)(folder)

    return forge


def as_of_old(folder: Path) -> None:
    """The manifest as Vauban 0.1 wrote it, which knew of no random models and no kinds of seeds."""
    raw = manifests.read(folder).raw
    old: Json = {
        "schema": 1,
        "claim": "",
        "threat": raw["threat"],
        "smoothing": raw["smoothing"],
        "arithmetic": {"mode": "grid", "levels": 255, "deviation_per_view": raw["inputs"]["deviation_per_view"]},
        "compute": {**raw["compute"], "dtype": "float32"},
        "statistics": {**raw["settings"], **raw["method"]},
        "seed_commitment": raw["seed"]["commitment"],
        "model": raw["model"],
        "data": {**raw["data"], "preprocessing": {"text": raw["inputs"]["preprocessing"]}},
        "versions": {"vauban": "0.1.0"},
    }
    del old["statistics"]["stop"]
    old["claim"] = schema1.wording(schema1.parse(old))
    write_json(folder / MANIFEST, old)
    recheck(folder / "tallies.jsonl", manifests.identity(old))
    write_claims(folder, read_record(folder)[0])


def field(
    place: str, value: Any, caught: str, says: str, run: str = "fixed", *, derive: bool = True, kind: str = ""
) -> Forgery:
    """One field with another value, resealed; `derive`: with everything that follows from it."""
    shown = kind or f"`{place}` becomes `{value!r:.40}`" + ("" if derive else ", the rest stays")
    return Forgery(shown, run, manifest(put(place, value), derive=derive), caught, says)


def unkept(place: str, value: Any, says: str) -> Forgery:
    """One field with another value in a manifest that keeps no scores of probe views; caught by replay."""
    shown = f"`{place}` becomes `{value!r:.40}`, no scores kept"
    edit = both(put(place, value), without("model.kept_scores"))
    return Forgery(shown, "fixed", manifest(edit), "replay", says)
