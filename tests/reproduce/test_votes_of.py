"""Entries that take the votes of another entry."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import vauban
from small_entry import ENTRY

from vauban.errors import BadInput
from vauban.reproduce.entry import find, parse, shipped
from vauban.reproduce.running import Options
from vauban.reproduce.running import reproduce as run_entry
from vauban.reproduce.sharing import SHARED
from vauban.reproduce.steps import Step
from vauban.reproduce.using import use

QUIET = Options(say=lambda _: None, progress=False)
TAKING = {name: entry for name, entry in shipped().items() if entry.votes_of}


@pytest.mark.parametrize("name", TAKING)
def test_such_an_entry_has_everything_its_runs_depend_on_from_the_other(name: str) -> None:
    entry = TAKING[name]
    other = shipped()[entry.votes_of]
    assert all(getattr(entry, key) == getattr(other, key) for key in SHARED if key != "train")
    assert {**entry.train, **{"printed": other.train["printed"]}} == other.train
    mine, theirs = (Step(one, Path(), one.points()[0]) for one in (entry, other))
    assert (mine.weights, mine.smoothing) == (theirs.weights, theirs.smoothing)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('votes_of = "ablation-cifar"', "is no entry"),
        ('votes_of = "../entries/ablation-cifar10"', "is no entry"),
        ("votes_of = 3", "is no entry"),
        ('votes_of = "ablation-as-patch-cifar10"', "smooths inputs by itself is needed"),
        ('votes_of = "laplace-binary"', "smooths inputs by itself is needed"),
        ('votes_of = "ablation-cifar10"\ndata = "mnist"', "data comes from ablation-cifar10"),
        ('votes_of = "ablation-cifar10"\n[certify]\nn = 5', "certify comes from"),
        ('votes_of = "ablation-cifar10"\n[train]\nsettings = {}', "[train] settings comes from"),
    ],
)
def test_what_does_not_fit_is_refused(said: str, why: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse("mine", f'title = "t"\nsource = "s"\n{said}\n')
    assert why in str(refused.value)


def test_runs_beside_it_are_taken_where_they_were_made_alike(entry: Path, tmp_path: Path) -> None:
    made = find(str(entry))
    first = replace(made, train={**made.train, "settings": {"epochs": 0.2}}, pictures=())
    one = replace(QUIET, only={"sigma": "0.25"})
    run_entry(first, tmp_path / "first", one)
    taking = replace(first, votes_of="first")
    outcome = run_entry(taking, tmp_path / "second", one)
    assert outcome.commands == [f"vauban reproduce first {made.name} --only sigma=0.25 --out FOLDER"]
    assert outcome.verified == ["sigma-0.25: 4 inputs, 800 votes, made elsewhere (../first/runs/sigma-0.25)"]
    assert json.loads((tmp_path / "second" / "used.json").read_text()) == {"sigma-0.25": "../first/runs/sigma-0.25"}
    assert not (tmp_path / "second" / "runs").exists()
    assert not (tmp_path / "second" / "weights").exists()
    for changes in ({"certify": {**first.certify, "n": 300}}, {"certify": {**first.certify, "inputs": "::5000"}}):
        step = Step(replace(taking, **changes), tmp_path / "third", {"sigma": 0.25})
        step.out.mkdir(exist_ok=True)
        use([step], {})
        assert step.used is None  # cast with other settings: it has votes of its own


def test_the_table_of_published_numbers_does_not_say_which_labels(tmp_path: Path) -> None:
    published: Any = shipped()["ablation-cifar10-retained"].published
    assert {one.claim["labels"] for one in published} == {"given"}
    stored = Path(__file__).parents[2] / "results" / "reproduce" / "ablation-cifar10-retained" / "results.json"
    assert all("labels" not in row["at"] for row in json.loads(stored.read_text())["compared"])


def test_it_is_shown_as_it_is_written() -> None:
    assert "votes_of" in vauban("reproduce", "ablation-as-patch-cifar10", "--show")


def test_an_entry_of_its_own_still_names_data_and_smoothing() -> None:
    with pytest.raises(BadInput, match="data and smoothing"):
        parse("mine", ENTRY.replace('data = "mnist"', ""))
