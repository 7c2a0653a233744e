"""The table of votes: what it says of easy, hopeless and close inputs, and that it is what the rules do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from vauban.bench.votes import measure, read_probabilities
from vauban.cli import app
from vauban.errors import BadInput


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAUBAN_CACHE", str(tmp_path_factory.getbasetemp() / "bench"))


def test_easy_and_hopeless_inputs_are_decided_as_the_fixed_test_decides_with_far_fewer_votes() -> None:
    rows = measure([0.0, 0.2, 0.7, 0.999999, 1.0], n=100_000, trials=30)
    by = {(row["stop"], row["radius"]): row for row in rows}
    assert {radius for stop, radius in by if stop == "grid:step=0.25"} == {0.25, 0.5, 0.75}
    for row in rows:
        assert row["certified"] == row["fixed"] == pytest.approx(0.4)
        assert row["fewer"] == pytest.approx(100_000 / row["votes"])
        assert 0 <= row["votes_error"] < 0.1 * row["votes"]
    assert by["target:radius=0.25", 0.25]["fewer"] > 500
    assert by["target:radius=0.5", 0.5]["fewer"] > 200
    assert by["grid:step=0.25", 0.75]["fewer"] > 15


def test_a_spread_of_inputs_keeps_its_certified_fraction() -> None:
    p = 1 - np.linspace(0, 1, 100) ** 3
    rows = measure(p, n=20_000, trials=40, radii=[0.25], step=0.25)
    for row in rows:
        if "eprocess" in row["stop"]:
            assert row["certified"] <= row["fixed"]
        else:
            assert row["certified"] == pytest.approx(row["fixed"], abs=5e-4)
        assert row["fewer"] > 2


def test_other_laws_ranks_and_seeds() -> None:
    first, again, other = (
        measure([0.4, 0.9], "laplace:sigma=0.5", n=2_000, k=3, trials=20, radii=[0.1], step=0.5, seed=s)
        for s in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_progress_adds_up_to_the_trials() -> None:
    heard: list[int] = []
    measure([0.5] * 3_000, n=100, trials=50, radii=[0.1], on_progress=heard.append)
    assert sum(heard) == 50
    assert len(heard) > 1


def test_a_file_is_one_probability_per_line(tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_text("# of the true label\n0.5\n1.0\n")
    assert read_probabilities(file).tolist() == [0.5, 1.0]


@pytest.mark.parametrize("content", ["", "0.5\n1.5\n", "a\n", "0.5 0.5\n0.1 0.2\n", "nan\n", "-0.1\n"])
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "p.txt"
    file.write_text(content)
    with pytest.raises(BadInput, match="p.txt"):
        read_probabilities(file)
    with pytest.raises(BadInput, match="cannot be read"):
        read_probabilities(tmp_path / "none.txt")


def test_a_law_that_asks_every_view_has_nothing_to_save() -> None:
    with pytest.raises(BadInput, match="give a sampled smoothing"):
        measure([0.5], "splitting:sigma=0.5")


def test_the_table_rounds_radii_and_shares_down(tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_text("1\n1\n0\n")
    options = ["--smoothing", "gaussian:sigma=100", "-n", "2000", "--radii", "138.46067", "--trials", "2"]
    done = CliRunner().invoke(app, ["bench", "votes", str(file), *options])
    assert done.exit_code == 0, done.output
    assert "138.46067 " in done.stdout
    assert "66.66 %" in done.stdout
    assert "66.67 %" not in done.stdout
