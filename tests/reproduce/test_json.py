"""vauban reproduce --json: valid JSON, also where a budget is spent or commands print tables."""

import json
from pathlib import Path

import pytest
from commands import process, vauban
from small_entry import ENTRY
from typer.testing import CliRunner

from vauban.cli import app


def test_json_says_what_is_finished_where_a_budget_is_spent(entry: Path, tmp_path: Path) -> None:
    """A run of the first entry is made, then the budget ends; the second entry is never come to."""
    (tmp_path / "second.toml").write_text(ENTRY)
    vauban("reproduce", entry, "--device", "cpu", "--only", "sigma=0.25", "--out", tmp_path / "out" / "mine")
    names = [str(entry), str(tmp_path / "second.toml"), "laplace-regions"]
    words = ["reproduce", *names, "--device", "cpu", "--budget", "0.01s", "--json", "--out", str(tmp_path / "out")]
    started = process(*words)  # an interrupt in the middle of an import is for a process that ends
    said, errors = started.communicate(timeout=300)
    assert started.returncode == 3, errors
    assert "the budget is spent with 1 run left" in errors
    found = json.loads(said, parse_constant=lambda _: pytest.fail("no JSON"))
    assert [(one["entry"], one["finished"], one["missing"]) for one in found] == [
        ("mine", False, ["sigma-0.5"]),
        ("second", False, ["sigma-0.5", "sigma-0.25"]),
        ("laplace-regions", False, ["laplace-regions"]),
    ]
    assert found[0]["verified"] == ["sigma-0.25: 4 inputs, 800 votes"]
    assert [row["done"] for row in found[0]["compared"]] == [True, True, True, False]
    assert not (tmp_path / "out" / "second").exists()


def test_json_of_an_entry_made_by_commands_is_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "said.toml").write_text('title = "T"\nsource = "here"\ncommands = ["vauban data"]\n')
    command = ["reproduce", str(tmp_path / "said.toml"), "--device", "cpu", "--out"]
    CliRunner().invoke(app, [*command, str(tmp_path / "a")])
    assert "mnist:split=test" in capfd.readouterr().out
    done = CliRunner().invoke(app, [*command, str(tmp_path / "b"), "--json"])
    assert json.loads(done.stdout)[0]["entry"] == "said"
    assert capfd.readouterr().out == ""
