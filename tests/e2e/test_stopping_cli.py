"""Fewer votes from the command line: plan, certify, interrupt, go on, verify, claim, and the table of votes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from commands import vauban

from vauban.runs.verify import verify_run

MAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from vauban.cli import main; main()"
SIGMA = ["--smoothing", "gaussian:sigma=0.5"]
SOME = [*SIGMA, "--every", "500", "--limit", "8", "--seed", "1"]


def test_target_certifies_with_few_votes_and_verifies(tmp_path: Path) -> None:
    fixed = json.loads(vauban("certify", *SOME, "-n", "3000", "--json", "--out", tmp_path / "fixed"))
    few = json.loads(
        vauban("certify", *SOME, "-n", "3000", "--stop", "target:radius=0.5", "--json", "--out", tmp_path / "few")
    )
    at_half = next(line for line in fixed["certified"] if line["radius"] == 0.5)
    assert few["certified"][-1] == {**few["certified"][-1], "radius": 0.5, "accuracy": at_half["accuracy"]}
    assert few["votes_per_input"] < fixed["votes_per_input"] / 5
    assert "all hold" in vauban("verify", tmp_path / "few")
    shown = vauban("certify", *SOME, "-n", "3000", "--stop", "target:radius=0.5", "--out", tmp_path / "few")
    assert "target:radius=0.5" in shown
    assert "proven at 0.999" in vauban("claim", tmp_path / "few")
    assert "cannot prove another" in vauban("claim", tmp_path / "few", "--alpha", "0.01", code=2)
    assert "-k 3" not in vauban("claim", tmp_path / "few", "-k", "3", code=2)


def test_grid(tmp_path: Path) -> None:
    summary = json.loads(
        vauban("certify", *SOME, "-n", "2000", "--stop", "grid:step=0.25", "--json", "--out", tmp_path / "grid")
    )
    assert {line["radius"] for line in summary["certified"]} >= {0.25, 0.5}
    verify_run(tmp_path / "grid")


def test_plan_says_what_a_target_takes_and_refuses_what_it_cannot_reach() -> None:
    quick = ["--limit", "5", "--seconds", "0.1"]
    plan = json.loads(vauban("plan", *SIGMA, *quick, "-n", "100000", "--stop", "target:radius=0.5", "--json"))
    (test,) = plan["radii"]
    assert test["least_votes"] in plan["looks"]
    assert test["needed"] == pytest.approx(0.841345, abs=1e-6)
    assert len(test["boundaries"]) == len(plan["looks"])
    shown = vauban("plan", *SIGMA, *quick, "-n", "2000", "--stop", "grid:step=0.25")
    assert "votes, all won" in shown
    assert "without end" in vauban("plan", *SIGMA, *quick, "--stop", "anytime")
    for command in (["plan", "--seconds", "0.1"], ["certify", "--out", "never"]):
        refused = vauban(*command, *SIGMA, "--limit", "5", "-n", "100", "--stop", "target:radius=2", code=2)
        assert "n=218,105 could certify it" in refused
        refused = vauban(*command, *SIGMA, "--limit", "5", "-n", "100", "--stop", "grid:step=0.00001", code=2)
        assert "at most 500 are supported" in refused
    assert not Path("never").exists()


def test_exact_smoothings_refuse_to_stop() -> None:
    for command in (["plan"], ["certify", "--out", "never"]):
        refused = vauban(*command, "--smoothing", "splitting:sigma=0.5", "--stop", "target:radius=1", code=2)
        assert "exact: every view votes" in refused


@pytest.mark.slow
def test_anytime_ends_with_ctrl_c_and_goes_on(tmp_path: Path) -> None:
    command = ["certify", *SOME, "--stop", "anytime", "--out", str(tmp_path / "run")]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    started = subprocess.Popen(
        [sys.executable, "-c", MAIN, *command],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    tallies = tmp_path / "run" / "tallies.jsonl"
    while not tallies.exists() or tallies.stat().st_size < 20_000:
        assert started.poll() is None
        time.sleep(0.01)
    started.send_signal(signal.SIGINT)
    out, errors = started.communicate()
    assert started.returncode == 0, errors
    assert "until Ctrl-C" in errors
    assert "certified at radius" in out
    before = verify_run(tmp_path / "run")
    vauban(*command, "--seconds", "1")
    assert verify_run(tmp_path / "run").votes > before.votes
    assert "only anytime takes seconds" in vauban("certify", *SOME, "--seconds", "1", "--out", tmp_path / "no", code=2)


def test_precision_from_the_command_line(tmp_path: Path) -> None:
    bf16 = ("--precision", "bf16", "--backend", "torch")
    vauban("certify", *SOME, "-n", "100", *bf16, "--out", tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["compute"]["precision"] == "bf16"
    refused = vauban("certify", *SOME, "-n", "100", "--out", tmp_path / "run", code=2)
    assert "bf16" in refused
    answers = json.loads(vauban("predict", *SIGMA, "--limit", "3", "-n", "100", *bf16, "--json"))
    assert len(answers["predictions"]) == 3
    assert "NVIDIA" in vauban(
        "certify", *SOME, "--precision", "tf32", "--device", "cpu", "--out", tmp_path / "no", code=2
    )


def test_the_table_of_votes(tmp_path: Path) -> None:
    p = np.random.default_rng(0).beta(8, 0.5, size=60)
    np.savetxt(tmp_path / "p.txt", p)
    command = ["bench", "votes", tmp_path / "p.txt", "-n", "6000", "--trials", "20"]
    rows = json.loads(vauban(*command, "--json"))
    assert {row["stop"].split(":")[0] for row in rows} == {"target", "grid"}
    group = [row for row in rows if row["stop"].startswith("target") and "eprocess" not in row["stop"]]
    assert len(group) == 3
    for row in group:
        assert row["votes"] < 6_000
        assert row["certified"] == pytest.approx(row["fixed"], abs=0.02)
    shown = vauban(*command)
    assert "votes per input" in shown
    assert "grid:step=0.25" in shown
    (tmp_path / "bad.txt").write_text("0.5\nhalf\n")
    assert "one probability per line" in vauban("bench", "votes", tmp_path / "bad.txt", code=2)
