"""Entries: every shipped one can be read and names smoothings, recipes and axes that exist; a misspelt key is refused."""

import pytest

from vauban.errors import BadInput
from vauban.references import REFERENCES
from vauban.reproduce.analytic import FIGURES
from vauban.reproduce.entry import Entry, find, parse, shipped
from vauban.smoothing import build
from vauban.training.recipes import named

ENTRIES = shipped()
SMALL = """
title = "t"
source = "s"
data = "mnist"
smoothing = "gaussian:sigma={sigma}"
[grid]
sigma = [0.5, 1.0]
"""


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=list(ENTRIES))
def test_every_entry_can_be_built(entry: Entry) -> None:
    assert any(f"[{key}]" in entry.source for key in REFERENCES)
    if entry.kind == "analytic":
        assert entry.analytic in FIGURES
        return
    assert entry.published or "print" in entry.note
    if entry.kind == "commands":
        assert all(command.startswith("vauban ") for command in entry.commands)
        return
    for point in entry.points():
        build(entry.smoothing.format(**point))
        trained_on = str(entry.train.get("smoothing", entry.smoothing)).format(**point)
        build(trained_on)
        for key in ("recipe", "printed"):
            if key in entry.train:
                assert not named(entry.train[key], smoothing=trained_on, data=entry.data).missing
    if entry.is_mnist:
        assert len(entry.quickened().points()) <= 4
    for one in entry.published:
        for value, _, at in one.rows():
            assert "median" in one.what or value is None or 0 <= value <= 100
            assert any(all(str(point[axis]) == str(x) for axis, x in at.items()) for point in entry.points()), at


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("titel = 3", "titel is no key of an entry"),
        ("title = 'a'", "source is missing"),
        (SMALL.replace("[grid]", "[gird]"), "gird is no key"),
        (SMALL.replace("sigma = [", "s = ["), "no axis of"),
        (SMALL + "[train]\nrecepie = 'best'", "recepie is no key"),
        (SMALL + "[[published]]\nsource = 's'\nwhat = 'accuracy'\ny = 3", "one of certified"),
        (SMALL + "[[published]]\nsource = 's'\nwhat = 'clean'\ny = [1]\nx = [1, 2]\nover='sigma'", "one y for each x"),
        (SMALL + "[[published]]\nsource = 's'\nwhat = 'clean'\ny = 1\nat = {k = 1}", "no axis of"),
        ("title = ", "no TOML"),
    ],
)
def test_a_wrong_entry_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse("mine", text)


def test_a_name_that_is_no_entry_is_refused() -> None:
    with pytest.raises(BadInput, match="did you mean ablation-mnist"):
        find("ablation-mnits")
    with pytest.raises(BadInput, match="does not exist"):
        find("none.toml")
    with pytest.raises(BadInput, match="no quick version"):
        find("ablation-cifar10").quickened()
