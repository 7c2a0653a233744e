"""Forgeries of the manifest of a smoothing run: each field changed, with everything that follows from it made anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from forged_folders import (
    MANIFEST,
    ByRow,
    Edit,
    Forgery,
    Json,
    Noisy,
    change,
    lines,
    manifest,
    naive,
    put,
    recheck,
    text,
)

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


CHOSEN_LINES = [
    {"input": 2 * i, "stage": "choose", "votes": 20, "counts": {str(label): 20}}
    for i, label in enumerate([0, 0, 1, 1, 2, 2])
]

SETTINGS_FORGERIES = [
    Forgery("`alpha` edited, nothing else", "fixed", naive(put("settings.alpha", 0.05)), "verify", "wording"),
    Forgery("`n` edited, nothing else", "fixed", naive(put("settings.n", 400)), "verify", "looks of its method"),
    Forgery(
        "`versions` edited, nothing else", "fixed", naive(put("versions.numpy", "0")), "verify", "line 1: its check"
    ),
    field("settings.alpha", 0.05, "nothing", SETTINGS),
    field("settings.alpha", 0.05, "nothing", SETTINGS, "sequential"),
    field("settings.alpha", 1.5, "verify", "strictly between 0 and 1"),
    field("settings.alpha", "0.01", "verify", "or alpha"),
    field("settings.alpha", float("nan"), "verify", "strictly between 0 and 1"),
    field("settings.alpha", 0.1, "verify", "the settings should be", "exact"),
    field("settings.k", 2, "nothing", SETTINGS),
    field("settings.k", 2, "no harm", "another exact claim", "exact"),
    field("settings.k", True, "verify", "must be whole numbers"),
    field("settings.k", 3, "verify", "k=3 of 3 classes"),
    field("settings.bounds", "simuem", "nothing", SETTINGS),
    field("settings.bounds", "mine", "verify", "not a known method for probability bounds"),
    field("settings.n", 400, "verify", "only 0 of its 6 inputs have all their votes"),
    field("settings.n", 10**30, "verify", "no run casts"),
    field("settings.n", 100, "verify", "not its next look"),
    Forgery(
        "the run is cut at an earlier look that suits it better",
        "fixed",
        then_lines(put("settings.n", 100), lambda bodies: [body for body in bodies if body["votes"] <= 100]),
        "nothing",
        SETTINGS,
    ),
    field("settings.stop", "target:radius=0.05", "verify", "not its next look"),
    field("settings.stop", "anytime", "verify", "n=1000 with anytime", "sequential"),
    field("settings.stop", "fixed", "verify", "not its next look", "sequential"),
    field("settings.stop", "target:radius=0.1", "nothing", SETTINGS, "sequential"),
    field("settings.stop", "grid:step=0.05", "nothing", SETTINGS, "sequential"),
    field("settings.stop", "target:radius=0.05,test=eprocess", "nothing", SETTINGS, "sequential"),
    field("settings.label", "votes", "verify", "the settings should be"),
    field("settings.label", "votes", "no harm", "another exact claim", "exact"),
    field("settings.label", "mine", "verify", "given or votes"),
    field("settings.n0", 5, "verify", "n0=5 with given labels"),
    field("settings.n0", 10, "verify", "not a look of this run", "chosen"),
    Forgery(
        "labels that votes chose become given ones",
        "chosen",
        then_lines(
            both(put("settings.label", "given"), put("settings.n0", 0)),
            lambda bodies: [body for body in bodies if body["stage"] == "count"],
        ),
        "nothing",
        SETTINGS,
    ),
    Forgery(
        "labels that were given become chosen by votes, which are invented",
        "fixed",
        then_lines(both(put("settings.label", "votes"), put("settings.n0", 20)), lambda bodies: bodies + CHOSEN_LINES),
        "replay",
        "at 20 votes .choose.",
    ),
    field("method.looks", [200], "verify", "looks of its method", derive=False),
    field("method.alpha_split", "all", "verify", "alpha_split of its method", derive=False),
    field("method.name", "sequential", "verify", "the method should be", derive=False),
    field("method.radii", [9.0], "verify", "radii of its method", "sequential", derive=False),
    field("method.boundaries", [[1]], "verify", "of its method should be", "sequential", derive=False),
    field("method.note", "x", "verify", "what it says of note", derive=False),
    field("method.views", 80, "verify", "80 views", "exact", derive=False),
    field("method.sha256", OTHER, "verify", "sha256 of its method", "exact", derive=False),
]

LAW_FORGERIES = [
    field("smoothing", "gaussian:sigma=0.5", "replay", "not those that the run kept"),
    field("smoothing", "gaussian:sigma=0.5", "verify", "wording", derive=False),
    field("smoothing", "laplace:sigma=0.25", "replay", "not those that the run kept"),
    field("smoothing", "laplace:sigma=0.25,bound=lecuyer", "nothing", SETTINGS, "chosen"),
    field("smoothing", "splitting:sigma=0.1", "verify", "which is exact"),
    field("smoothing", "splitting:sigma=0.2", "verify", "only 0 of its 6 inputs", "exact"),
    field("smoothing", "splitting:sigma=0.1,offsets=3", "replay", "not those that the run kept", "exact"),
    field("smoothing", "splitting:sigma=0.1,levels=15", "verify", "the levels should be 15", "exact"),
    field("smoothing", "mine", "verify", "not a known smoothing"),
    field("smoothing", 7, "verify", "cannot be what a run left"),
    field("claim", "all is well", "verify", "the claim's wording should be", derive=False),
    field("threat.unit", "pixels", "verify", "the threat should be", derive=False),
    field("threat.ball", "closed", "verify", "the threat should be", derive=False),
    field("threat.note", "x", "verify", "the threat should be", derive=False),
]

INPUT_FORGERIES = [
    field("inputs.levels", 15, "verify", "255 levels"),
    field("inputs.levels", None, "verify", "the arithmetic should be"),
    field("inputs.arithmetic", "float", "verify", "the arithmetic should be"),
    Forgery(
        "8-bit pictures become floats",
        "fixed",
        manifest(both(put("inputs.levels", None), put("inputs.arithmetic", "float"))),
        "replay",
        "not those",
    ),
    field("inputs.range", None, "verify", "the range of 8-bit pictures"),
    field("inputs.range", [1, 0], "verify", "the range of inputs"),
    field("inputs.range", None, "nothing", SETTINGS, "float"),
    field("inputs.deviation_per_view", 0.0, "verify", "the noise deviates", derive=False),
    field("inputs.deviation_per_view", 0.01, "no harm", "smaller claims", derive=False),
    field("inputs.preprocessing", "none", "nothing", TOLD),
    field("data.sha256", OTHER, "verify --data", "sha256 differs"),
    field("data.spec", "mnist", "nothing", TOLD),
    field("data.shape", [2, 2], "replay", "inputs of shape"),
    field("data.shape", [0], "verify", "the shape"),
    field("data.shape", [10**5, 10**5], "verify", "the shape"),
    field("data.num_classes", 4, "verify", "cannot be what a run left"),
    unkept("data.num_classes", 4, "has 3|4 classes"),
    field("data.num_classes", 2 * 10**6, "verify", "the number of classes"),
    field("data.index", [0, 2, 4, 6, 8, 11], "verify", "some were left out or put in"),
    field("data.index", [2, 0, 4, 6, 8, 10], "verify", "some were left out or put in"),
    Forgery(
        "numbers of two inputs swapped, as a selection by hand",
        "exact",
        manifest(both(put("data.index", [2, 0, 4, 6, 8, 10]), put("data.selection.every", None))),
        "verify --data",
        "sha256 differs",
    ),
    field("data.selection.every", 3, "verify", "some were left out or put in"),
    field("data.selection.every", None, "nothing", "they are a selection by hand"),
    field("data.selection.every", 0, "verify", "selection"),
    field("data.selection.limit", 5, "verify", "some were left out or put in"),
    field("data.selection.size", 11, "verify --data", "another data set"),
    field("data.selection.size", 9, "verify", "outside the data set"),
    field("data.selection.sha256", OTHER, "verify --data", "another data set"),
    Forgery(
        "no word about the selection",
        "fixed",
        manifest(without("data.selection")),
        "nothing",
        "the selection is not recorded",
    ),
    field("data.index", [0, 2, 4, 6, 8, 8], "verify", "indices, which must differ"),
    field("data.index", [0, 2, 4, 6, 8, 2**63], "verify", "of 63 bits"),
    field("data.label", [0, 0, 1, 1, 2, 1], "verify --data", "true labels in the manifest"),
    field("data.label", [0, 0, 1, 1, 2, 3], "verify", "outside the classes"),
    field("data.label", [0], "verify", "the number of labels"),
    field("data.label", None, "verify", "no labels to certify"),
    field("data.names", ["a"], "verify", "one for each of 6 inputs"),
    field("data.names", list("abcdef"), "nothing", TOLD),
]

COMPUTE_FORGERIES = [
    field("model.sha256", OTHER, "replay", "another model"),
    field("model.sha256", OTHER, "verify", "wording", derive=False),
    field("model.spec", "resnet", "nothing", TOLD),
    field("model.depends", {"weights": OTHER}, "nothing", TOLD),
    field("model.views", OTHER, "replay", "not those that the run kept"),
    field("model.scores", OTHER, "verify", "the kept scores of the probe views"),
    field("model.kept_scores", "00", "verify", "cannot be what a run left"),
    unkept("model.views", OTHER, "not those that the run kept"),
    unkept("model.scores", OTHER, "not those that the run kept"),
    unkept("model.scores", None, "kept no scores"),
    field("compute.rows", 25, "verify", "cannot be what a run left"),
    unkept("compute.rows", 25, "not those that the run kept"),
    field("compute.rows", -1, "verify", "whole number from 1"),
    field("compute.rows", "fifty", "verify", "whole number from 1"),
    field("compute.rows", 10**12, "verify", "whole number from 1"),
    field("compute.block", 10, "replay", "not those that the run kept"),
    field("compute.block", 7, "verify", "does not divide"),
    field("compute.precision", "bf16", "replay", "not those that the run kept"),
    unkept("compute.precision", "bf16", "not those that the run kept"),
    field("compute.precision", "fp8", "replay", "not a known precision"),
    field("compute.device", "cuda NVIDIA", "nothing", TOLD),
    field("compute.torch", "1.0", "nothing", TOLD),
    field("compute.threads", 2, "nothing", TOLD),
    field("compute.threads", "x", "verify", "whole number from 1"),
    field("compute.stochastic", "rows", "verify", "requires must name compute.stochastic"),
    field("compute.stochastic", "mine", "verify", "must be views or rows"),
    field("compute.rows_differ", True, "verify", "requires must name compute.rows_differ"),
    field("compute.rows_differ", "yes", "verify", "compute.rows_differ true"),
    Forgery(
        "a model is declared random that is not",
        "fixed",
        manifest(both(put("compute.stochastic", "rows"), put("requires", ["compute.stochastic"]))),
        "no harm",
        "smaller claims",
    ),
    Forgery(
        "that a model is random is left out",
        "random",
        manifest(both(without("compute.stochastic"), without("requires"))),
        "replay",
        "not those that the run kept|random numbers",
        Noisy,
    ),
    Forgery("a random model in a run of Vauban 0.1", "random", as_of_old, "replay", "kept no scores", Noisy),
    Forgery(
        "that scores depend on the row is left out",
        "rows",
        manifest(both(without("compute.rows_differ"), without("requires"))),
        "replay",
        "scores depend on the row",
        ByRow,
    ),
    Forgery(
        "that scores depend on the row is left out, and a kept score is off by one unit in its last place",
        "rows",
        manifest(both(without("compute.rows_differ"), without("requires"), one_unit_off)),
        "replay",
        "scores depend on the row",
        ByRow,
    ),
    Forgery(
        "scores depend on the row, and rows vote unequally often",
        "rows",
        manifest(put("compute.rows", 30)),
        "verify",
        "must divide every look",
        ByRow,
    ),
    Forgery("`requires` is left out", "rows", manifest(without("requires")), "verify", "requires must name", ByRow),
]

OTHER_FORGERIES = [
    field("versions", {"vauban": "9"}, "nothing", TOLD),
    field("versions", 7, "verify", "versions must be an object"),
    field("schema", 1, "verify", "malformed"),
    field("schema", 3, "verify", "has schema 3"),
    field("kind", "poisoning", "verify", "malformed"),
    field("kind", "other", "verify", "of kind 'other'"),
    field("requires", ["proofs"], "verify", "requires a reader that understands proofs"),
    field("note", "by hand", "nothing", "Also recorded: note"),
    field("settings.note", "by hand", "nothing", r"Also recorded: settings\.note"),
    Forgery(
        "a field whose name prints as a verdict",
        "fixed",
        manifest(put("x\nReplayed", 1)),
        "nothing",
        r"Also recorded: x\\nReplayed",
    ),
    Forgery(
        "a fingerprint that hides the claim on a terminal",
        "fixed",
        manifest(put("model.sha256", "\x1b[8m" * 16)),
        "replay",
        "another model",
    ),
    Forgery("no `claim`", "fixed", manifest(without("claim")), "verify", "malformed: 'claim'"),
    Forgery("no `compute`", "fixed", manifest(without("compute")), "verify", "malformed: 'compute'"),
    Forgery(
        "a key twice",
        "fixed",
        text(MANIFEST, lambda old: old.replace("{", '{"schema": 2,', 1)),
        "verify",
        "a key occurs twice",
    ),
    Forgery(
        "infinity",
        "fixed",
        text(MANIFEST, lambda old: old.replace("0.01", "Infinity", 1)),
        "verify",
        "cannot be|wording",
    ),
    Forgery(
        "a number of 5,000 digits",
        "fixed",
        text(MANIFEST, lambda old: old.replace('"n": 200', '"n": ' + "9" * 5_000)),
        "verify",
        "cannot be read",
    ),
    Forgery(
        "100,000 brackets",
        "fixed",
        lambda folder: (folder / MANIFEST).write_text('{"a":' * 100_000),
        "verify",
        "cannot be read",
    ),
    Forgery("a text that is no UTF-8", "fixed", manifest(put("note", "\ud800")), "verify", "cannot be what a run left"),
    Forgery(
        "the manifest in UTF-16",
        "fixed",
        lambda folder: (folder / MANIFEST).write_bytes((folder / MANIFEST).read_text().encode("utf-16")),
        "verify",
        "cannot be read",
    ),
]

MANIFESTS = {
    "Settings and method": SETTINGS_FORGERIES,
    "Smoothing, threat and claim": LAW_FORGERIES,
    "Inputs": INPUT_FORGERIES,
    "Model and compute": COMPUTE_FORGERIES,
    "The rest of the manifest": OTHER_FORGERIES,
}
