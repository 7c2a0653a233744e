"""Entries that take the votes of another entry."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import vauban
from small_entry import ENTRY

import vauban as vb
from vauban.errors import BadInput
from vauban.files import write_json
from vauban.models import load as load_model
from vauban.models import packaged
from vauban.reproduce.entry import Entry, find, parse, shipped
from vauban.reproduce.inputs import chosen_inputs
from vauban.reproduce.running import Options
from vauban.reproduce.running import reproduce as run_entry
from vauban.reproduce.sharing import SHARED
from vauban.reproduce.steps import ABOUT, SETTINGS, Step
from vauban.reproduce.using import use

ONE = Options(say=lambda _: None, progress=False, only={"sigma": "0.25"})
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


@pytest.fixture
def first(entry: Path, tmp_path: Path) -> Entry:
    """A small entry that is made at one point, in the folder "first"."""
    made = find(str(entry))
    small = replace(made, train={**made.train, "settings": {"epochs": 0.2}}, pictures=())
    run_entry(small, tmp_path / "first", ONE)
    return small


def taking(first: Entry, out: Path, **changes: Any) -> Step:
    """The step of an entry that takes the votes of "first", after its folder was begun; `changes`: of the entry."""
    made = replace(first, votes_of="first", **changes)
    out.mkdir()
    write_json(out / ABOUT, {**json.loads((out.parent / "first" / ABOUT).read_text()), "entry": made.name})
    return Step(made, out, {"sigma": 0.25})


def test_runs_beside_it_are_taken_where_they_were_made_alike(first: Entry, tmp_path: Path) -> None:
    outcome = run_entry(replace(first, votes_of="first"), tmp_path / "second", ONE)
    assert outcome.commands == [f"vauban reproduce first {first.name} --only sigma=0.25 --out FOLDER"]
    assert outcome.verified == ["sigma-0.25: 4 inputs, 800 votes, made elsewhere (../first/runs/sigma-0.25)"]
    assert json.loads((tmp_path / "second" / "used.json").read_text()) == {"sigma-0.25": "../first/runs/sigma-0.25"}
    assert not (tmp_path / "second" / "runs").exists()
    assert not (tmp_path / "second" / "weights").exists()


def test_runs_of_other_settings_inputs_or_trainings_are_not_taken(first: Entry, tmp_path: Path) -> None:
    step = taking(first, tmp_path / "same")
    use([step], {})
    assert step.used == tmp_path / "same" / "../first/runs/sigma-0.25"
    for number, certify in enumerate(({"n": 300}, {"inputs": "::5000"})):
        step = taking(first, tmp_path / f"other-{number}", certify={**first.certify, **certify})
        use([step], {})
        assert step.used is None
    about = tmp_path / "first" / ABOUT
    said = json.loads(about.read_text())
    (name,) = (name for name in said["recipes"] if "0.25" in name)
    for number, change in enumerate(({"epochs": 3}, {"loss": "noise:views=2"}, {"model": "cnn-small"})):
        write_json(about, {**said, "recipes": {name: {**said["recipes"][name], **change}}})
        step = Step(replace(first, votes_of="first"), tmp_path / f"trained-{number}", {"sigma": 0.25})
        step.out.mkdir()
        write_json(step.out / ABOUT, said)
        use([step], {})
        assert step.used is None
    for number, change in enumerate(({"train": {**said["train"], "limit": 9}}, {"quick": True}, {"printed": True})):
        write_json(about, {**said, **change})
        step = Step(replace(first, votes_of="first"), tmp_path / f"made-{number}", {"sigma": 0.25})
        step.out.mkdir()
        write_json(step.out / ABOUT, said)
        use([step], {})
        assert step.used is None
    about.unlink()
    step = Step(replace(first, votes_of="first"), tmp_path / "trained-0", {"sigma": 0.25})
    use([step], {})
    assert step.used is None


def test_a_run_on_other_pictures_with_the_same_labels_is_refused(first: Entry, tmp_path: Path) -> None:
    step = taking(first, tmp_path / "same")
    inputs = chosen_inputs("mnist", str(first.certify["inputs"]))
    easy = replace(inputs, images=np.zeros_like(inputs.images))
    model = vb.SmoothedClassifier(load_model(packaged("mnist")), step.smoothing)
    model.certify(
        easy, out=tmp_path / "easy", progress=False, **{k: first.certify[k] for k in SETTINGS if k in first.certify}
    )
    with pytest.raises(BadInput, match="other inputs than this entry"):
        use([step], {step.name: tmp_path / "easy"})


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
