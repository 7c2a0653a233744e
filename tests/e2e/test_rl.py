"""vauban rl from end to end, on an environment of a user's own script: train, Ctrl-C, resume, evaluate, plot, clear errors."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest
from commands import vauban

from vauban.rl.curves import read_rows
from vauban.rl.envs import ENVIRONMENTS

SMALL = ["--env", "Mine-v0:dim=2", "--set", "net_arch=[16],batch_size=16,learning_starts=50"]
SCRIPT = """'''A user's own script: an environment of its own, and Vauban's command line.'''

import os
import select
import signal
from pathlib import Path

from vauban.rl.envs import ENVIRONMENTS, ContinuousSeek

HOLD = Path(__file__).with_name("hold")


@ENVIRONMENTS.register("Mine-v0")
class Mine(ContinuousSeek):
    steps = 0

    def move(self, state, actions, rng):
        training = len(actions) == 1
        self.steps += training
        if training and self.steps == 70 and HOLD.exists():
            wait_for_a_signal()
        return super().move(state, actions, rng)


def wait_for_a_signal():
    heard, hears = os.pipe()
    os.set_blocking(hears, False)
    signal.set_wakeup_fd(hears)
    (HOLD / str(os.getpid())).touch()
    select.select([heard], [], [])
    signal.set_wakeup_fd(-1)


if __name__ == "__main__":
    from vauban.cli import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
"""


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    """A user's own script, whose environment this process knows as well until the test is over."""
    path = tmp_path / "mine.py"
    path.write_text(SCRIPT)
    before = dict(ENVIRONMENTS)
    runpy.run_path(str(path))
    yield path
    ENVIRONMENTS.clear()
    ENVIRONMENTS.update(before)
    gymnasium.registry.pop("Mine-v0")


@pytest.mark.slow
def test_train_stop_go_on_evaluate_and_plot(script: Path, tmp_path: Path) -> None:
    """Training waits for the signal at its 70th step, so that no machine is too fast or too slow for it."""
    out, whole, hold = tmp_path / "reengage", tmp_path / "whole", tmp_path / "hold"
    words = ["rl", "train", "--algo", "reengage-ddpg", *SMALL, "--seeds", "2", "--steps", "150"]
    words += ["--every", "50", "--episodes", "10", "--goal-weight", "0.1"]
    hold.mkdir()
    process = subprocess.Popen(
        [sys.executable, str(script), *words, "--jobs", "2", "--out", str(out)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    while len(list(hold.iterdir())) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert "run the same command again" in process.communicate()[1]
    assert process.returncode == 130
    hold.rename(tmp_path / "held")
    assert [read_rows(out / f"seed-{seed}.csv")[-1]["steps"] for seed in (0, 1)] == [50, 50]
    assert list(out.glob("*.checkpoint.pt"))
    (line,) = json.loads(vauban(*words, "--jobs", "1", "--out", out, "--json"))
    assert (line["seeds"], line["steps"], line["run"]) == (2, 150, "reengage-ddpg, alpha 0.1")
    vauban(*words, "--jobs", "1", "--out", whole, "--json", "--tensorboard")
    assert list(whole.glob("tensorboard/seed-0_1/events*"))
    for seed in (0, 1):
        stopped, never = ((folder / f"seed-{seed}.csv").read_text().splitlines() for folder in (out, whole))
        assert [row.rsplit(",", 1)[0] for row in stopped] == [row.rsplit(",", 1)[0] for row in never]
    lines = json.loads(vauban("rl", "evaluate", out, whole, "--episodes", "5", "--json"))
    assert lines[0]["area"] == lines[1]["area"]
    assert lines[0]["played"] == lines[1]["played"]
    assert (lines[0]["gain"], lines[1]["gain"][0]) == (None, 0.0)
    assert lines[0]["interval"][0] <= lines[0]["area"] <= lines[0]["interval"][1]
    assert "area" in vauban("rl", "evaluate", out)
    vauban("rl", "plot", out, "--out", tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "NoisySeek" in vauban("rl", "plot", out, "--greedy", "--out", tmp_path / "no.png", code=2)
    assert ".png" in vauban("rl", "plot", out, "--out", tmp_path / "no.txt", code=2)
    assert "another training" in vauban(*words, "--set", "batch_size=8", "--out", out, code=2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--algo", "ppo", "--env", "ContinuousSeek-v0:dim=2"], "known: ddpg, dqn"),
        (["--algo", "reengage-ddpg", "--env", "Pendulum-v1"], "needs an environment with goals"),
        (
            ["--algo", "reengage-ddpg", "--env", "ContinuousSeek-v0:dim=2", "--set", "rewards=dense"],
            "can be differentiated",
        ),
        (["--algo", "ddpg", "--env", "ContinuousSeek-v0", "--goal-weight", "1"], "no gradient loss"),
        (["--algo", "ddpg", "--env", "Nowhere-v0"], "no environment Gymnasium knows"),
    ],
)
def test_bad_input_is_answered_in_a_line_and_leaves_nothing(words: list[str], said: str, tmp_path: Path) -> None:
    assert said in vauban("rl", "train", *words, "--steps", "100", "--out", tmp_path / "run", code=2)
    assert not (tmp_path / "run").exists()
