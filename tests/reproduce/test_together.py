"""vauban reproduce --jobs: runs as processes beside each other, in one folder for each entry."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import small_entry
from commands import vauban

from vauban.reproduce.entry import find, parse
from vauban.reproduce.running import Options
from vauban.reproduce.together import Piece, _next, in_turns, pieces
from vauban.runs.verify import verify_run

pytest.importorskip("matplotlib")

ENTRY = small_entry.ENTRY.replace("sigma = [0.5, 0.25]", "sigma = [0.5, 0.25, 0.75]").replace(
    "\n[certify]",
    '\n[train.begin]\nsmoothing = "gaussian:sigma=0.1"\nsettings = { epochs = 1, batch = 50 }\n\n[certify]',
)


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(ENTRY)
    return path


def test_an_entry_is_cut_into_its_runs(tmp_path: Path) -> None:
    def names(text: str, options: Options) -> list[str]:
        return [str(one) for one in pieces(parse("mine", text), "mine.toml", tmp_path, options, ["--seeds", "2"])]

    assert names(ENTRY, Options(only={"sigma": "0.25"}, seeds=2)) == ["mine sigma-0.25", "mine sigma-0.25,seed-1"]
    chosen = ENTRY + '\n[choose]\ninputs = "::2500"\n'
    assert names(chosen, Options()) == [f"mine sigma-{s},validation" for s in (0.5, 0.25, 0.75)]
    assert len(names(ENTRY, Options(quick=True))) == 1
    (whole,) = pieces(find("dpa-mnist"), "dpa-mnist", tmp_path, Options(only={"partitions": "1200"}), [])
    assert whole.words[-1] == "--only=partitions=1200"


def test_runs_of_one_network_are_one_piece(tmp_path: Path) -> None:
    options = Options(device="cuda")
    rows = pieces(find("row-mnist"), "row-mnist", tmp_path, options, [])
    assert (len(rows), {piece.begin for piece in rows}) == (9, {None})
    assert str(rows[0]) == "row-mnist size-2,vote-threshold_0.3,validation and 2 more"
    assert [word.split(",")[1] for word in rows[0].words if word.startswith("--piece=")] == [
        "vote-threshold_0.3",
        "vote-threshold_0.2",
        "vote-threshold_0.4",
    ]
    (together,) = pieces(find("band-mnist-sizes"), "band-mnist-sizes", tmp_path, options, [])
    assert str(together) == "band-mnist-sizes size-2,vote-threshold_0.3 and 35 more"
    mine = pieces(parse("mine", ENTRY), "mine.toml", tmp_path, options, [])
    assert len(mine) == 3
    assert {piece.begin for piece in mine} == {
        tmp_path / "weights/begin-gaussian_sigma=0.1-mlp_width_16_depth_1.safetensors"
    }
    assert [piece.entry for piece in in_turns([mine, rows])[:5]] == ["mine", "row-mnist", "mine", "row-mnist", "mine"]
    assert len(in_turns([mine, rows])) == 12


def test_no_two_pieces_train_the_weights_that_both_start_from(tmp_path: Path) -> None:
    begin = tmp_path / "begin.safetensors"
    first, second, other = Piece("a", "1", (), begin), Piece("a", "2", (), begin), Piece("b", "1", ())
    assert _next([second, other], [(first, None)]) == other
    assert _next([second], [(first, None)]) is None
    assert _next([second], [(other, None)]) == second
    begin.touch()
    assert _next([second, other], [(first, None)]) == second


def test_two_entries_of_one_name_are_refused(entry: Path, tmp_path: Path) -> None:
    said = vauban("reproduce", entry, entry, "--jobs", "2", "--device", "cpu", "--out", tmp_path / "out", code=2)
    assert "two entries are called mine" in said


@pytest.mark.slow
def test_runs_are_made_beside_each_other_and_share_a_training(entry: Path, tmp_path: Path) -> None:
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
    vauban("reproduce", entry, "--device", "cpu", "--jobs", "2", "--out", out)
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.slow
def test_what_is_chosen_is_made_after_those_that_choose(entry: Path, tmp_path: Path) -> None:
    entry.write_text(ENTRY + '\n[choose]\ninputs = "::2500"\nwhat = "clean"\n')
    vauban("reproduce", entry, "--device", "cpu", "--jobs", "3", "--out", tmp_path / "out")
    runs = sorted(path.name for path in (tmp_path / "out/runs").iterdir())
    assert (len(runs), sum(name.endswith("validation") for name in runs)) == (4, 3)


@pytest.mark.slow
def test_one_that_fails_does_not_stop_the_others(entry: Path, tmp_path: Path) -> None:
    other = tmp_path / "wrong.toml"
    other.write_text(ENTRY.replace("mlp:width=16,depth=1", "nothing-of-that-name"))
    words = ("reproduce", other, entry, "--only", "sigma=0.25", "--device", "cpu", "--jobs", "2")
    said = vauban(*words, "--out", tmp_path / "all", code=1)
    assert "not finished: wrong sigma-0.25 (exit code 2)" in said
    assert verify_run(tmp_path / "all/mine/runs/sigma-0.25").inputs == 4
    assert json.loads((tmp_path / "all/wrong/results.json").read_text())["missing"] == ["sigma-0.25"]
    assert json.loads((tmp_path / "all/mine/results.json").read_text())["missing"] == []


@pytest.mark.slow
def test_an_entry_that_cannot_begin_does_not_take_the_others_with_it(entry: Path, tmp_path: Path) -> None:
    (tmp_path / "away.toml").write_text(ENTRY.replace('data = "mnist"', 'data = "npz:path=nowhere.npz,classes=10"'))
    words = ("reproduce", tmp_path / "away.toml", entry, "--only", "sigma=0.25", "--device", "cpu", "--jobs", "2")
    said = vauban(*words, "--out", tmp_path / "all", code=1)
    assert "not finished: away sigma-0.25" in said
    assert json.loads((tmp_path / "all/mine/results.json").read_text())["missing"] == []


def _running(entry: Path, out: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A call whose two processes train, and their numbers."""
    words = ["reproduce", str(entry), "--device", "cpu", "--jobs", "2", "--epochs", "100000", "--out", str(out)]
    started = subprocess.Popen([sys.executable, "-m", "vauban", *words], stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    line = next(line for line in started.stderr if "training" in line)
    assert line.startswith("mine sigma-")
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(started.pid)], capture_output=True, text=True, check=True
    )
    return started, [int(number) for number in listed.stdout.split()]


def _gone(numbers: list[int]) -> bool:
    """Whether these processes end within a minute."""
    for _ in range(600):
        if not any(Path(f"/proc/{number}").exists() for number in numbers):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks processes up in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_stays_behind(entry: Path, tmp_path: Path, how: signal.Signals) -> None:
    started, processes = _running(entry, tmp_path / "out")
    assert processes
    os.kill(started.pid, how)
    started.communicate(timeout=240)
    assert started.returncode == (-how if how == signal.SIGKILL else 130)
    assert _gone(processes)
    assert not list((tmp_path / "out/runs").glob("*/seal.json"))


@pytest.mark.slow
def test_a_spent_budget_is_gone_on_from(entry: Path, tmp_path: Path) -> None:
    words = ["reproduce", entry, "--device", "cpu", "--jobs", "2", "--epochs", "100000", "--out", tmp_path / "out"]
    assert "the same command goes on" in vauban(*words, "--budget", "8s", code=3)
    assert json.loads((tmp_path / "out/results.json").read_text())["missing"] == [
        "sigma-0.5",
        "sigma-0.25",
        "sigma-0.75",
    ]
