"""Every stored folder of curves stands beside a command on its page, and the command makes the training that is stored."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vauban.cli import app
from vauban.rl import batched_seeds, training
from vauban.rl.curves import MANIFEST, read_manifest
from vauban.rl.recipes import Plan
from vauban.rl.robots import is_robot

FOLDER = Path(__file__).parents[2] / "results" / "rl"
STORED = sorted(path.parent.name for path in FOLDER.glob(f"*/{MANIFEST}"))
LINES = re.sub(r"\\\n\s+", "", (FOLDER / "README.md").read_text(encoding="utf-8")).splitlines()
COMMANDS = {
    words[-1]: words[1:-2]
    for words in (shlex.split(line, comments=True) for line in LINES if line.startswith("    vauban rl train "))
}


class Seen(Exception):
    """Raised in place of a training."""


@pytest.mark.parametrize("name", STORED)
def test_the_command_beside_a_stored_training_makes_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = {field.name: field.default for field in fields(Plan)} | read_manifest(FOLDER / name)
    if is_robot(stored["env"]):
        pytest.importorskip("gymnasium_robotics", reason="the extra robotics is not installed")

    def seen(folder: Path, plan: Plan, label: str) -> None:
        raise Seen(plan, label)

    monkeypatch.setattr(training, "open_run", seen)
    monkeypatch.setattr(batched_seeds, "check_batched", lambda plan: None)  # it makes an agent with its whole buffer
    words = [word for word in COMMANDS[name] if word not in ("--device", "cuda", "cpu")]
    found: Any = CliRunner().invoke(app, [*words, "--out", str(FOLDER / name)]).exception
    assert isinstance(found, Seen), found
    plan, label = found.args
    assert {**asdict(plan), "label": label} == {key: stored[key] for key in (*asdict(plan), "label")}
