"""Forgeries of claims, and runs that are others than they seem: another model, other inputs, another seed, chosen by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from forged_folders import (
    CLAIMS,
    MANIFEST,
    TALLIES,
    Edit,
    Forgery,
    Json,
    Thirds,
    certified,
    change,
    lines,
    pictures,
    reseal,
    text,
)

import vauban as vb
from vauban.data import Dataset

BY_HAND = "That the inputs were not picked after looking at their results: they are a selection by hand"


def claims(old: str, new: str) -> Edit:
    return text(CLAIMS, lambda before: before.replace(old, new, 1))


CLAIM_FORGERIES = [
    Forgery(
        "a radius raised",
        "fixed",
        text(CLAIMS, lambda old: old.replace(",0.", ",1.", 1)),
        "verify",
        r"claims.csv line 2 says",
    ),
    Forgery(
        "an abstention becomes a claim", "fixed", claims(",,true,", ",0.100000000,false,"), "verify", "the votes say"
    ),
    Forgery("a label of a claim changed", "fixed", claims("0,0,", "0,1,"), "verify", "the votes say"),
    Forgery("a true label of a claim changed", "fixed", claims(",true,2", ",true,1"), "verify", "the votes say"),
    Forgery(
        "a claim dropped",
        "fixed",
        text(CLAIMS, lambda old: old[: old.rstrip().rfind("\n") + 1]),
        "verify",
        "the votes say",
    ),
    Forgery(
        "a claim added",
        "fixed",
        text(CLAIMS, lambda old: old + "11,2,9.000000000,false,2\n"),
        "verify",
        "the votes say that there is no such line",
    ),
    Forgery(
        "claims with a byte order mark", "fixed", text(CLAIMS, lambda old: "\ufeff" + old), "verify", "line 1 says"
    ),
    Forgery("claims removed", "fixed", lambda folder: (folder / CLAIMS).unlink(), "verify", "must have its claims"),
    Forgery(
        "claims of exact votes raised",
        "exact",
        text(CLAIMS, lambda old: old.replace(",0.", ",1.", 1)),
        "verify",
        "line 2 says",
    ),
]


def rule(raw: Json) -> None:
    """The rule of selection stays."""


def by_hand(raw: Json) -> None:
    """The rule of selection becomes a selection by hand."""
    raw["data"]["selection"]["every"] = None


def dropped(selection: Callable[[Json], None]) -> Edit:
    """Input 8, which was not certified, is dropped everywhere, and the hash of the inputs is made anew."""

    def forge(folder: Path) -> None:
        change(folder / MANIFEST, selection)
        without_input_8(folder)

    return forge


def less() -> Dataset:
    """The data set without pictures 8 and 9."""
    data, rest = pictures(), [0, 1, 2, 3, 4, 5, 6, 7, 10, 11]
    assert data.labels is not None
    return Dataset(data.images[rest], data.labels[rest], 3, data.class_names, "tiny", True)


def left_out(folder: Path) -> None:
    """A run by the rule, on a data set from which a picture was removed."""
    instead(data=less().select(2, 6))(folder)


def hidden(folder: Path) -> None:
    """The same, under the size and the hash of the whole data set; a picture more by the rule, so that their number fits."""
    whole = json.loads((folder / MANIFEST).read_text())["data"]["selection"]
    instead(data=less().select(2, 5))(folder)
    change(folder / MANIFEST, lambda raw: raw["data"].update(selection={**whole, "limit": 5}))
    reseal(folder)


def without_input_8(folder: Path) -> None:
    rest = [0, 2, 4, 6, 10]
    data = pictures()
    assert data.labels is not None
    smoothed = vb.SmoothedClassifier(Thirds(), "gaussian:sigma=0.25", num_classes=3)
    left = smoothed.collect(data.images[rest], data.labels[rest], rest)
    true = data.labels[rest].tolist()
    change(folder / MANIFEST, lambda raw: raw["data"].update(index=rest, label=true, sha256=left.sha256))
    lines(lambda bodies: [body for body in bodies if body["input"] != 8])(folder)


def with_votes_of(**others: Any) -> Edit:
    """The votes of another run under the manifest of this one."""

    def forge(folder: Path) -> None:
        other = certified(folder.parent / "other", "fixed", **others)
        shutil.copy(other / TALLIES, folder / TALLIES)
        reseal(folder)

    return forge


def brighter() -> Dataset:
    data = pictures()
    return Dataset(255 - data.images, data.labels, 3, data.class_names, "tiny", True).select(2, 6)


def instead(**others: Any) -> Edit:
    """Another honest run in this one's place."""

    def forge(folder: Path) -> None:
        shutil.rmtree(folder)
        certified(folder, "fixed", **others)

    return forge


def border() -> Dataset:
    """A picture on the border of two classes, each of which has half of the votes."""
    return Dataset(
        np.array([[[[76, 77], [76, 77]]]], dtype=np.uint8), np.array([0]), 3, ("a", "b", "c"), "border", True
    )


def shopped(folder: Path) -> None:
    """The picture on the border, about which every claim is false, under the first seed that gives a claim."""
    smoothed = vb.SmoothedClassifier(Thirds(), "gaussian:sigma=0.25", num_classes=3, rows=50)
    settings: Json = {"n": 100, "alpha": 0.1, "progress": False}
    seed = next(seed for seed in range(500) if not smoothed.certify(border(), seed=seed, **settings).abstained[0])
    shutil.rmtree(folder)
    smoothed.certify(border(), seed=seed, out=folder, **settings)


def fitted() -> torch.nn.Module:
    """A model whose cut is fitted to the inputs that are certified."""
    data, cuts = pictures().select(2, 6), np.linspace(0.2, 0.5, 31)
    views = torch.from_numpy(data.images).float() / 255
    right = [int((Thirds(cut)(views).argmax(dim=1).numpy() == data.labels).sum()) for cut in cuts.tolist()]
    return Thirds(float(cuts[int(np.argmax(right))]))


def as_a_whole(folder: Path) -> None:
    """The inputs with the largest radii, numbered anew."""
    data, best = pictures(), [0, 6, 10]
    assert data.labels is not None
    instead(data=data.images[best], y=data.labels[best])(folder)


def picked(folder: Path) -> None:
    """The inputs with the largest radii, taken after a look at all."""
    data, best = pictures(), [0, 6, 10]
    assert data.labels is not None
    instead(data=data.images[best], y=data.labels[best], index=best)(folder)


ORIGIN_FORGERIES = [
    Forgery("votes of another seed", "fixed", with_votes_of(seed=8), "replay", "the votes in the folder"),
    Forgery(
        "votes of another model under this one's fingerprint",
        "fixed",
        with_votes_of(model=Thirds(0.4)),
        "replay",
        "the votes in the folder",
    ),
    Forgery(
        "votes of other inputs under these ones' hash",
        "fixed",
        with_votes_of(data=brighter()),
        "replay",
        "the votes in the folder",
    ),
    Forgery("another model certified, this one shown", "fixed", instead(model=Thirds(0.4)), "replay", "another model"),
    Forgery(
        "other inputs certified, these ones shown",
        "fixed",
        instead(data=brighter()),
        "verify --data",
        "another data set",
    ),
    Forgery("an input dropped everywhere", "fixed", dropped(rule), "verify", "some were left out or put in"),
    Forgery("an input dropped everywhere, as a selection by hand", "fixed", dropped(by_hand), "nothing", BY_HAND),
    Forgery(
        "an input dropped from the data set before the run", "fixed", left_out, "verify --data", "another data set"
    ),
    Forgery(
        "an input dropped from the data set, whose size and hash are told as they were",
        "fixed",
        hidden,
        "verify --data",
        "not those",
    ),
    Forgery("inputs picked by hand", "fixed", picked, "nothing", BY_HAND),
    Forgery(
        "inputs picked by hand, as if they were a whole data set",
        "fixed",
        as_a_whole,
        "verify --data",
        "another data set",
    ),
    Forgery(
        "seeds tried until a false claim came out",
        "fixed",
        shopped,
        "nothing",
        "The seed was chosen by hand: whoever chose it knew the noise and could try others",
        data=border,
    ),
    Forgery(
        "a model fitted to the certified inputs",
        "fixed",
        instead(model=fitted()),
        "nothing",
        "That the model was not trained on these inputs",
        fitted,
    ),
]


RUNS_IN_PLACE = {"Claims": CLAIM_FORGERIES, "Runs that are others than they seem": ORIGIN_FORGERIES}
