"""Learning curves: files cut by a kill, steps that all seeds share, areas, pictures, and the runs of the results."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from vauban.errors import BadInput
from vauban.rl.curves import Curves, curve_file, draw, read_rows, read_run
from vauban.rl.recipes import Plan
from vauban.rl.training import open_run


def test_curves_lose_only_a_line_that_a_kill_cut(tmp_path: Path) -> None:
    path = tmp_path / "seed-0.csv"
    path.write_text("steps,success,reward,seconds\n0,0,-10,0\n10,0.5,-5,1\n20,0.7")
    assert [row["steps"] for row in read_rows(path)] == [0, 10]
    path.write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(BadInput, match="no learning curve"):
        read_rows(path)
    with pytest.raises(BadInput, match="no run of vauban rl train"):
        read_run(tmp_path)


def test_runs_of_different_length_are_compared_over_the_same_steps() -> None:
    values = np.array([[0.0, 1.0, 1.0, 0.0]])
    curves = Curves("x", "y", [0], np.array([0.0, 10, 20, 30]), values, np.array([1.0]), "success")
    assert curves.until(25).summary()["steps"] == 20
    assert curves.until(25).areas == pytest.approx([0.75])
    assert curves.until(30).areas == pytest.approx(curves.areas)
    with pytest.raises(BadInput, match="first evaluation"):
        curves.until(-1)


def test_curves_are_compared_at_steps_at_which_all_seeds_were_evaluated(tmp_path: Path) -> None:
    open_run(tmp_path, Plan("ddpg", "ContinuousSeek-v0:dim=2", steps=30, every=10), "x")
    head = "steps,success,reward,seconds\n"
    curve_file(tmp_path, 0).write_text(head + "0,0,-9,0\n10,0.1,-8,1\n30,0.3,-6,3\n")
    curve_file(tmp_path, 1).write_text(head + "0,0,-9,0\n10,0.5,-8,1\n20,0.6,-7,2\n30,0.7,-6,4\n40,0.")
    run = read_run(tmp_path)
    assert run.steps.tolist() == [0, 10, 30]
    np.testing.assert_allclose(run.values, [[0, 0.1, 0.3], [0, 0.5, 0.7]])
    assert run.seconds.tolist() == [3, 4]
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(BadInput, match="no readable run.json"):
        read_run(tmp_path)
    with pytest.raises(BadInput, match="no readable run.json"):
        open_run(tmp_path, Plan("ddpg", "ContinuousSeek-v0:dim=2", steps=30, every=10), "x")


RESULTS = Path(__file__).parents[2] / "results" / "rl"


@pytest.mark.parametrize("name", sorted(path.parent.name for path in RESULTS.glob("*/run.json")))
def test_the_runs_of_the_results_are_read_and_could_be_resumed(name: str, tmp_path: Path) -> None:
    """Their manifests were written by earlier versions, some before there were batched trainings."""
    assert len(read_run(RESULTS / name).steps) > 5
    manifest = json.loads((RESULTS / name / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    again = Plan(**{field.name: manifest[field.name] for field in fields(Plan) if field.name in manifest})
    assert again.together == manifest.get("together", False)
    open_run(tmp_path, again, manifest["label"])


def test_areas_are_mean_heights() -> None:
    steps, values = np.array([0.0, 10, 30]), np.array([[0, 1, 1], [0, 0, 1.0]])
    run = Curves("a", "E", [0, 1], steps, values, np.array([3.0, 5.0]), "success")
    np.testing.assert_allclose(run.areas, [25 / 30, 10 / 30])
    line = run.summary()
    assert line["area"] == pytest.approx(35 / 60)
    assert line["spread"] == pytest.approx(0.5 / 2**0.5)
    assert (line["seeds"], line["steps"], line["last"], line["seconds"]) == (2, 30, 1, 4)


def test_pictures_of_curves_are_written(tmp_path: Path) -> None:
    run = Curves("a", "E", [0, 1], np.array([0.0, 1]), np.array([[0, 0.5], [0, 1]]), np.zeros(2), "reward")
    draw(tmp_path / "p.png", [run], title="T", levels={"greedy": 0.7})
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
