"""Entries: every shipped one can be read and names smoothings, recipes and axes that exist; a misspelt key is refused."""

from pathlib import Path
from typing import Any

import pytest
import typer

from vauban.cli import app
from vauban.errors import BadInput
from vauban.references import REFERENCES
from vauban.reproduce.analytic import FIGURES
from vauban.reproduce.entry import Entry, find, parse, shipped
from vauban.reproduce.steps import Step, with_device
from vauban.smoothing import build
from vauban.training.recipes import named

ENTRIES = shipped()
COMMAND: Any = typer.main.get_command(app)
SMALL = """
title = "t"
source = "s"
data = "mnist"
smoothing = "gaussian:sigma={sigma}"
[grid]
sigma = [0.5, 1.0]
"""
LAST = "[certify]\nkeep = 'last'\nn = 1000\n"
MADE = """
title = "t"
source = "s"
grid = { sigma = [0.5, 1.0] }
commands = ["vauban certify -s gaussian:sigma={sigma} --out {run}"]
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
    if entry.kind == "rl":
        return  # tests/reproduce/test_learning.py
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


def parsed(words: list[str]) -> dict[str, Any]:
    """The arguments that a command would be called with; nothing is run."""
    command, rest = COMMAND, words[1:]
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    return command.make_context(command.name, rest).params


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if entry.kind == "commands"])
def test_every_command_of_an_entry_has_options_that_exist(name: str, tmp_path: Path) -> None:
    entry = ENTRIES[name]
    for point in entry.points():
        step = Step(entry, tmp_path, point)
        for words in (*step.preparing, *step.commands):
            given = parsed(with_device(words, "cpu"))
            assert given.get("device", "cpu") == "cpu"
            if given.get("smoothing") is not None:
                build(given["smoothing"])
            if given.get("recipe") is not None:
                assert not named(given["recipe"], smoothing=given.get("smoothing"), data=given["data"]).missing
            Path(given["out"]).mkdir(parents=True, exist_ok=True)  # what later commands read


def test_a_command_with_a_misspelt_option_is_noticed() -> None:
    with pytest.raises(Exception, match="--partition"):
        parsed(["vauban", "poison", "train", "--data", "mnist", "--partition-s", "3", "--out", "ens"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("titel = 3", "titel is no key of an entry"),
        ("title = 'a'", "source is missing"),
        (SMALL.replace("[grid]", "[gird]"), "gird is no key"),
        (SMALL.replace("sigma = [", "s = ["), "no axis of"),
        (SMALL + "[train]\nrecepie = 'best'", "recepie is no key"),
        (SMALL + "[train]\nhold_out = 1", "hold_out = 1: a whole number of 2 or more"),
        (SMALL + "[certify]\nkeep = 'last'", "a fixed n is needed"),
        (SMALL + "[certify]\nkeep = 'last'\nn = 100\nstop = 'grid:step=0.25'", "a fixed n is needed"),
        (SMALL + LAST + "[[published]]\nsource = 's'\nwhat = 'clean'\ny = 1\nn = 100", "kept at n = 100"),
        (SMALL + LAST + "[[picture]]\nlines = [{ n = 1000 }, { n = 200 }]", "no counts are kept at n = 200"),
        (SMALL + "[[published]]\nsource = 's'\nwhat = 'accuracy'\ny = 3", "one of certified"),
        (SMALL + "[[published]]\nsource = 's'\nwhat = 'clean'\ny = [1]\nx = [1, 2]\nover='sigma'", "one y for each x"),
        (SMALL + "[[published]]\nsource = 's'\nwhat = 'clean'\ny = 1\nat = {k = 1}", "no axis of"),
        ("title = ", "no TOML"),
        (
            SMALL + LAST + "[[published]]\nsource = 's'\nwhat = 'clean'\ny = 1\nn = [100]",
            r"n = \[100\]: a whole number",
        ),
        (SMALL + LAST + "[[published]]\nsource = 's'\nwhat = 'clean'\ny = 1\nn = '1000'", "n = '1000': a whole number"),
        (SMALL + LAST + "[[picture]]\nlines = [{ n = [100] }]", r"\[\[picture\]\], lines, n = \[100\]: a whole number"),
        (SMALL + LAST.replace("1000", "[1000]"), r"\[certify\], n = \[1000\]: a whole number"),
        (SMALL + "[quick]\nn = true", r"\[quick\], n = True: a whole number"),
        ("title = 't'\nsource = 's'\ncertify = 5", r"mine, \[certify\]: 5 is no table: keys"),
        ("title = 't'\nsource = 's'\ntrain = [1]", r"mine, \[train\]: \[1\] is no table"),
        ("title = 't'\nsource = 's'\npublished = 5", "mine, published: 5 is no list of tables"),
        ("title = 't'\nsource = 's'\npicture = [5]", r"mine, \[\[picture\]\]: 5 is no table"),
        (SMALL + "[[picture]]\nlines = [5]", "lines: 5 is no table"),
        (SMALL + "[[picture]]\nlines = 5", "lines: 5 is no list of tables"),
        ("title = 't'\nsource = 's'\ngrid = 3", r"\[grid\]: 3 is no table"),
        ("title = 't'\nsource = 's'\n[grid]\nsigma = 3", r"\[grid\], sigma = 3: a list of values"),
        ("title = 't'\nsource = 's'\nsmoothing = 3", "smoothing = 3: a text is needed"),
        ("title = 't'\nsource = 's'\ndata = 3", "data = 3: a text is needed"),
        (MADE + "prepare = 'vauban train'", r"prepare = 'vauban train': a list of commands is needed"),
        (MADE + "prepare = [1]", "1 is no text"),
        (MADE + "prepare = ['']", "'' is no command of Vauban"),
        (MADE + "prepare = ['vauban train --data \"mnist']", r"cannot be read \(No closing quotation\)"),
        (MADE + "prepare = ['vauban train -s gaussian:sigma={sigma}']", r"\{sigma\} is not filled in, only \{out\}$"),
        (MADE + "prepare = ['vauban train {}']", r"\{\} is not filled in"),
        (
            MADE.replace("{sigma}", "{sigmas}"),
            r"\{sigmas\} is not filled in, only \{out\} \{run\}",
        ),
        ("title = 'a'\nsource = 's'\nanalytic = 'x'\nprepare = ['vauban data']", "prepare belongs to an entry"),
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
