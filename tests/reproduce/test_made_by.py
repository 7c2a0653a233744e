"""The commands on the page of results: what they say is what makes these runs, and nothing else."""

import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from vauban.errors import RunRefused, VaubanError
from vauban.reproduce import running
from vauban.reproduce import steps as doing
from vauban.reproduce.entry import Entry, find
from vauban.reproduce.made_by import commands_of_agents, commands_of_runs, covering, matches, options_text
from vauban.reproduce.running import Options, steps_of
from vauban.reproduce.steps import Step

GRID = {"sigma": [0.5, 1.0], "k": [1, 3, 10]}


@pytest.fixture
def entry() -> Entry:
    return Entry("mine", "Mine", "here", grid=GRID)


def made(entry: Entry, *some: tuple[dict[str, str], int]) -> list[Step]:
    steps = [step for only, seeds in some for step in steps_of(entry, Path("out"), Options(only=only, seeds=seeds))]
    return list({step.name: step for step in steps}.values())


@pytest.mark.parametrize("seed", range(50))
def test_commands_make_what_is_there_and_nothing_else(seed: int) -> None:
    draw = random.Random(seed)
    points = [dict(zip("ab", values, strict=True)) for values in product((1, 2, 3), (1, 2))]
    there = [(point, n) for point in points for n in range(draw.choice([0, 0, 1, 1, 1, 2]))]
    found = covering(points, there)
    again = {(str(point), n) for only, seeds in found for point in points if matches(point, only) for n in range(seeds)}
    assert again == {(str(point), n) for point, n in there}
    assert len(found) <= len(there)


def test_seeds_without_those_before_them_are_still_named() -> None:
    assert covering([{"a": 1}, {"a": 2}], [({"a": 1}, 1)]) == [({"a": "1"}, 2)]
    assert covering([{}], [({}, 0), ({}, 1)]) == [({}, 2)]


def test_options_are_on_the_page_as_they_were_given(entry: Entry) -> None:
    options = Options(
        printed=True, settings={"epochs": 0.5}, inputs="::10", votes=500, folder=Path("my data"), given="a/mine.toml"
    )
    always = "vauban reproduce a/mine.toml --printed --epochs 0.5 --inputs ::10 --votes 500 --data-folder 'my data'"
    assert commands_of_runs(entry, options, made(entry, ({}, 1))) == [f"{always} --out FOLDER"]
    assert commands_of_runs(entry, options, made(entry, ({"k": "3", "sigma": "0.5"}, 2))) == [
        f"{always} --only sigma=0.5 --only k=3 --seeds 2 --out FOLDER"
    ]
    assert commands_of_runs(entry, Options(), made(entry, ({"k": "3"}, 1), ({"sigma": "1.0"}, 1))) == [
        "vauban reproduce mine --only sigma=1.0 --out FOLDER",
        "vauban reproduce mine --only k=3 --out FOLDER",
    ]
    assert options_text(Options(quick=True, seeds=3)) == "--quick --seeds 3"
    assert options_text(Options(votes=500)) == "--votes 500"


def test_points_of_agents_are_named() -> None:
    entry = find("thesis-8.2")
    axis, values = next((axis, values) for axis, values in entry.grid.items() if len(values) > 1)
    points = [point for point in entry.points() if point[axis] == values[0]]
    options = Options(rl_seeds=2, rl_steps=500)
    assert commands_of_agents(entry, options, points) == [
        f"vauban reproduce thesis-8.2 --steps 500 --only {axis}={values[0]} --seeds 2 --out FOLDER"
    ]


def test_what_was_done_by_commands_names_no_folder_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doing, "_run_command", lambda words, quiet: None)
    entry = find("dpa-mnist-seeds")
    step = Step(entry, tmp_path / "out", entry.points()[0])
    assert doing.run_commands(step, "cpu")
    said = (tmp_path / "out" / "done" / step.name).read_text()
    assert str(tmp_path) not in said
    assert f"--out FOLDER/runs/{step.name}\n" in said
    assert not doing.run_commands(step, "cpu")


def test_what_all_points_share_is_prepared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(doing, "_run_command", lambda words, quiet: called.append(" ".join(words[1:3])))
    entry = find("ss-dpa-cifar10")
    for point in entry.points()[:2]:
        assert doing.run_commands(Step(entry, tmp_path, point), "cpu")
    assert called == ["train --data", *(["poison train", "poison certify"] * 2)]
    assert "--out FOLDER/features.safetensors" in (tmp_path / "done" / "prepared").read_text()


def test_what_could_not_be_prepared_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(words: list[str], quiet: bool) -> None:
        raise VaubanError("no")

    entry = find("ss-dpa-cifar10")
    step = Step(entry, tmp_path, entry.points()[0])
    monkeypatch.setattr(doing, "_run_command", fails)
    with pytest.raises(VaubanError):
        doing.run_commands(step, "cpu")
    assert not (tmp_path / "done" / "prepared").exists()
    called: list[str] = []
    monkeypatch.setattr(doing, "_run_command", lambda words, quiet: called.append(words[1]))
    doing.run_commands(step, "cpu")
    assert called == ["train", "poison", "poison"]


def test_a_training_of_an_entry_that_is_finished_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    monkeypatch.setattr(doing, "_run_command", lambda words, quiet: called.append(words[1]))
    entry = find("ss-dpa-cifar10")
    (tmp_path / "features.safetensors").write_bytes(b"")  # it was killed before what is done was noted
    doing.run_commands(Step(entry, tmp_path, entry.points()[0]), "cpu")
    assert called == ["poison", "poison"]
    (tmp_path / "done" / "prepared").unlink()
    (tmp_path / "features.safetensors.checkpoint").write_bytes(b"")
    doing.run_commands(Step(entry, tmp_path, entry.points()[1]), "cpu")
    assert called == ["poison", "poison", "train", "poison", "poison"]


def test_an_experiment_that_has_made_nothing_may_be_corrected(tmp_path: Path) -> None:
    wrong = Entry("mine", "Mine", "here", commands=("vauban daat",))
    right = replace(wrong, commands=("vauban data",))
    running._begin(wrong, tmp_path, Options())
    running._begin(right, tmp_path, Options())
    (tmp_path / "weights.safetensors").write_bytes(b"")
    with pytest.raises(RunRefused, match="holds another experiment"):
        running._begin(wrong, tmp_path, Options())
