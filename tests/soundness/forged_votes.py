"""Forgeries of votes and claims of a smoothing run: counts, lines, ballots, extensions, and runs that are honest but chosen."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forged_folders import (
    BALLOTS,
    TALLIES,
    Edit,
    Forgery,
    Json,
    lines,
    reseal,
    text,
)

PICKED = "That the inputs were not picked after looking at their results"
NOT_READ = "it cannot be read"


def counts(name: str, *, votes: int = 200, caught: str = "verify", says: str, **by_class: Any) -> Forgery:
    """The counts of input 2 at its last look become others, which are named by c0, c1, …"""
    new = {key[1:]: value for key, value in by_class.items()}
    return Forgery(name, "fixed", lines(lambda bodies: bodies[3].update(counts=new, votes=votes)), caught, says)


def every(edit: Callable[[Json], Any]) -> Callable[[list[Json]], None]:
    """The edit of each line."""

    def of_all(bodies: list[Json]) -> None:
        for body in bodies:
            edit(body)

    return of_all


def swap_inputs(body: Json) -> None:
    body["input"] = {0: 10, 10: 0}.get(body["input"], body["input"])


def swap_classes(body: Json) -> None:
    names = {"0": "1", "1": "0", "2": "2"}
    body["counts"] = dict(sorted((names[label], count) for label, count in body["counts"].items()))


COUNT_FORGERIES = [
    counts("a count raised", caught="replay", says="input 2: the votes in the folder", c0=185, c1=15),
    counts("a count lowered", caught="replay", says="input 2: the votes in the folder", c0=110, c1=90),
    Forgery(
        "a count raised, its check stays",
        "fixed",
        lines(lambda bodies: bodies[3].update(counts={"0": 185, "1": 15}), sealed=False),
        "verify",
        "its check does not match",
    ),
    counts("counts whose sum is not n", says="its counts sum to 201, not to 200", c0=190, c1=11),
    counts("a negative count", says="it counts -1 votes", c0=201, c1=-1),
    counts("a count of zero", says="it counts 0 votes", c0=200, c1=0),
    counts("a count with a fraction", says="it counts 200.0 votes", c0=200.0),
    counts("NaN for a count", says="it counts nan votes", c0=float("nan")),
    counts("a text for a count", says="it counts 200 votes", c0="200"),
    counts("true for a count", says="it counts True votes", c0=199, c1=True),
    counts("a class that does not exist", says="for class 3 of 3", c3=200),
    counts("a class written 00", says="not written as a run writes it", c00=163, c1=37),
    counts("a class twice, as 0 and as 00", says="counts sum to 363", c0=163, c00=163, c1=37),
    counts("classes in another order", says="not written as a run writes it", c1=37, c0=163),
    counts("a count that 64 bits cannot hold", votes=10**30, says="it counts 10+ votes", c0=10**30),
    counts(
        "counts whose sum wraps at 64 bits",
        says="it counts 9223372036854775807 votes",
        c0=2**63 - 1,
        c1=2**63 - 1,
        c2=202,
    ),
    counts("votes lost between two looks", says="loses votes", c2=200),
    Forgery("counts swapped between inputs", "fixed", lines(every(swap_inputs)), "replay", "the votes in the folder"),
    Forgery("counts swapped between classes", "fixed", lines(every(swap_classes)), "replay", "the votes in the folder"),
    Forgery(
        "counts as a list",
        "fixed",
        lines(lambda bodies: bodies[1].update(counts=[200])),
        "verify",
        "it must hold input",
    ),
    Forgery(
        "votes for another label in stage choose",
        "chosen",
        lines(lambda bodies: [body.update(counts={"2": 20}) for body in bodies if body["stage"] == "choose"] and None),
        "replay",
        "choose",
    ),
    Forgery(
        "no votes that chose a label",
        "chosen",
        lines(lambda bodies: [body for body in bodies if body["stage"] == "count"]),
        "verify",
        "no votes that chose its label",
    ),
]

LINE_FORGERIES = [
    Forgery("a line twice", "fixed", lines(lambda bodies: [*bodies, bodies[0]]), "verify", "counted twice"),
    Forgery("a line dropped", "fixed", lines(lambda bodies: bodies[1:]), "verify", "an earlier look is missing"),
    Forgery(
        "the last looks dropped",
        "fixed",
        lines(lambda bodies: [b for b in bodies if b["votes"] < 200]),
        "verify",
        "only 0 of its 6 inputs",
    ),
    Forgery(
        "the last looks of a stopped run dropped",
        "sequential",
        lines(lambda bodies: [b for b in bodies if b["votes"] <= 40]),
        "no harm",
        "smaller claims",
    ),
    Forgery(
        "a look added after the stop",
        "sequential",
        lines(lambda bodies: [*bodies, {"input": 0, "stage": "count", "votes": 32, "counts": {"0": 27, "2": 5}}]),
        "replay",
        "input 0: the votes in the folder",
    ),
    Forgery(
        "a look in the middle dropped",
        "sequential",
        lines(lambda bodies: [b for b in bodies if b["input"] != 8 or b["votes"] != 40]),
        "verify",
        "not its next look",
    ),
    Forgery("lines in another order", "fixed", lines(lambda bodies: bodies[::-1]), "no harm", "the same claims"),
    Forgery(
        "the file cut within a line", "fixed", text(TALLIES, lambda old: old[:-20]), "verify", "only 5 of its 6 inputs"
    ),
    Forgery(
        "text after the last line",
        "fixed",
        text(TALLIES, lambda old: old + '{"input":0'),
        "verify",
        "ends within a line",
    ),
    Forgery("an empty line", "fixed", text(TALLIES, lambda old: old + "\n"), "verify", NOT_READ),
    Forgery(
        "lines that end as on Windows",
        "fixed",
        text(TALLIES, lambda old: old.replace("\n", "\r\n")),
        "verify",
        "check does not match|" + NOT_READ,
    ),
    Forgery(
        "a key twice in a line",
        "fixed",
        text(TALLIES, lambda old: old.replace('"votes":100', '"votes":100,"votes":100', 1)),
        "verify",
        "check does not match",
    ),
    Forgery(
        "an unknown key in a line",
        "fixed",
        lines(lambda bodies: bodies[0].update(note="x")),
        "verify",
        "and nothing else",
    ),
    Forgery(
        "100,000 brackets in a line", "fixed", text(TALLIES, lambda old: old + "[" * 100_000 + "\n"), "verify", NOT_READ
    ),
    Forgery(
        "an input of no number",
        "fixed",
        lines(lambda bodies: bodies[0].update(input=None)),
        "verify",
        "it must hold input",
    ),
    Forgery(
        "an input written 2.0",
        "fixed",
        lines(every(lambda body: body.update(input=float(body["input"])))),
        "verify",
        "it must hold input",
    ),
    Forgery(
        "an input that the manifest does not have",
        "fixed",
        lines(lambda bodies: [*bodies, {**bodies[0], "input": 7}]),
        "verify",
        "input 7 is not in the manifest",
    ),
    Forgery(
        "a stage of predict",
        "fixed",
        lines(every(lambda body: body.update(stage="predict"))),
        "verify",
        "stage choose or count",
    ),
    Forgery(
        "a stage that does not exist",
        "fixed",
        lines(every(lambda body: body.update(stage="mine"))),
        "verify",
        "in stage 'mine'",
    ),
    Forgery(
        "an extension by other than a power of two",
        "fixed",
        lambda folder: ((folder / "extensions.jsonl").write_text('{"n":600}\n'), reseal(folder)),
        "verify",
        "extend=600",
    ),
    Forgery(
        "an extension without votes",
        "fixed",
        lambda folder: ((folder / "extensions.jsonl").write_text('{"n":400}\n'), reseal(folder)),
        "no harm",
        "the same claims",
    ),
]


def doubled(body: Json) -> Json:
    """A line for twice the votes."""
    return {**body, "votes": 400, "counts": {label: 2 * count for label, count in body["counts"].items()}}


def extended(body: Json) -> Edit:
    """An extension with invented votes."""

    def forge(folder: Path) -> None:
        (folder / "extensions.jsonl").write_text(json.dumps(body) + "\n")
        lines(lambda bodies: bodies + [doubled(body) for body in bodies if body["votes"] == 200])(folder)

    return forge


def ballot(edit: Callable[[bytes], bytes], position: int = 2, **entries: Any) -> Edit:
    """Other votes in one line of an exact run."""

    def of_line(bodies: list[Json]) -> None:
        raw = edit(zlib.decompress(base64.b64decode(bodies[position]["votes"])))
        bodies[position] |= {"votes": base64.b64encode(zlib.compress(raw)).decode(), **entries}

    return lines(of_line, BALLOTS)


def packed(edit: Callable[[bytes], bytes]) -> Edit:
    """The compressed votes of one line, changed."""

    def of_line(bodies: list[Json]) -> None:
        bodies[0]["votes"] = base64.b64encode(edit(base64.b64decode(bodies[0]["votes"]))).decode()

    return lines(of_line, BALLOTS)


BALLOT_FORGERIES = [
    Forgery("an extension with invented votes", "fixed", extended({"n": 400}), "replay", "at 400 votes"),
    Forgery(
        "an extension written 400.0",
        "fixed",
        extended({"n": 400.0}),
        "verify",
        r"extensions.jsonl line 1: it must hold n",
    ),
    Forgery("an extension with an unknown key", "fixed", extended({"n": 400, "note": 1}), "verify", r"it must hold n"),
    Forgery("one ballot changed", "exact", ballot(lambda raw: bytes([2]) + raw[1:]), "replay", "view by view"),
    Forgery("ballots permuted", "exact", ballot(lambda raw: raw[::-1]), "replay", "view by view"),
    Forgery("a ballot out of range", "exact", ballot(lambda raw: bytes([3]) + raw[1:]), "verify", "class 3 of 3"),
    Forgery("a ballot too many", "exact", ballot(lambda raw: raw + b"\0"), "verify", "does not hold 88 votes"),
    Forgery("a ballot too few", "exact", ballot(lambda raw: raw[:-1]), "verify", "does not hold 88 votes"),
    Forgery(
        "ballots that unpack to 50 MB",
        "exact",
        ballot(lambda raw: bytes(50_000_000)),
        "verify",
        "does not hold 88 votes",
    ),
    Forgery("views before the first", "exact", ballot(lambda raw: raw, first=-1), "verify", "views -1"),
    Forgery("views beyond the last", "exact", ballot(lambda raw: raw, first=10), "verify", "views 10"),
    Forgery("a first view of true", "exact", ballot(lambda raw: raw, first=False), "verify", "it must hold input"),
    Forgery(
        "a line of ballots twice",
        "exact",
        lines(lambda bodies: [*bodies, bodies[0]], BALLOTS),
        "no harm",
        "the same claims",
    ),
    Forgery(
        "a line of ballots again, with other votes",
        "exact",
        lines(lambda bodies: [*bodies, {**bodies[0], "votes": bodies[5]["votes"]}], BALLOTS),
        "verify",
        "have voted differently before",
    ),
    Forgery(
        "a line of ballots dropped",
        "exact",
        lines(lambda bodies: bodies[1:], BALLOTS),
        "verify",
        "only 5 of its 6 inputs",
    ),
    Forgery(
        "ballots by gzip",
        "exact",
        packed(lambda raw: gzip.compress(zlib.decompress(raw))),
        "verify",
        "cannot be unpacked",
    ),
    Forgery("bytes hidden after the ballots", "exact", packed(lambda raw: raw + b"hidden"), "verify", "nothing else"),
    Forgery("ballots without their checksum", "exact", packed(lambda raw: raw[:-4]), "verify", "nothing else"),
    Forgery(
        "characters that base64 does not have",
        "exact",
        lines(lambda bodies: bodies[0].update(votes=bodies[0]["votes"] + "!!"), BALLOTS),
        "verify",
        NOT_READ,
    ),
]

VOTES = {"Counts": COUNT_FORGERIES, "Lines": LINE_FORGERIES, "Ballots and extensions": BALLOT_FORGERIES}
