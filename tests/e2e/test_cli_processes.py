"""The command line in processes of its own: interrupted, killed, read by a pipe that closes, and asked for help."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import process, vauban, wait_for_bytes

from vauban.runs.store import FolderStore

SIGMA = "gaussian:sigma=0.5"


@pytest.mark.slow
def test_train_certify_kill_resume_claim_verify(tmp_path: Path) -> None:
    model, folder = tmp_path / "model.safetensors", tmp_path / "run"
    out = vauban(
        "train",
        "--data",
        "mnist",
        "--smoothing",
        SIGMA,
        "--every",
        "30",
        "--epochs",
        "3",
        "--lr",
        "0.003",
        "--out",
        model,
    )
    assert "accuracy on training views" in out
    command = ["certify", "--model", str(model), "--data", "mnist:split=test", "--smoothing", SIGMA, "-k", "1"]
    command += ["-n", "2000", "--alpha", "0.001", "--every", "400", "--limit", "12", "--seed", "5", "--json", "--out"]
    started = process(*command, folder)
    wait_for_bytes(started, folder / "tallies.jsonl", 1500)
    started.send_signal(signal.SIGKILL)
    started.wait()
    assert "holds" in vauban("verify", folder, code=3)
    summary = json.loads(vauban(*command, folder))
    assert summary["inputs"] == 12
    assert summary["certified"][0]["accuracy"] > 0.4
    undisturbed = tmp_path / "undisturbed"
    vauban(*command, undisturbed)
    lines = [sorted((f / "tallies.jsonl").read_bytes().splitlines()) for f in (folder, undisturbed)]
    assert lines[0] == lines[1]
    assert "all hold" in vauban("verify", folder)
    vauban("claim", folder, "-k", "3", "--bounds", "simuem", "--out", tmp_path / "top3.csv")
    rows = list(csv.DictReader((tmp_path / "top3.csv").open()))
    assert [int(row["index"]) for row in rows] == list(range(0, 4800, 400))
    assert sum(row["radius"] != "" for row in rows) >= round(12 * summary["certified"][0]["accuracy"])


def test_ctrl_c_keeps_everything(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    started = process("certify", "--smoothing", SIGMA, "-n", "100000", "--limit", "50", "--out", folder)
    wait_for_bytes(started, folder / "tallies.jsonl", 300)
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate()
    assert started.returncode == 130
    assert "run the same command again" in errors
    assert "Traceback" not in errors
    assert (folder / "tallies.jsonl").read_bytes().endswith(b"\n")


@pytest.mark.parametrize("command", [["data"], ["reproduce", "--list"]])
def test_a_reader_who_leaves_gets_no_error(command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "vauban", *command], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


COMMANDS = ["", "train", "certify", "predict", "plan", "claim", "verify", "data", "demo", "bench certify"]
HELP = """
import contextlib, io, json, sys
from vauban.cli import app
shown, loaded = {}, {}
for command in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        app([*command.split(), "--help"])
    shown[command] = out.getvalue()
    loaded[command] = [m for m in ("torch", "scipy", "numpy", "matplotlib") if m in sys.modules]
print(json.dumps([shown, loaded]))
"""


def test_help_shows_an_example_and_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", HELP, *COMMANDS], capture_output=True, text=True, check=True)
    shown, loaded = json.loads(done.stdout)
    assert loaded == {command: [] for command in COMMANDS}
    for command, text in shown.items():
        assert "Usage:" in text
        assert not command or "Example:\n" in text


def test_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole demo is a minute of voting; here its run is begun, stopped at its first counts, and its folder checked."""
    keep = FolderStore.keep

    def stop(self: FolderStore, *counts: Any) -> None:
        keep(self, *counts)
        raise KeyboardInterrupt

    monkeypatch.setattr(FolderStore, "keep", stop)
    monkeypatch.chdir(tmp_path)
    assert "run the same command again" in vauban("demo", code=130)
    assert len((tmp_path / "runs/demo/tallies.jsonl").read_bytes().splitlines()) == 1
    assert json.loads((tmp_path / "runs/demo/manifest.json").read_text())["data"]["spec"] == "mnist:split=test"
