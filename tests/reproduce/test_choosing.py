"""The choice of settings on validation inputs, and test inputs that are used once."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from commands import vauban
from small_entry import ENTRY

import vauban as vb
from vauban.reproduce import choosing, running
from vauban.reproduce.comparing import Compared, Opened
from vauban.reproduce.entry import find, shipped
from vauban.reproduce.inputs import refuse_inputs_that_choose
from vauban.reproduce.outcome import Outcome, page
from vauban.reproduce.steps import Step

pytest.importorskip("matplotlib")


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(ENTRY)
    return path


@pytest.mark.slow
def test_settings_are_chosen_on_other_inputs_than_the_result(tmp_path: Path) -> None:
    text = ENTRY.replace('"1::2500"', '"5000::1250"').replace('over = "radius"', 'over = "radius"\npart = "test"')
    path = tmp_path / "chosen.toml"
    path.write_text(text + '\n[choose]\ninputs = "0:5000:1250"\nwhat = "clean"\n')
    vauban("reproduce", path, "--device", "cpu", "--out", tmp_path / "out")
    runs = {one.name: vb.Run.open(one) for one in (tmp_path / "out" / "runs").iterdir()}
    validation = {name: run.certificates() for name, run in runs.items() if name.endswith("validation")}
    assert {tuple(certs.index.tolist()) for certs in validation.values()} == {(0, 1250, 2500, 3750)}
    (test,) = set(runs) - set(validation)
    assert runs[test].certificates().index.tolist() == [5000, 6250, 7500, 8750]
    assert validation[f"{test},validation"].clean_accuracy == max(c.clean_accuracy for c in validation.values())


CHOOSE = '\n[choose]\ninputs = "::2500"\nwhat = "clean"\n'


@pytest.mark.slow
def test_test_inputs_are_for_one_choice(entry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry.write_text(ENTRY + CHOOSE)
    command = ("reproduce", entry, "--device", "cpu", "--out", tmp_path / "out")
    vauban(*command, "--only", "sigma=0.5", "--epochs", "0.2")
    step = Step(find(str(entry)), tmp_path / "out", {"sigma": 0.5})
    first = sorted(path.name for path in (tmp_path / "out/runs").iterdir())
    assert first == [step.name, f"{step.name},validation"]

    order = itertools.count()  # of two points the one that comes later in the grid is better
    monkeypatch.setattr("vauban.reproduce.choosing.measured", lambda *_: (float(next(order)), 0.0))
    vauban(*command, "--only", "sigma=0.25", "--epochs", "0.2")
    assert (tmp_path / "out/runs/sigma-0.25,validation").exists()
    assert not (tmp_path / "out/runs/sigma-0.25").exists()
    assert list(json.loads((tmp_path / "out/chosen.json").read_text())["among"]) == ['{"sigma": 0.5}']
    assert json.loads((tmp_path / "out/results.json").read_text())["missing"] == []


def test_how_a_run_was_chosen_is_said(entry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry.write_text(ENTRY + CHOOSE)
    made, scores = find(str(entry)), {'{"sigma": 0.5}': 60.0}
    monkeypatch.setattr(choosing, "scores_of", lambda *_: scores)
    (chosen,) = choosing.choose(made, tmp_path, 1)
    assert chosen.point == {"sigma": 0.5}

    def said() -> str:
        return choosing.how_chosen(made, tmp_path, 1, Opened())

    assert said().endswith("by validation inputs alone, among one run.")
    scores['{"sigma": 0.25}'] = 60.0
    assert said().endswith("among one run; 1 more made there later, none better.")
    scores['{"sigma": 0.25}'] = 61.0
    assert said().endswith("of which sigma-0.25 would have been chosen before it.")
    assert choosing.choose(made, tmp_path, 1) == [chosen]


@pytest.mark.slow
def test_a_budget_that_ends_before_the_choice_leaves_the_test_run_missing(
    entry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry.write_text(ENTRY + CHOOSE)

    def interrupted(*_: Any) -> list[Step]:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "choose", interrupted)
    out = tmp_path / "out"
    vauban("reproduce", entry, "--device", "cpu", "--only", "sigma=0.5", "--epochs", "0.2", "--out", out, code=130)
    assert json.loads((out / "results.json").read_text())["missing"] == ["the run on test inputs"]


def test_a_run_on_test_inputs_from_before_is_not_called_the_best(
    entry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry.write_text(ENTRY + CHOOSE)
    made = find(str(entry))
    monkeypatch.setattr(choosing, "scores_of", lambda *_: {'{"sigma": 0.5}': 60.0, '{"sigma": 0.25}': 61.0})
    Step(made, tmp_path, {"sigma": 0.5}).run.mkdir(parents=True)
    (chosen,) = choosing.choose(made, tmp_path, 1)
    assert chosen.point == {"sigma": 0.5}
    assert "among one run; 1 more made there later, of which sigma-0.25" in choosing.how_chosen(
        made, tmp_path, 1, Opened()
    )


def test_the_page_says_how_a_run_was_chosen(entry: Path, tmp_path: Path) -> None:
    row = Compared("table 1", "accuracy", "", 50.0, 60.0, 1.0, None, "sigma = 0.5")
    assert "Chosen so." in page(Outcome(find(str(entry)), tmp_path, [row], chosen="Chosen so."))


def test_inputs_that_choose_are_not_tested(entry: Path, tmp_path: Path) -> None:
    entry.write_text(ENTRY + CHOOSE)
    said = vauban("reproduce", entry, "--device", "cpu", "--inputs", "::5000", "--out", tmp_path / "out", code=2)
    assert "2 of the inputs ::5000 are among the inputs ::2500" in said
    assert not (tmp_path / "out").exists()


def test_every_entry_keeps_the_inputs_that_choose_apart() -> None:
    found = [one for one in shipped().values() if one.choose and one.data == "mnist"]
    assert found
    for one in found:
        refuse_inputs_that_choose(one)
        refuse_inputs_that_choose(one.quickened())
