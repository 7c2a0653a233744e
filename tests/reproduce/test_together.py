"""vauban reproduce --jobs: runs as processes beside each other, in one folder for each entry."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import vauban

from vauban.reproduce.entry import find, parse
from vauban.reproduce.together import pieces
from vauban.runs.verify import verify_run

pytest.importorskip("matplotlib")

ENTRY = """
title = "Small"
source = "a test"
data = "mnist"
smoothing = "gaussian:sigma={sigma}"

[grid]
sigma = [0.5, 0.25, 0.75]

[train]
model = "mlp:width=16,depth=1"
limit = 300
settings = { epochs = 2, batch = 50 }

[train.begin]
smoothing = "gaussian:sigma=0.1"
settings = { epochs = 1, batch = 50 }

[certify]
inputs = "1::2500"
n = 200
alpha = 0.05
label = "given"
"""


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(ENTRY)
    return path


def test_an_entry_is_cut_into_its_points_unless_one_of_them_is_chosen(tmp_path: Path) -> None:
    found = pieces(parse("mine", ENTRY), "mine.toml", tmp_path, {"sigma": "0.25"}, ["--seeds", "2"])
    assert [(one.name, one.words[-1]) for one in found] == [("mine sigma=0.25", "--only=sigma=0.25")]
    chosen = find("band-mnist")
    assert chosen.choose
    assert len(pieces(chosen, "band-mnist", tmp_path, {}, [])) == 1


@pytest.mark.slow
def test_points_are_made_beside_each_other_and_share_a_training(entry: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    vauban("reproduce", entry, "--device", "cpu", "--jobs", "3", "--out", out)
    assert json.loads((out / "results.json").read_text())["missing"] == []
    assert sorted(path.name for path in (out / "runs").iterdir()) == ["sigma-0.25", "sigma-0.5", "sigma-0.75"]
    for run in (out / "runs").iterdir():
        assert verify_run(run).inputs == 4
        assert not list(run.glob("*s.jsonl"))  # packed
    seconds = json.loads((out / "ledger.json").read_text())
    assert sorted(name.split()[0] for name in seconds) == ["certifying"] * 3 + ["training"] * 4
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*") if path.is_file()}
    vauban("reproduce", entry, "--device", "cpu", "--out", out)
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.slow
def test_one_that_fails_does_not_stop_the_others(entry: Path, tmp_path: Path) -> None:
    other = tmp_path / "wrong.toml"
    other.write_text(ENTRY.replace("mlp:width=16,depth=1", "nothing-of-that-name"))
    words = (
        "reproduce",
        other,
        entry,
        "--only",
        "sigma=0.25",
        "--device",
        "cpu",
        "--jobs",
        "2",
        "--out",
        tmp_path / "all",
    )
    assert "1 of 2 ended with an error" in vauban(*words, code=1)
    assert verify_run(tmp_path / "all/mine/runs/sigma-0.25").inputs == 4


@pytest.mark.slow
def test_a_spent_budget_and_ctrl_c_are_gone_on_from(entry: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["reproduce", str(entry), "--device", "cpu", "--jobs", "2", "--epochs", "100000", "--out", str(out)]
    assert "the same command goes on" in vauban(*words, "--budget", "6s", code=3)
    started = subprocess.Popen([sys.executable, "-m", "vauban", *words], stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    line = next(line for line in started.stderr if "training" in line)
    assert line.startswith("mine sigma=")
    time.sleep(0.5)
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=60)
    assert started.returncode == 130
    assert not list((out / "runs").glob("*/seal.json"))
